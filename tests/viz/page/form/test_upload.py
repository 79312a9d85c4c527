"""Documents from the visitor's files: behind those that are there, or refused in a sentence."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pine_engine.errors import InputError
from pine_engine.prompts.prompt import Document
from viz.page.common.bounds import MAX_DOCUMENTS
from viz.page.files.file_button import limits_html
from viz.page.form.documents import Entry, entries_from
from viz.page.form.upload import add_documents, added_sentence

DOCUMENTS = st.lists(st.builds(Document, st.text(min_size=1), st.text()), max_size=MAX_DOCUMENTS + 2)
TYPED = st.lists(st.tuples(st.text("xy ", max_size=2), st.text("xy ", max_size=2)), max_size=MAX_DOCUMENTS)


@given(TYPED, DOCUMENTS)
def test_nothing_typed_is_lost_and_the_files_come_behind_it(
    typed: list[tuple[str, str]], documents: list[Document]
) -> None:
    kept = [pair for pair in typed if pair[0].strip() or pair[1].strip()]
    if len(kept) + len(documents) > MAX_DOCUMENTS:
        with pytest.raises(InputError, match="the files have more documents than fit"):
            add_documents(entries_from(typed), documents)
        return
    after = add_documents(entries_from(typed), documents)
    assert [(entry.title, entry.text) for entry in after] == [
        *kept,
        *((document.title, document.text) for document in documents),
    ]
    assert [entry.identity for entry in after] == list(range(len(after)))


def test_letters_of_a_reordered_form_stay() -> None:
    entries = (Entry(2, "", "c"), Entry(1), Entry(0, "", "a"))
    assert add_documents(entries, [Document("new", "t")]) == (
        Entry(1, "", "c"),
        Entry(0, "", "a"),
        Entry(2, "t", "new"),
    )


def test_too_many_documents_are_refused() -> None:
    with pytest.raises(InputError) as raised:
        add_documents(entries_from([("", "mine")] * 3), [Document("x")] * 18)
    assert str(raised.value) == (
        "the files have more documents than fit: the page holds 20, and 3 are there already. Nothing was "
        "added; give a part of them, or remove some"
    )
    with pytest.raises(InputError, match=r"more documents than fit: the page holds 20\."):
        add_documents(entries_from([("", "")]), [Document("x")] * 21)


def test_what_was_added_and_what_is_taken_is_said() -> None:
    assert "Added 1 document from a.txt." in added_sentence(1, [Path("/tmp/x/a.txt")])
    assert "Added 3 documents from 2 files." in added_sentence(3, [Path("a.txt"), Path("b.csv")])
    assert "&lt;b&gt;.txt" in added_sentence(1, [Path("<b>.txt")])
    assert f"10 MB each, {MAX_DOCUMENTS} documents in all" in limits_html(MAX_DOCUMENTS)
