"""Documents of a form: JSON of the browser, pasted texts and math problems, and the room for more."""

import pytest
from hypothesis import given, strategies as st

from pine_engine.errors import InputError
from pine_engine.prompts.prompt import Document
from pine_engine.prompts.tasks import TASKS
from viz.page.common.failures import MAX_DOCUMENTS
from viz.page.form.documents import (
    Entry,
    entries_from,
    entries_json,
    pasted_sentence,
    read_entries,
    read_problem,
    room_beside,
    split_pasted,
)
from viz.page.form.editor import check_room

BEFORE = "Ana runs a small stall at the market. "
CONDITIONS = (
    "She sells 12 loaves at 3 euros each.",
    "She sells 20 rolls at 1 euro each.",
    "She pays 15 euros for the stall.",
)
QUESTION = "How many euros does she have left?"
PROBLEM = BEFORE + " ".join((*CONDITIONS, QUESTION))


@given(st.permutations(range(6)), st.lists(st.tuples(st.text(), st.text()), min_size=6, max_size=6))
def test_entries_are_unchanged_by_json(letters: list[int], texts: list[tuple[str, str]]) -> None:
    entries = tuple(Entry(letter, *pair) for letter, pair in zip(letters, texts, strict=True))
    assert read_entries(entries_json(entries)) == entries


@pytest.mark.parametrize(
    ("sent", "sentence"),
    [
        ("not JSON", "Invalid documents: the whole: invalid json"),
        ('[{"letter": "0"}]', "Invalid documents: 0.letter: input should be a valid integer"),
        ('[{"letter": 0, "text": "\\ud800"}]', "Invalid documents: the whole: invalid json"),
        ('[{"letter": 0}, {"letter": 0}]', "Invalid document ids: expected 0 to 1"),
        (f"[{', '.join(['{}'] * 21)}]", "Invalid documents: "),
    ],
)
def test_invalid_entries_raise(sent: str, sentence: str) -> None:
    with pytest.raises(InputError) as raised:
        read_entries(sent)
    assert str(raised.value).startswith(sentence)


@pytest.mark.parametrize(
    ("pasted", "expected"),
    [
        ("one\n\ntwo\nlines\n \n\nthree", [("", "one"), ("", "two\nlines"), ("", "three")]),
        ("first\n\nstill first\n---\nsecond", [("", "first\n\nstill first"), ("", "second")]),
        ("# Tides\r\nThe Moon\r\n\r\nwind", [("Tides", "The Moon"), ("", "wind")]),
        ("# only a heading", [("", "# only a heading")]),
    ],
)
def test_pasted_text_is_split_at_rules_or_blank_lines(pasted: str, expected: list[tuple[str, str]]) -> None:
    assert [(document.title, document.text) for document in split_pasted(pasted)] == expected


@pytest.mark.parametrize(
    ("pasted", "sentence"),
    [
        ("---\n \n---", "No text to add"),
        ("a\n\n" * 200_000, "Pasted text too long: 600,000 characters (limit: 500,000)"),
    ],
)
def test_unsplittable_text_raises(pasted: str, sentence: str) -> None:
    with pytest.raises(InputError) as raised:
        split_pasted(pasted)
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    ("problem", "conditions", "question"),
    [
        (PROBLEM, CONDITIONS, QUESTION),
        (
            f"{BEFORE}\n---\n{' '.join(CONDITIONS[:2])}\n---\n{CONDITIONS[2]} {QUESTION}",
            CONDITIONS[:2],
            f"{CONDITIONS[2]} {QUESTION}",
        ),
    ],
)
def test_problem_is_split_by_wording_or_rules(
    problem: str, conditions: tuple[str, ...], question: str
) -> None:
    row = read_problem(problem)
    assert row.prefix == f"{TASKS['math_reasoning'].instruction}\n\n{BEFORE.strip()}"
    assert tuple(document.text for document in row.documents) == conditions
    assert row.question == question


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        ("", "No conditions found"),
        ("One. " * 5_000, "Problem too long: 25,000 characters .limit: 20,000."),
        (f"---\n{CONDITIONS[0]}\n---\n", "No text left for the question"),
        (f"---\n{' '.join(CONDITIONS * 7)}\n---\n{QUESTION}", "Too many conditions: 21 .limit: 20."),
    ],
)
def test_problem_without_valid_parts_raises(problem: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        read_problem(problem)


def test_there_is_room_for_as_many_documents_as_are_allowed() -> None:
    most = entries_from([("", "a")] * MAX_DOCUMENTS)
    assert (room_beside(most), room_beside(most[1:]), room_beside((*most[1:], Entry(0, " ", "\n")))) == (
        0,
        1,
        1,
    )
    assert pasted_sentence(2, 1) == "Added 1 document. 1 not added: at most 20 documents are allowed."


def test_uploads_beyond_the_limits_raise() -> None:
    with pytest.raises(InputError, match=r"17 of 20 slots are free. Nothing was added."):
        check_room(entries_from([("", "mine")] * 3), [Document("x")] * 18)
    with pytest.raises(InputError, match="Input too long: 500,001 characters"):
        check_room(entries_from([("", "a")]), [Document("x" * 500_000)])
