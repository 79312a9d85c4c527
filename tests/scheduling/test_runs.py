"""Runs of a process: time limit, counters, and a log without text of visitors."""

import logging
import threading
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError
from pine_engine.scheduling.runs import SHUTTING_DOWN, Job, Runs, StopFlag
from pine_engine.scheduling.work import Speed, Work, format_seconds, planned
from tests.support.running import logged, one_run, run_views, sources_of, views_of
from viz.page.answers.answering import prepare_answers
from viz.page.form.documents import entries_from
from viz.page.form.form import Form
from viz.page.jobs.loader import EngineSource
from viz.page.position_sweep_job import prepare_sweep
from viz.page.shuffle_job import prepare_shuffle

SENTINEL = "xylophone"
FORM = Form(
    task="retrieval_qa",
    question=f"Where is the {SENTINEL}?",
    instruction=f"Answer {SENTINEL}.",
    methods=("vanilla", "pine"),
    max_new_tokens=3,
    entries=entries_from([(SENTINEL, f"a {SENTINEL} here"), ("", f"no {SENTINEL}")]),
)


# the log


def test_run_log_line_has_no_user_text(
    source: EngineSource, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)  # of all packages
    runs = Runs()
    # A caller may name a method that there is not.
    methods = (*FORM.methods, "pride:pine", SENTINEL, f"pride:{SENTINEL}")
    job = Job("compare", methods, prepare_answers, {"form": FORM})
    *_, last = sources_of(source, runs=runs).submit(job, FORM.task)[1]
    line = logged(caplog)
    assert SENTINEL in "".join(engine.decode_tokens(last.run.result.layout.ids))  # the control
    assert SENTINEL not in caplog.text
    keys = "time operation model methods prompt_tokens new_tokens orders seconds outcome shared"
    assert set(line) == set(keys.split())
    assert (line["operation"], line["model"]) == ("compare", "tiny")
    assert line["methods"] == ["vanilla", "pine", "pride:pine"]
    result = last.run.result
    assert line["prompt_tokens"] == 2 * result.layout.num_tokens
    assert line["new_tokens"] == sum(len(answer.token_ids) for answer in result.answers.values())
    assert (line["orders"], line["outcome"]) == (1, "done") and line["seconds"] > 0
    assert runs.outcomes == {"done": 1} and runs.num_open == 0


@pytest.mark.parametrize(
    ("error", "outcome", "counted"),
    [
        (InputError(f"document {SENTINEL} is empty"), "rejected", "rejected"),
        (ZeroDivisionError("1/0"), "failed: ZeroDivisionError", "failed"),
    ],
)
def test_a_failure_is_logged_by_its_class(
    error: Exception, outcome: str, counted: str, source: EngineSource, caplog: pytest.LogCaptureFixture
) -> None:

    def work(_: Engine) -> Generator[Any, None, None]:
        yield "began"
        raise error

    options = one_run()
    began, message = run_views(source, work, **options)
    assert began == "began" and message.startswith("failed: ")
    assert logged(caplog)["outcome"] == outcome and SENTINEL not in caplog.text
    assert options["runs"].outcomes == {counted: 1}


def test_run_of_disconnected_client_is_logged(source: EngineSource, caplog: pytest.LogCaptureFixture) -> None:
    options = one_run()
    views = run_views(source, lambda engine: views_of(prepare_answers, engine, FORM), **options)
    next(views)
    assert options["runs"].num_open == 1
    views.close()
    assert logged(caplog)["outcome"] == "disconnected" and options["runs"].num_open == 0


@pytest.mark.parametrize(
    ("job", "orders"),
    [
        (lambda engine: views_of(prepare_shuffle, engine, FORM, count=2, seed=0, controls=False), 2),
        (
            lambda engine: views_of(
                prepare_sweep, engine, replace(FORM, methods=("vanilla", "nia")), document=0, answer="so"
            ),
            2,
        ),
    ],
    ids=["shuffle", "sweep"],
)
def test_jobs_say_how_much_work_is_done(job: Callable[..., Any], orders: int, engine: Engine) -> None:
    amounts = [view.done for view in job(engine)]
    tokens = views_of(prepare_answers, engine, FORM)
    *_, alone = tokens
    last = amounts[-1]
    assert alone.run is not None
    assert last.orders == orders and last.prompts == 2 * orders
    assert last.prompt_tokens == last.prompts * alone.run.result.layout.num_tokens
    assert last.read_s > 0 and [one.prompts for one in amounts] == sorted(one.prompts for one in amounts)


# the end


def test_run_beyond_time_limit_ends(source: EngineSource, caplog: pytest.LogCaptureFixture) -> None:
    enough = threading.Event()

    def work(_: Engine) -> Generator[Any, None, None]:
        yield "first"
        enough.wait(0.02)
        yield "second"
        pytest.fail("the work went on")

    *views, message = run_views(source, work, **one_run(max_seconds=0.01))
    assert views == ["first", "second"], "what was computed is shown"
    assert message.startswith("Timeout: the run exceeded 0.01 s")
    assert logged(caplog)["outcome"] == "timeout"


