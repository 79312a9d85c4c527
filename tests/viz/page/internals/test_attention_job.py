"""Attention token by token on the page: against the definition, and what is drawn of it."""

import inspect
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pine_engine.attention.trace import TokenRange, TokenWeights, TraceConfig
from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError
from tests.support.running import views_of
from tests.support.runs import THREE, finish, form_of
from tests.support.viz_reading import read_html
from viz.page.answers import answering
from viz.page.answers.answering import prepare_answers
from viz.page.answers.run import Run
from viz.page.internals import attention_job
from viz.page.internals.attention import draw_attention
from viz.page.internals.attention_job import AttentionView, attention_request, prepare_attention
from viz.page.queries import Query
from viz.page.selection import Selection, first_selection


@pytest.fixture(scope="module")
def run(engine: Engine) -> Run:
    return finish(engine, THREE, methods=("vanilla", "pcw", "pine"))


@pytest.fixture
def selection() -> Selection:
    return Selection("pine", Query("document", 1), 1, 2)


@pytest.fixture(scope="module")
def attention(engine: Engine, run: Run) -> AttentionView:
    request = attention_request(run, Selection("pine", Query("document", 1), 1, 2))
    *_, last = views_of(prepare_attention, engine, request)
    # The estimate before the computation equals its cost.
    plan = prepare_attention(engine, request).work
    assert (last.done.prompts, last.done.prompt_tokens) == (plan.prompts, plan.prompt_tokens)
    return last


def test_weights_are_those_of_the_trace(engine: Engine, run: Run, attention: AttentionView) -> None:
    layout = run.result.layout
    config = TraceConfig((TokenRange(1, 2, 0, layout.num_tokens),))
    again = engine.run(layout, methods=["vanilla", "pine"], max_new_tokens=0, trace=config)
    assert list(attention.weights) == list(again.traces)
    for method, trace in again.traces.items():
        expected = trace.token_weights[0].weights[:, : layout.num_tokens].astype(np.float16)
        np.testing.assert_array_equal(attention.weights[method], expected)


def test_figure_shows_the_computed_weights(run: Run, selection: Selection, attention: AttentionView) -> None:
    drawn = draw_attention(run, selection, attention)
    figure = drawn.figures["attention"]
    assert [trace.name for trace in figure.data] == ["Vanilla", "PINE"]
    assert figure.layout.title.text.endswith("layer 1, head 2")
    for trace, weights in zip(figure.data, attention.weights.values(), strict=True):
        np.testing.assert_array_equal(np.isnan(trace.z[:, 1:]), np.isnan(weights[:, 1:]))
        assert np.isnan(trace.z[:, 0]).all()
    layout = run.result.layout
    marked = {shape.y0 for shape in figure.layout.shapes if shape.type == "line"}
    assert marked == {layout.document_starts[1] + layout.lengths[1] - 1}
    assert "Selected:" not in drawn.html


def test_switch_shows_the_attention_sink(run: Run, selection: Selection, attention: AttentionView) -> None:
    picked = selection.picked({"with_sink": True}, run)
    drawn = draw_attention(run, picked, attention)
    assert not np.isnan(drawn.figures["attention"].data[0].z[:, 0]).any()
    [buttons] = [switch.all("button") for switch in read_html(drawn.html).with_class("pine-switch")]
    pressed = [button.text for button in buttons if button.attributes["aria-pressed"] == "true"]
    assert pressed == ["shown"]


def test_later_selection_keeps_the_title_of_the_weights(
    run: Run, selection: Selection, attention: AttentionView
) -> None:
    other = draw_attention(run, replace(selection, layer=0), attention)
    assert "Selected: PINE, layer 0, head 2. Click" in other.html
    assert other.figures["attention"].layout.title.text.endswith("layer 1, head 2")
    layout = run.result.layout.reorder((1, 0, 2))
    moved = replace(run, result=replace(run.result, layout=layout))
    for drawn in (draw_attention(moved, selection, attention), draw_attention(run, selection, None)):
        assert not drawn.figures and read_html(drawn.html).with_class("pine-empty")


def test_recorded_weights_are_drawn_until_others_are_computed(
    run: Run, selection: Selection, attention: AttentionView
) -> None:
    of = TokenRange(1, 2, 0, run.result.layout.num_tokens)
    traces = {
        name: replace(trace, token_weights=(TokenWeights(of, attention.weights[name].astype(np.float32)),))
        if name in attention.weights
        else trace
        for name, trace in run.result.traces.items()
    }
    recorded = replace(run, result=replace(run.result, traces=traces))
    drawn, expected = draw_attention(recorded, selection, None), draw_attention(run, selection, attention)
    assert drawn.html == expected.html
    assert drawn.figures["attention"].to_dict() == expected.figures["attention"].to_dict()
    picked = replace(selection, layer=0)
    assert "layer 0, head 2. Click" in draw_attention(recorded, picked, None).html
    newer = replace(attention, request=replace(attention.request, layer=0))
    title = draw_attention(recorded, picked, newer).figures["attention"].layout.title.text
    assert title.endswith("layer 0, head 2")


def test_request_compares_vanilla_in_the_most_decisive_head(run: Run) -> None:
    first = first_selection(run)
    request = attention_request(run, replace(first, method="vanilla", layer=None, head=None))
    assert request.methods == ("vanilla", "pine") and (request.layer, request.head) == (
        first.layer,
        first.head,
    )
    assert attention_request(run, replace(first, method="pcw")).methods == ("vanilla", "pcw")


def test_request_of_another_model_or_beyond_the_limit_raises(
    engine: Engine, run: Run, selection: Selection, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = attention_request(run, selection)
    with pytest.raises(InputError, match="This run used another, but the current model is tiny"):
        next(views_of(prepare_attention, engine, replace(request, model="another")))
    monkeypatch.setattr(attention_job, "MAX_ATTENTION_TOKENS", 10)
    with pytest.raises(InputError, match="up to 10"):
        next(views_of(prepare_attention, engine, request))


def test_stopped_job_closes_its_events(
    engine: Engine, run: Run, selection: Selection, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []

    def start(*args: Any, **options: Any) -> Any:
        started.append(Engine.generate(engine, *args, **options))
        return started[-1]

    monkeypatch.setattr(engine, "generate", start)
    for module in (answering, attention_job):
        monkeypatch.setattr(module, "REDRAW_S", 0.0)
    for job in (
        views_of(prepare_answers, engine, form_of()),
        views_of(prepare_attention, engine, attention_request(run, selection)),
    ):
        next(job)
        job.close()
    assert [inspect.getgeneratorstate(events) for events in started] == [inspect.GEN_CLOSED] * 2
