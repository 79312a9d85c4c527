"""Estimates before a job begins: number of tokens and time."""

import json
import re
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import gradio as gr
import pytest

from app import all_sources
from pine_engine.engine.engine import Engine
from pine_engine.scheduling.queue import FairQueue
from pine_engine.scheduling.work import Work
from tests.support.widgets import built, function_of
from viz.cards.answers import AnswerCard
from viz.lab.page.data_sets import read_built_in
from viz.lab.page.evaluate_job import MeasureRequest, prepare_measure
from viz.page.answers.answering import prepare_answers
from viz.page.answers.form_state import too_many_tokens
from viz.page.answers.form_updates import planned_answers
from viz.page.answers.shown import Shown
from viz.page.build import build_page
from viz.page.common.host_settings import DEFAULTS, HostSettings
from viz.page.form.checks import form_layout
from viz.page.form.documents import entries_from, entries_json
from viz.page.form.examples import load_examples
from viz.page.form.form import Form, TokenCount
from viz.page.form.options import DEFAULT_METHODS
from viz.page.jobs.loader import EngineSource
from viz.page.jobs.sources import Sources
from viz.page.position_sweep_job import planned_sweep, prepare_sweep
from viz.page.shuffle_job import prepare_shuffle

TEXTS = ["red cat", "green", "white hats", "x", "y"]


def form(count: int = 3, methods: tuple[str, ...] = ("vanilla", "nia", "pine")) -> Form:
    entries = entries_from([("", text) for text in TEXTS[:count]])
    return Form("retrieval_qa", "Which is green?", "Answer.", methods, 5, entries)


@pytest.mark.parametrize(("count", "controls"), [(3, False), (5, True)])
def test_estimate_equals_planned_work(count: int, controls: bool, engine: Engine) -> None:
    request = form(count)
    tokens = form_layout(request, engine).num_tokens
    one, shuffled = planned_answers(request, tokens, orders=6, controls=controls)
    moved = planned_sweep(request, tokens)
    assert prepare_answers(engine, request).work == one
    assert shuffled == prepare_shuffle(engine, request, count=6, seed=0, controls=controls).work
    with_answer = prepare_sweep(engine, request, document=0, answer="g").work  # one more token is read
    assert (moved.prompts, moved.orders) == (with_answer.prompts, with_answer.orders)
    assert moved.prompt_tokens == with_answer.prompt_tokens - moved.prompts
    assert prepare_sweep(engine, request, document=0, answer="").work.new_tokens == request.max_new_tokens


def test_evaluation_is_estimated_from_its_first_rows(engine: Engine) -> None:
    rows = read_built_in("retrieval_qa")
    assert len(rows.examples) == 6
    request = MeasureRequest(rows, 6, ("vanilla", "pine"), ("gold-all",), True, False, 5)
    about, exact = prepare_measure(engine, request).work, Work()
    for example in rows.examples:
        exact += prepare_measure(engine, replace(request, rows=replace(rows, examples=(example,)))).work
    assert exact.prompts == about.prompts == 6 * (4 + 1)  # PINE needs one order of each
    assert about.new_tokens == exact.new_tokens
    assert about.prompt_tokens == pytest.approx(exact.prompt_tokens, rel=0.1)
    assert 0 < about.bytes_at_once <= exact.bytes_at_once


def test_four_documents_in_24_orders_share_a_machine_of_16_gb(embedded: Engine) -> None:
    request = Form(
        "retrieval_qa", "Who?", "", tuple(DEFAULT_METHODS), 48, entries_from([("", "one " * 120)] * 4)
    )
    work = prepare_shuffle(embedded, request, count=6, seed=0, controls=False).work
    assert (work.prompts, work.orders) == (96, 24) and work.prompt_tokens > 96 * 480
    assert 2**30 < work.bytes_at_once < 1.25 * 2**30
    queue = FairQueue(4, max_active=4, free_memory=lambda: 12e9)
    with ExitStack() as there:
        runs = [there.enter_context(queue.join(measure=lambda: work.bytes_at_once)) for _ in range(4)]
        assert [run.wait(0) for run in runs] == [0, 0, 0, 0]


def test_prompt_over_the_limit_is_reported_early() -> None:
    count = TokenCount((10, 20), 60, 1000)
    assert not too_many_tokens(count, 5, HostSettings(max_prompt_tokens=60))
    assert too_many_tokens(count, 5, HostSettings(max_prompt_tokens=50))


# the page


@pytest.fixture(scope="module")
def sources(source: EngineSource) -> Sources:
    return all_sources(source, None, DEFAULTS)


