"""Results are marked as soon as they belong to something else than the form holds."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.runs import THREE, swapped
from tests.support.viz_reading import read_html
from viz.page.answers.recordings import recorded_of
from viz.page.answers.shown import changes
from viz.page.answers.stale import stale_html
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
        ({"chat_template_kwargs": '{"enable_thinking": false}'}, ["chat template arguments"]),
        ({"task": "judge", "question": "Why?"}, ["task"]),
    ],
)
def test_changes_name_edited_parts(edit: dict[str, Any], changed: list[str]) -> None:
    assert changes((FORM, None), (replace(FORM, **edit), None)) == changed


def test_changes_name_another_model_only() -> None:
    model = Choice("another", "float32")
    assert changes((FORM, None), (FORM, model)) == ["model"]
    assert changes((FORM, model), (FORM, model)) == [] == changes(None, (FORM, None))


def test_notice_names_the_inputs_of_results_and_runs_again() -> None:
    assert stale_html(FORM, [], press="run") == ""
    moved = replace(FORM, entries=swapped(THREE, 0))
    note = read_html(stale_html(moved, ["order"], press="run", with_order=True))
    text = note.with_class("page-stale")[0].all("p")[0].text
    parts = ("order B A C", "“Which is green?”", "Vanilla, PINE", "Changed: order.")
    assert [part for part in parts if part not in text] == []
    assert "order" not in stale_html(moved, ["question"], press="run")
    assert note.all("button")[0].attributes["data-click-target"] == "run"


def test_recorded_answers_are_of_any_order_methods_and_length() -> None:
    for example in load_examples():
        shown = recorded_of(example.form(DEFAULT_METHODS))
        form = replace(example.form(["pine"], 8), entries=swapped(shown.form.entries, 0))
        assert shown.recorded and shown.changes((form, None)) == []
