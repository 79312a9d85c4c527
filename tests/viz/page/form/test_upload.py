"""Documents from the visitor's files: behind those that are there, or refused in a sentence."""

from pathlib import Path

import pytest

from pine_engine.errors import InputError
from pine_engine.prompts.prompt import Document
from viz.page.common.bounds import MAX_DOCUMENTS
from viz.page.form.documents import entries_from
from viz.page.form.editor import limits_html
from viz.page.form.upload import added_sentence, check_room


def test_too_many_documents_are_refused() -> None:
    with pytest.raises(InputError) as raised:
        check_room(entries_from([("", "mine")] * 3), [Document("x")] * 18)
    assert "17 of 20 slots are free. Nothing was added." in str(raised.value)


def test_texts_that_are_too_long_together_are_refused() -> None:
    with pytest.raises(InputError, match="Input too long: 500,001 characters"):
        check_room(entries_from([("", "a")]), [Document("x" * 500_000)])


def test_upload_message_names_added_documents() -> None:
    assert "&lt;b&gt;.txt" in added_sentence(1, [Path("<b>.txt")])
    assert f"10 MB each, {MAX_DOCUMENTS} documents in total" in limits_html(MAX_DOCUMENTS)
