"""The page on a model that runs as it is: methods that fit, and figures without attention."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from pine_engine import METHODS, Engine, InputError
from tests.support.running import loaded_source, views_of
from tests.support.runs import THREE, form_of
from tests.support.widgets import built
from viz.page.answers.answering import prepare_answers
from viz.page.answers.order_table import order_table_json
from viz.page.answers.run import Run
from viz.page.answers.tutorial_recording import tutorial_recording
from viz.page.api.reports import traced
from viz.page.bundle import bundle
from viz.page.form.fitting import show_misfits
from viz.page.form.options import DEFAULT_METHODS
from viz.page.internals.attention import draw_attention
from viz.page.internals.attention_job import attention_request, prepare_attention
from viz.page.internals.content import NO_ATTENTION
from viz.page.internals.tabs import DRAWING
from viz.page.jobs.sources import Choice, Sources
from viz.page.position_sweep_job import prepare_sweep
from viz.page.selection import first_selection
from viz.page.shuffle_job import prepare_shuffle
from viz.page.tutorial.steps import tutorial_steps
from viz.page.why import can_explain, why_json

FITTING = ["vanilla", "reorder_content"]


@pytest.fixture(scope="module")
def stock(hybrid: Path) -> Engine:
    return Engine.load(hybrid)


@pytest.fixture(scope="module")
def view(stock: Engine) -> Any:
    *_, last = views_of(prepare_answers, stock, form_of(THREE, methods=(*FITTING, "nbce"), max_new_tokens=8))
    return last


def test_internals_show_positions_of_vanilla_and_no_attention(view: Any) -> None:
    run: Run = view.run
    selection = first_selection(run)
    assert selection.method == "vanilla" and not can_explain(run)
    drawn = {name: draw(run, selection) for name, draw in DRAWING.items()}
    assert set(drawn["masks"].figures) == {"token-masks"} and "PINE" not in drawn["masks"].html
    assert set(drawn["positions"].figures) == {"positions", "position-map", "method-positions"}
    assert set(drawn["importance"].figures) == set()
    assert set(drawn["change"].figures) == {"likely-tokens"}
    for shown in (drawn["importance"], drawn["change"], draw_attention(run, selection, None)):
        assert NO_ATTENTION in shown.html
    methods = json.loads(order_table_json(view))["methods"]
    assert [method["name"] for method in methods] == ["vanilla", "nbce", "reorder_content"]
    report = traced(view, arrays=True)
    assert report and report["results"][0]["attention"] is None
    assert report["results"][0]["documents"][0]["starts"][0] == run.result.layout.prefix_length


def test_downloads_and_tutorial_are_complete(view: Any) -> None:
    run: Run = view.run
    with zipfile.ZipFile(io.BytesIO(bundle(run, first_selection(run), accepted=""))) as files:
        answers = json.loads(files.read("session.json"))["answers"]
        assert "pictures.html" in files.namelist()
    assert len(answers) == 3
    assert len(tutorial_steps(tutorial_recording(), run)) == len(tutorial_steps(tutorial_recording()))
    assert "Precomputed" in why_json(run)


def test_attention_of_tokens_is_refused_with_the_reason(view: Any, stock: Engine) -> None:
    request = attention_request(view.run, first_selection(view.run))
    with pytest.raises(InputError, match="recurrent"):
        prepare_attention(stock, request)


def test_shuffle_and_sweep_add_methods_that_fit_alone(stock: Engine) -> None:
    form = form_of(THREE, methods=("reorder_content",))
    *_, shuffled = views_of(prepare_shuffle, stock, form, count=6, seed=0, controls=True)
    assert shuffled.run and shuffled.run.certificate
    held = {result.method: result.bitwise_identical for result in shuffled.run.certificate.results}
    assert held == {"reorder_content": True, "vanilla": False}
    *_, swept = views_of(prepare_sweep, stock, form, document=0, answer="")
    assert set(swept.steps[0].scores) == set(FITTING)
    assert swept.is_complete and swept.effects is None


@pytest.mark.parametrize(
    ("is_stock", "ticked", "kept"),
    [
        (True, DEFAULT_METHODS, FITTING),
        (True, ["nbce", "pine"], ["nbce"]),
        (True, ["pine"], FITTING),
        (True, ["nbce"], None),
        (False, FITTING, DEFAULT_METHODS),
        (False, ["pine"], None),
    ],
)
def test_boxes_follow_the_model(
    is_stock: bool, ticked: list[str], kept: list[str] | None, stock: Engine, engine: Engine
) -> None:
    source = loaded_source(stock if is_stock else engine, "m")
    misfits, boxes = built(lambda: (gr.HTML(), gr.CheckboxGroup()))
    sources = Sources(Choice("m", "float32"), source)
    updates = show_misfits(misfits, [boxes], sources, None, "retrieval_qa", ticked)
    assert updates.get(boxes) == kept
    reasons = json.loads(updates[misfits])
    needs = {name for name, method in METHODS.items() if method.requires == "placement"}
    assert set(reasons) == (needs if is_stock else set())
