"""The lesson's HTML: steps that can be walked, a quiz that knows what happened, a page that stands alone."""

from dataclasses import replace

import pytest

from tests.support.viz_reading import HOSTILE, Element, read_html
from viz.cards.glossary import PAPER
from viz.cards.lesson import (
    OrderAnswer,
    Part,
    QuizEntry,
    Step,
    documents_html,
    lesson,
    lesson_page,
    orders_caption,
    orders_picture,
    quiz,
)
from viz.drawing.identity import document_segment

HEADINGS = ("First", "Second", "Third")
STEPS = tuple(
    Step(heading.lower(), heading, (Part(f"Text of {heading}."),), f"section {number}", ("masks", "Masks"))
    for number, heading in enumerate(HEADINGS, 1)
)
ENTRIES = (
    QuizEntry("vanilla", "Vanilla", "Ada", "Clara", kept=False),
    QuizEntry("pine", "PINE", "Clara", "Clara", kept=True),
)


def answers(*texts: str) -> list[OrderAnswer]:
    orders = [(0, 1, 2), (2, 1, 0)]
    return [
        OrderAnswer(tuple(document_segment(index, slot) for slot, index in enumerate(order)), text)
        for order, text in zip(orders, texts, strict=True)
    ]


def page(title: str = "Lesson", about: str = "Recorded") -> str:
    return lesson_page(STEPS, title=title, about=about, styles="a{}", scripts=["let one;", "let two;"])


def addresses(root: Element) -> list[str]:
    """Everything that a page could fetch or lead to."""
    pending, found = [root], []
    while pending:
        element = pending.pop()
        names = ("src", "href", "action", "formaction", "poster", "data", "srcset", "background")
        found += [element.attributes[name] for name in names if name in element.attributes]
        pending += element.children
    return found


def test_every_step_is_there_and_says_which_it_is() -> None:
    root = read_html(lesson(STEPS, is_live=True))
    steps = root.all("article")
    assert [step.all("h3")[0].text for step in steps] == list(HEADINGS)
    assert [step.with_class("pine-lesson-count")[0].text for step in steps] == [
        "Step 1 of 3",
        "Step 2 of 3",
        "Step 3 of 3",
    ]
    assert [step for step in steps if "pine-current" in step.classes] == [steps[0]]
    for step in steps:
        assert step.attributes["aria-labelledby"] == step.all("h3")[0].attributes["id"]


def test_there_is_a_dot_for_every_step_and_the_first_is_the_current_one() -> None:
    (bar,) = read_html(lesson(STEPS, is_live=True)).all("nav")
    dots = bar.all("ol")[0].all("button")
    assert [dot.attributes["data-step"] for dot in dots] == ["0", "1", "2"]
    assert [dot.attributes["aria-label"] for dot in dots] == [
        f"Step {number}: {heading}" for number, heading in enumerate(HEADINGS, 1)
    ]
    assert [dot.attributes.get("aria-current") for dot in dots] == ["step", None, None]


def test_on_the_page_every_step_leads_to_the_workspace_and_the_live_picture() -> None:
    for step in read_html(lesson(STEPS, is_live=True)).all("article"):
        workspace, live, paper = step.all("a")
        assert workspace.attributes["href"] == "#workspace"
        assert live.attributes["href"] == "#inside-section" and live.attributes["data-live"] == "masks"
        assert paper.attributes["href"] == PAPER


def test_a_saved_lesson_leads_to_the_paper_and_fetches_nothing() -> None:
    root = read_html(page())
    assert set(addresses(root)) == {PAPER}
    (policy,) = [meta for meta in root.all("meta") if "http-equiv" in meta.attributes]
    assert policy.attributes["content"].startswith("default-src 'none'")
    assert [script.text.strip() for script in root.all("script")][1:] == ["let one;", "let two;"]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_stay_text(text: str) -> None:
    documents = [(document_segment(0), text)]
    drawn = [
        documents_html(documents, text),
        orders_picture(answers(text, "x"), method=text),
        quiz(text, [QuizEntry("vanilla", text, text, text, kept=False)]),
        lesson([Step("a", text, (Part(text, "", text),), text)], is_live=True),
    ]
    for html in drawn:
        root = read_html(html)
        assert text in root.text
        assert not root.all("img") and not root.all("script")
    whole = read_html(page(text, text))
    assert whole.all("title")[0].text == text and text in whole.all("main")[0].text
    assert len(whole.all("script")) == 3 and not whole.all("img")


def test_the_caption_says_whether_the_answer_moved() -> None:
    moved = "Vanilla, the same documents in the orders A B C and C B A: the answer changes with the order."
    assert orders_caption(answers("Ada", "Clara"), method="Vanilla") == moved
    stayed = "Vanilla, the same documents in the orders A B C and C B A: here the answer stays."
    assert orders_caption(answers("Ada", "Ada"), method="Vanilla") == stayed


def test_each_order_stands_beside_its_answer() -> None:
    root = read_html(orders_picture(answers("Ada", "Clara"), method="Vanilla"))
    rows = root.with_class("pine-orders-row")
    orders = [[badge.text for badge in row.with_class("pine-badge")] for row in rows]
    assert orders == [["A", "B", "C"], ["C", "B", "A"]]
    assert [row.with_class("pine-orders-answer")[0].text for row in rows] == ["Ada", "Clara"]
    assert [mark.text for mark in root.with_class("pine-mark")] == ["changed ✗"]


def test_right_and_wrong_are_said_where_they_are_known() -> None:
    first, second = answers("Ada", "Clara")
    known = [replace(first, is_right=False), replace(second, is_right=True)]
    root = read_html(orders_picture(known, method="Vanilla"))
    assert [mark.text for mark in root.with_class("pine-mark")] == ["✗ wrong", "✓ right"]


def test_the_quiz_knows_who_kept_the_answer() -> None:
    root = read_html(quiz("Who?", ENTRIES, afterwards="<p>All orders</p>"))
    entries = root.with_class("pine-quiz-entry")
    assert [entry.attributes["data-truth"] for entry in entries] == ["changes", "keeps"]
    for entry in entries:
        guesses = [button.attributes["data-guess"] for button in entry.all("button")]
        assert guesses == ["keeps", "changes"]
        assert all(button.attributes["aria-pressed"] == "false" for button in entry.all("button"))
    results = [entry.with_class("pine-quiz-result")[0].text.split() for entry in entries]
    assert results == [["changed", "✗", "Ada", "→", "Clara"], ["kept", "✓", "Clara"]]
    assert root.with_class("pine-quiz-afterwards")[0].text.strip() == "All orders"
