"""Documents from the visitor's files: behind those that are there, or refused in a sentence."""

import pytest

from pine_engine.errors import InputError
from pine_engine.prompts.prompt import Document
from viz.page.form.documents import entries_from
from viz.page.form.upload import check_room


def test_too_many_documents_are_refused() -> None:
    with pytest.raises(InputError) as raised:
        check_room(entries_from([("", "mine")] * 3), [Document("x")] * 18)
    assert "17 of 20 slots are free. Nothing was added." in str(raised.value)


def test_texts_that_are_too_long_together_are_refused() -> None:
    with pytest.raises(InputError, match="Input too long: 500,001 characters"):
        check_room(entries_from([("", "a")]), [Document("x" * 500_000)])
