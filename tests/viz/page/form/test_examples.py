"""Examples: the texts of a form that come from one, and their accepted answers."""

from dataclasses import replace
from typing import Any

import pytest

from viz.page.form.documents import entries_from
from viz.page.form.examples import accepted_for, load_examples

FIRST = load_examples()[0]
ACCEPTED = "\n".join(FIRST.answers)
FORM = FIRST.form(["pine"])


@pytest.mark.parametrize(
    ("changed", "is_kept"),
    [
        ({}, True),
        ({"entries": FORM.entries[::-1]}, True),
        ({"entries": entries_from([("", f"In {ACCEPTED}."), ("", "x")])}, True),
        ({"entries": entries_from([("", "own text"), ("", "x")])}, False),
        ({"question": "Another?"}, False),
    ],
)
def test_accepted_answers_of_an_example_are_for_its_question(changed: dict[str, Any], is_kept: bool) -> None:
    form = replace(FORM, **changed)
    assert accepted_for(form, ACCEPTED) == (ACCEPTED if is_kept else "")
    assert accepted_for(form, "typed by the visitor") == "typed by the visitor"
