"""The tutorial's HTML: steps, a quiz that knows what happened, and a document without a network."""

import pytest

from tests.support.viz_reading import Element, read_html
from viz.cards.glossary import PAPER, TERMS, explanations_html, glossary_html, term
from viz.cards.tutorial import (
    OrderedAnswer,
    QuizEntry,
    Step,
    StepPart,
    orders_picture,
    quiz,
    tutorial,
    tutorial_page,
)
from viz.drawing.identity import document_segment
from viz.export.numbers import picture_numbers

HEADINGS = ("First", "Second", "Third")
STEPS = tuple(
    Step(
        heading.lower(), heading, (StepPart(f"Text of {heading}."),), f"section {number}", ("masks", "Masks")
    )
    for number, heading in enumerate(HEADINGS, 1)
)


def answers(*texts: str, right: tuple[bool | None, ...] = (None, None)) -> list[OrderedAnswer]:
    orders = [(0, 1, 2), (2, 1, 0)]
    return [
        OrderedAnswer(
            tuple(document_segment(index, slot) for slot, index in enumerate(order)), text, is_right
        )
        for order, text, is_right in zip(orders, texts, right, strict=True)
    ]


def addresses(root: Element) -> list[str]:
    """Return everything that a page could fetch or lead to."""
    pending, found = [root], []
    while pending:
        element = pending.pop()
        names = ("src", "href", "action", "formaction", "poster", "data", "srcset", "background")
        found += [element.attributes[name] for name in names if name in element.attributes]
        pending += element.children
    return found


def test_steps_are_in_order_and_the_first_is_current() -> None:
    root = read_html(tutorial(STEPS, is_live=True))
    steps = root.all("article")
    assert [step.all("h3")[0].text for step in steps] == list(HEADINGS)
    assert [step for step in steps if "pine-current" in step.classes] == [steps[0]]
    for step in steps:
        _, live, paper = step.all("a")
        assert (live.attributes["data-live"], paper.attributes["href"]) == ("masks", PAPER)
    dots = root.all("nav")[0].all("ol")[0].all("button")
    assert [dot.attributes["data-step"] for dot in dots] == ["0", "1", "2"]


def test_saved_tutorial_leads_to_the_paper_only() -> None:
    html = tutorial_page(STEPS, title="T", about="A", styles="a{}", scripts=["let one;", "let two;"])
    root = read_html(html)
    assert set(addresses(root)) == {PAPER}
    (policy,) = [meta for meta in root.all("meta") if "http-equiv" in meta.attributes]
    assert policy.attributes["content"].startswith("default-src 'none'")
    assert [script.text.strip() for script in root.all("script")][1:] == ["let one;", "let two;"]


@pytest.mark.parametrize(
    ("texts", "right", "marks", "finding"),
    [
        (("Ada", "Clara"), (None, None), ["changed ✗"], "changes with the order"),
        (("Ada", "Ada"), (None, None), ["same ✓"], "stays"),
        (("Ada", "Clara"), (False, True), ["✗ wrong", "✓ right"], "changes with the order"),
    ],
)
def test_orders_are_beside_their_answers(
    texts: tuple[str, ...], right: tuple[bool | None, ...], marks: list[str], finding: str
) -> None:
    html = orders_picture(answers(*texts, right=right), method="Vanilla")
    (named,) = picture_numbers(html)
    assert named.numbers.rows == tuple(zip(("A B C", "C B A"), texts, strict=True))
    assert finding in named.caption
    assert [mark.text for mark in read_html(html).with_class("pine-mark")] == marks


def test_quiz_has_the_result_of_each_method() -> None:
    entries = [
        QuizEntry("vanilla", "Vanilla", "Ada", "Clara", kept=False),
        QuizEntry("pine", "PINE", "Clara", "Clara", kept=True),
    ]
    root = read_html(quiz("Who?", entries, afterwards="<p>All orders</p>"))
    rows = root.with_class("pine-quiz-entry")
    assert [row.attributes["data-truth"] for row in rows] == ["changes", "keeps"]
    for row in rows:
        assert [button.attributes["data-guess"] for button in row.all("button")] == ["keeps", "changes"]
    results = [row.with_class("pine-quiz-result")[0].text.split() for row in rows]
    assert results == [["changed", "✗", "Ada", "→", "Clara"], ["kept", "✓", "Clara"]]
    assert root.with_class("pine-quiz-afterwards")[0].text.strip() == "All orders"


def test_every_term_shows_its_explanation() -> None:
    page = read_html(explanations_html())
    explained = {div.attributes["id"]: div.text for div in page.with_class("pine-explanation")}
    assert len(explained) == len(TERMS)
    for name, entry in TERMS.items():
        (button,) = read_html(term(name)).all("button")
        assert button.text == name and entry.meaning in explained[button.attributes["popovertarget"]]
        assert entry.meaning in glossary_html().replace("&#39;", "'")
