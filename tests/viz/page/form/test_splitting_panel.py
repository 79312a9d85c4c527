"""A problem cut into the form: the parts are those of the cut, and what they replace can be brought back."""

import pytest

from pine_engine.errors import InputError
from pine_engine.prompts.math_premises import cut_sentences, split_problem, split_sentences
from pine_engine.prompts.tasks import TASKS
from tests.support.viz_reading import read_html
from viz.page.common.bounds import MAX_DOCUMENTS
from viz.page.form.documents import read_entries
from viz.page.form.splitting_panel import Content, Replaced, content_of, preview_html, read_problem, remember

PROBLEM = (
    "Ana runs a small stall at the market. She sells 12 loaves at 3 euros each. She sells 20 rolls at 1 euro "
    "each. She pays 15 euros for the stall. How many euros does she have left?"
)


def test_a_problem_becomes_the_parts_of_the_form() -> None:
    content = content_of(split_problem(PROBLEM))
    assert content.instruction == (
        TASKS["math_reasoning"].instruction + "\n\nAna runs a small stall at the market."
    )
    assert [entry.text for entry in read_entries(content.documents)] == [
        "She sells 12 loaves at 3 euros each.",
        "She sells 20 rolls at 1 euro each.",
        "She pays 15 euros for the stall.",
    ]
    assert content.question == "How many euros does she have left?"


def test_a_cut_that_the_form_cannot_hold_is_refused() -> None:
    sentences = split_sentences(PROBLEM)
    with pytest.raises(InputError, match="no premises"):
        content_of(cut_sentences(sentences, range(1, 1)))
    with pytest.raises(InputError, match="No text left for the question"):
        content_of(cut_sentences(sentences, range(1, len(sentences))))
    many = [f"A box holds {number} pens. " for number in range(MAX_DOCUMENTS + 1)]
    with pytest.raises(InputError, match="Too many conditions: 21 .limit: 20."):
        content_of(cut_sentences([*many, "How many?"], range(MAX_DOCUMENTS + 1)))


def test_text_without_a_problem_is_refused() -> None:
    sentences, parts = read_problem(PROBLEM)
    assert len(sentences) == 5 and len(parts.premises) == 3
    for text, words in (("", "No problem text"), ("One. " * 5_000, "limit: 20,000")):
        with pytest.raises(InputError, match=words):
            read_problem(text)


def content(text: str) -> Content:
    return Content("i", "q", text)


def test_undo_brings_back_what_was_typed_last() -> None:
    typed, first, second, corrected = map(content, ("typed", "first cut", "second cut", "corrected"))
    once = remember(None, typed, first)
    assert remember(once, first, second) == Replaced(typed, second)
    assert remember(once, corrected, second) == Replaced(corrected, second)


def test_the_preview_marks_the_parts() -> None:
    root = read_html(preview_html(split_problem(PROBLEM)))
    names = "Instruction,Condition 1,Condition 2,Condition 3,Question"
    assert ",".join(name.text for name in root.all("dt")) == names
    assert len(root.with_class("pine-split-premise")) == 3
    without = read_html(preview_html(split_problem("One has 2 pens. Two have 3. How many?")))
    assert "Instruction" not in without.text
