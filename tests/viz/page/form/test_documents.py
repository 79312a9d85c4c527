"""Documents of a form: JSON of the browser, pasted texts, and the room for more."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from pine_engine.errors import InputError
from pine_engine.rows.documents import Document
from viz.page.common.limits import MAX_DOCUMENTS
from viz.page.form.documents import Entry, entries_from, entries_json, read_entries, room_beside
from viz.page.form.editor import check_room
from viz.page.form.form import Form, form_request
from viz.page.form.pasted import pasted_sentence, split_pasted


@given(st.permutations(range(6)), st.lists(st.tuples(st.text(), st.text()), min_size=6, max_size=6))
def test_entries_are_unchanged_by_json(letters: list[int], texts: list[tuple[str, str]]) -> None:
    entries = tuple(Entry(letter, *pair) for letter, pair in zip(letters, texts, strict=True))
    assert read_entries(entries_json(entries)) == entries


@pytest.mark.parametrize(
    ("sent", "sentence"),
    [
        ("not JSON", "Invalid documents: invalid JSON"),
        ('[{"letter": "0"}]', 'Invalid documents: [0].letter: got "0", expected a whole number'),
        ('[{"letter": 0, "text": "\\ud800"}]', "Invalid documents: invalid JSON"),
        ('[{"letter": 0}, {"letter": 0}]', "Invalid document ids: expected 0 to 1"),
        (f"[{', '.join(['{}'] * 21)}]", "Invalid documents: "),
    ],
)
def test_invalid_entries_raise(sent: str, sentence: str) -> None:
    with pytest.raises(InputError) as raised:
        read_entries(sent)
    assert str(raised.value).startswith(sentence)


def test_score_stays_with_its_document() -> None:
    entries = entries_from([("", "a", -0.5), ("T", "b", None), ("", "c")])
    sent = entries_json(entries)
    assert [one.get("score") for one in json.loads(sent)] == [-0.5, None, None] and sent.count("score") == 1
    assert read_entries(sent) == entries
    form = Form("retrieval_qa", "Who?", "", ("by_score",), 8, entries)
    with pytest.raises(InputError, match="By score .* document B"):
        form.check()
    replace(form, methods=("pine",)).check()
    complete = replace(form, entries=entries_from([("", "a", -0.5), ("T", "b", 0.0)]))
    complete.check()
    assert [document.score for document in form_request(complete).documents] == [-0.5, 0.0]


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
