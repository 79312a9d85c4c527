"""Examples, the accepted answers of a form, and the checkboxes of methods."""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from pine_engine import METHODS
from pine_engine.prompts.tasks import TASKS
from viz.page.form.documents import entries_from, entries_json
from viz.page.form.editor import fit_instruction
from viz.page.form.examples import accepted_for, load_examples
from viz.page.form.options import DEFAULT_METHODS, OFFERED

STYLE = Path(__file__).parents[4] / "assets" / "style.css"
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


def test_letter_of_an_example_is_for_its_task_alone() -> None:
    example = next(one for one in load_examples() if one.task == "options")
    (letter,) = example.answers
    own = replace(example.form(["pine"]), question="Own?", entries=entries_from([("", "x"), ("", "y")]))
    assert accepted_for(own, letter) == ""
    assert accepted_for(replace(own, task="judge"), letter) == letter
    assert accepted_for(own, letter, typed=letter) == letter


def test_instruction_of_an_example_is_for_its_documents_alone() -> None:
    own, usual = FIRST.instruction, TASKS[FIRST.task].instruction
    fit = partial(fit_instruction, FIRST.task)
    others, shipped = entries_json(entries_from([("", "own text")])), entries_json(FORM.entries[:1])
    assert own and fit(own, others) == fit(usual, others) == usual
    assert fit(usual, shipped) == fit(own, shipped) == own
    assert fit("Be brief.", others) == fit("Be brief.", shipped) == gr.skip()


def test_other_methods_are_those_that_the_stylesheet_hides() -> None:
    others = [METHODS[name].role == "other" for name in OFFERED]
    assert others == sorted(others) and any(others)
    rule = next(part for part in STYLE.read_text().split("}") if ".page-more-methods input:checked" in part)
    (first_hidden,) = re.findall(r"nth-of-type\(n \+ (\d+)\)", rule)
    assert int(first_hidden) == others.index(True) + 1
    assert set(DEFAULT_METHODS) <= set(list(OFFERED)[: others.index(True)])
