"""Results are marked as soon as they belong to something else than the form holds."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.runs import THREE, swapped
from tests.support.viz_reading import read_html
from viz.page.answers.recorded_answers import recorded_of
from viz.page.answers.stale import Origin, changes, stale_html
from viz.page.form.examples import load_examples
from viz.page.form.form import Form
from viz.page.form.options import DEFAULT_METHODS
from viz.page.jobs.sources import Choice

FORM = Form("retrieval_qa", "Which is green?", "", ("vanilla", "pine"), 48, THREE)


@pytest.mark.parametrize(
    ("edit", "changed"),
    [
        ({}, []),
        ({"question": " Which is green? "}, []),
        ({"instruction": FORM.row.instruction}, []),
        ({"entries": swapped(THREE, 0)}, ["order"]),
        ({"entries": THREE[:2]}, ["number of documents"]),
        (
            {"entries": (THREE[0], replace(THREE[1], text="x"), replace(THREE[2], title="y"))},
            ["text of B and C"],
        ),
        ({"question": "Why?", "max_new_tokens": 8}, ["question", "max new tokens"]),
        ({"instruction": "Be brief."}, ["instruction"]),
        ({"methods": ("pine",)}, ["methods"]),
        ({"task": "judge_pair", "question": "Why?"}, ["task"]),
    ],
)
def test_edited_parts_are_named(edit: dict[str, Any], changed: list[str]) -> None:
    assert changes(Origin(FORM), replace(FORM, **edit), None) == changed


def test_another_model_is_a_change_and_the_same_one_is_none() -> None:
    model = Choice("another", "float32")
    assert changes(Origin(FORM), FORM, model) == ["model"]
    assert changes(Origin(FORM, model), FORM, model) == []


def test_a_note_says_what_the_results_belong_to_and_runs_again() -> None:
    origin = Origin(replace(FORM, entries=swapped(THREE, 0)))
    assert (
        stale_html(origin, origin.form, None, press="run") == "" == stale_html(None, FORM, None, press="run")
    )
    note = read_html(stale_html(origin, FORM, None, press="run"))
    text = note.with_class("page-stale")[0].all("p")[0].text
    parts = ("order B A C", "“Which is green?”", "Vanilla, PINE", "You changed: order.")
    assert [part for part in parts if part not in text] == []
    question = replace(FORM, question="Why?")
    assert "order" not in stale_html(replace(origin, is_for_all_orders=True), question, None, press="run")
    assert note.all("button")[0].attributes["data-click-target"] == "run"


def test_recorded_answers_belong_to_their_example_whatever_methods_and_length_are_set() -> None:
    for example in load_examples():
        _, origin = recorded_of(example.form(DEFAULT_METHODS))
        if origin is not None:
            form = replace(origin.form, methods=("pine",), max_new_tokens=8)
            assert changes(origin, form, None) == []
            assert changes(origin, replace(form, entries=swapped(form.entries, 0)), None) == [], "shown too"