@pytest.mark.parametrize("reason", [{"max_seconds": 0.0}, {"stop": StopFlag(requested=True)}], ids=str)
def test_run_with_all_results_is_done(
    reason: dict[str, Any], source: EngineSource, caplog: pytest.LogCaptureFixture
) -> None:
    options = one_run()
    run = options["run"]

    def work(_: Engine) -> Generator[Any, None, None]:
        yield SimpleNamespace(is_complete=False)
        vars(run).update(reason)
        yield SimpleNamespace(is_complete=True)
        yield SimpleNamespace(is_complete=True)  # such as the sentence at the end

    views = run_views(source, work, **options)
    assert [getattr(view, "is_complete", view) for view in views] == [False, True, True]
    assert logged(caplog)["outcome"] == "done"


def test_stop_before_the_queue_is_kept(source: EngineSource) -> None:
    runs, stop = Runs(), StopFlag(requested=True)  # of an earlier run
    run = runs.new("compare", (), stop)
    assert not stop.requested
    stop.requested = True  # the page offers Stop before the run is in the queue
    views = run_views(source, lambda _: endless(), runs=runs, run=run)
    assert list(views) == ["Stopped."] and runs.outcomes == {"stopped": 1}


def test_run_time_excludes_wait_for_model(engine: Engine) -> None:
    loading = threading.Event()

    def load() -> Engine:
        loading.wait(5)
        return engine

    source = EngineSource(load, "tiny")
    source.start()
    views = run_views(source, lambda _: (view for view in ["ran"]), **one_run(max_seconds=0.5))
    assert next(views).startswith("Loading")  # half a second has passed
    loading.set()
    assert [view for view in views if not view.startswith("Loading")] == ["ran"]


def test_shutdown_stops_runs_and_rejects_new_ones(source: EngineSource) -> None:
    runs = Runs()
    views = run_views(source, lambda _: endless(), runs=runs, run=runs.new("compare", ()))
    assert next(views) == 0
    assert runs.close(0.01) is False  # it goes on
    assert list(views) == [SHUTTING_DOWN]
    assert runs.wait(0)
    begun = run_views(source, lambda _: endless(), runs=runs, run=runs.new("compare", ()))
    assert list(begun) == [SHUTTING_DOWN]
    assert runs.outcomes == {"shutdown": 2}
    assert runs.close(0) is True


def endless() -> Generator[int, None, None]:
    yield from range(1000)
    pytest.fail("it went on")


def test_shutdown_waits_for_run_that_ends(source: EngineSource) -> None:
    runs = Runs()
    gate = threading.Event()

    def work(_: Engine) -> Generator[Any, None, None]:
        yield "first"
        gate.wait(5)
        yield "last"

    views = run_views(source, work, runs=runs, run=runs.new("compare", ()))
    next(views)
    closed: list[bool] = []
    closer = threading.Thread(target=lambda: closed.append(runs.close(5)))
    closer.start()
    gate.set()
    with closing(views):
        assert list(views) == ["last"]
    closer.join()
    assert closed == [True] and runs.outcomes == {"done": 1}


# how long it takes


def test_before_any_run_the_estimate_is_the_work() -> None:
    work = planned(tokens=100, methods=2, orders=6, new_tokens=48)
    assert work == Work(12, 1200, 576, orders=6)
    assert Speed().estimate(work) == "12 prompts, 1,200 tokens; up to 576 new tokens."
    assert Speed().estimate(planned(tokens=7, methods=1)) == "1 prompt, 7 tokens."


@given(st.integers(1, 10**6), st.integers(1, 10**4), st.floats(0.01, 100), st.floats(0.01, 100))
def test_speed_estimates_measured_seconds(
    prompt_tokens: int, new_tokens: int, read_s: float, seconds: float
) -> None:
    done = Work(1, prompt_tokens, new_tokens, 1, read_s, read_s / 2)
    speed = Speed()
    speed.learn(done, seconds)
    estimated = speed.seconds(done)
    assert estimated is not None and estimated == pytest.approx(seconds)
    assert speed.seconds(Work(prompt_tokens=3 * prompt_tokens)) == pytest.approx(2 * seconds)
    assert speed.estimate(done) == f"Estimated time: up to {format_seconds(estimated)}."
    assert speed.estimate(Work(1, prompt_tokens)).startswith("Estimated time: ")


def test_writing_is_not_estimated_from_reading() -> None:
    speed = Speed()
    speed.learn(Work(prompts=1, prompt_tokens=10, read_s=1.0), 1.0)
    assert speed.seconds(planned(tokens=20, methods=1)) == pytest.approx(2)
    assert "new tokens" in speed.estimate(planned(tokens=20, methods=1, new_tokens=5))


def test_an_old_speed_is_forgotten() -> None:
    speed = Speed()
    for _ in range(40):
        speed.learn(Work(prompt_tokens=10, read_s=1.0), 100.0)
    for _ in range(20):
        speed.learn(Work(prompt_tokens=10, read_s=1.0), 1.0)
    assert speed.seconds(Work(prompt_tokens=10)) == pytest.approx(1)
