"""The certificate to print: one file with every number as measured, and with nothing that runs."""

import re
from dataclasses import replace

import pytest

from tests.support.viz_reading import HOSTILE, Element, read_html, table_cells
from viz.cards.certificate import CertifiedMethod, Sheet, certificate_page
from viz.drawing.styles import figure_styles

STYLES = figure_styles()

VANILLA = CertifiedMethod(
    "Vanilla", False, "Paris.", (7, 8), 1, 2, 5.2341, False, (-1.5, -4.0), 2.5, "ab" * 32
)
PINE = CertifiedMethod("PINE", True, "Lyon.", (9,), 2, 1, 0.0, True, (-0.25, -0.25), 0.0, "cd" * 32)
SHEET = Sheet(
    made="2026-03-01T12:00:00+00:00",
    facts=(("model", "tiny"), ("torch", "2.13.0")),
    task="retrieval_qa",
    question="Which city?",
    instruction="Answer.",
    documents=(("Title", "first text"), ("", "second text")),
    orders=((1, 0), (0, 1)),
    seed=None,
    max_new_tokens=12,
    methods=(VANILLA, PINE),
    command="python -m pine_engine repeat certificate.json",
)


def page(sheet: Sheet = SHEET) -> str:
    return certificate_page(sheet, styles=STYLES)


def test_every_method_has_its_numbers() -> None:
    results, orders = read_html(page()).all("table")
    rows = [[cell.text for cell in row] for row in table_cells(results)]
    assert rows == [
        ["1 of 2", "2", "5.23", "2.5 nats", "depends on the order"],
        ["2 of 2", "1", "0.0, equal to the last bit", "0.0 nats", "does not depend on the order ✓"],
    ]
    assert [[cell.text for cell in row] for row in table_cells(orders)] == [
        ["-1.50", "-0.250"],
        ["-4.00", "-0.250"],
    ]
    assert not read_html(page()).all("svg"), "the tables have every number"
    letters = [row.with_class("pine-badge") for row in orders.all("tbody")[0].all("tr")]
    assert [[badge.text for badge in row] for row in letters] == [["B", "A"], ["A", "B"]]


def test_it_says_what_was_asked_where_and_how_to_repeat_it() -> None:
    text = " ".join(read_html(page()).all("main")[0].text.split())
    for said in (
        "Which city?", "Answer.", "first text", "second text", "Title", "retrieval_qa", "at most 12 tokens",
        "2 orders of 2 documents (all there are)", "Paris.", "Token ids: 7 8", "ab" * 32, "cd" * 32,
        "torch2.13.0", SHEET.command, SHEET.made,
    ):  # fmt: skip
        assert said in text, said
    assert "random ones, seed 3" in page(replace(SHEET, seed=3))
    stopped = replace(SHEET, documents=(("", "text"),) * 3, orders=((1, 0, 2), (1, 2, 0)))
    assert "2 orders of 3 documents (the first of all 6)" in page(stopped)


@pytest.mark.parametrize(
    ("promises", "equal", "verdict"),
    [
        (True, True, "does not depend on the order ✓"),
        (True, False, "broke its promise ✗"),
        (False, True, "may depend on the order, did not here"),
        (False, False, "depends on the order"),
    ],
)
def test_the_verdict_follows_the_last_bit(promises: bool, equal: bool, verdict: str) -> None:
    assert replace(PINE, is_order_invariant=promises, bitwise_identical=equal).verdict == verdict


def test_zero_is_said_only_where_it_is() -> None:
    almost = replace(PINE, max_abs_logit_diff=2e-7, logprob_spread=3e-8, bitwise_identical=False)
    cells = [
        cell.text
        for cell in table_cells(read_html(page(replace(SHEET, methods=(almost,)))).all("table")[0])[0]
    ]
    assert cells[2:4] == ["2.0e-07", "3.0e-08 nats"]


def test_it_needs_nothing_else() -> None:
    html = page()
    assert html.startswith("<!doctype html>")
    assert "default-src 'none'" in html
    assert not re.search(r"<(script|link|img|iframe|base|form)\b|@import|url\(|https?:", html)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text(text: str) -> None:
    hostile = replace(
        SHEET,
        facts=((text, text),),
        task=text,
        question=text,
        instruction=text,
        documents=((text, text), (text, text)),
        methods=(replace(PINE, label=text, answer=text, sha256=text),),
        command=text,
        made=text,
    )
    html = page(hostile)
    root = read_html(html)
    plain = read_html(page())
    assert {element.tag for element in everything(root)} == {element.tag for element in everything(plain)}
    assert not [name for element in everything(root) for name in element.attributes if name.startswith("on")]
    assert [answer.text for answer in root.with_class("pine-answer-text")] == [text] * 5


def everything(element: Element) -> list[Element]:
    """The element and all inside it."""
    return [element, *(inner for child in element.children for inner in everything(child))]