@pytest.fixture(scope="module")
def page(sources: Sources) -> gr.Blocks:
    return built(lambda: build_page(sources, DEFAULTS))


def counted(page: gr.Blocks, request: Form, answered: Form | None = None) -> dict[str, str]:
    """Return what the page shows of a form, by the ids of the widgets; answered: form of the answers."""
    values: list[Any] = [request.task, request.question, request.instruction, request.methods]
    values.append(request.max_new_tokens)
    cards = (AnswerCard("pine", text="x" if answered else ""),)
    answers = Shown(answered or request, cards)
    follow = function_of(page, "follow_form")
    shown = follow(None, 6, False, answers, None, *values, entries_json(request.entries))
    return {widget.elem_id: html for widget, html in shown.items() if widget.elem_id}


def test_estimate_shows_work_first_and_time_later(page: gr.Blocks, sources: Sources) -> None:
    ids = ["run-status-estimate", "shuffle-status-estimate", "sweep-status-estimate"]
    before = counted(page, form())
    assert [re.sub(r"[\d,]+ tokens", "n tokens", re.sub("<[^>]+>", "", before[name])) for name in ids] == [
        "This order: 3 prompts, n tokens; up to 15 new tokens.",
        "6 orders: 18 prompts, n tokens; up to 90 new tokens.",
        "9 prompts, n tokens.",
    ]
    for is_stopped in (True, False):
        assert sources.runs.speed("tiny").seconds(Work(prompt_tokens=1)) is None, (
            "a stopped run is no measure"
        )
        with sources.runs.recorded(run := sources.runs.new("compare")):
            run.model, run.done = "tiny", Work(1, 10, 1, 1, prefill_s=1.0, decode_s=1.0)
            run.stop.requested = is_stopped
            assert bool(run.must_end()) == is_stopped
    after = counted(page, form())
    for name, label in zip(ids, ("This order: up to", "6 orders: up to", "Estimated time:"), strict=True):
        assert re.search(rf">{label} [\d,]+ (s|min)\.<", after[name])
    alone = counted(page, replace(form(), entries=form().entries[:1]))
    assert alone["shuffle-status-estimate"] == "" != alone["run-status-estimate"]
    assert sources.runs.speed("another").seconds(Work(prompt_tokens=1)) is None


def test_invalid_form_disables_its_buttons_with_a_reason(page: gr.Blocks) -> None:
    long = replace(form(), max_new_tokens=100_000)
    assert started(page, form())["problem"] == ""
    for invalid in (replace(form(), question=" "), long):
        assert started(page, invalid)["problem"] and counted(page, invalid)["form-problem"]
    assert started(page, replace(form(), entries=form().entries[:1]))["runs_one"]
    for name in ("run-status-estimate", "shuffle-status-estimate", "sweep-status-estimate"):
        assert counted(page, form())[name] and counted(page, long)[name] == ""


def started(page: gr.Blocks, request: Form) -> dict[str, Any]:
    """Return the state of the buttons that start."""
    state: dict[str, Any] = json.loads(counted(page, request)["start"])
    return state


def test_results_of_another_question_are_stale(page: gr.Blocks) -> None:
    request = replace(form(), question=load_examples()[0].question)
    assert counted(page, request, request)["answers-stale"] == ""
    other = replace(request, question="Another?")
    shown = counted(page, other, request)
    assert shown["answers-stale"] == shown["internals-stale"] != ""
    assert "Rerun" in shown["answers-stale"]
    assert "accepted" not in shown, "older results keep their marks"
    assert "Rerun" not in counted(page, replace(other, question=""), request)["answers-stale"]
    alone = counted(page, replace(other, entries=other.entries[:1]), request)
    assert 'data-click-target="start-all"' in alone["answers-stale"]


def test_remark_of_an_example_is_shown_with_its_results(page: gr.Blocks) -> None:
    example = next(one for one in load_examples() if one.note)
    own = example.form(DEFAULT_METHODS)
    assert example.note in counted(page, own)["example-note"]
    other = replace(own, question="Another?")
    assert counted(page, other, own)["example-note"] == ""
    assert counted(page, own, other)["example-note"] == "", "it was selected during a run of another form"
    assert "example-note" not in counted(page, other, form()), "a sentence about an opened session stays"


def test_all_changes_share_one_listener(page: gr.Blocks) -> None:
    """Each listener of a field makes typing into it slower."""
    followers = [event for event in page.fns.values() if event.name == "follow_form"]
    assert len(followers) == 1 + 4  # and after each kind of run
