"""Jobs of the page: the work that they report, and a log without text of visitors."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pine_engine.engine.engine import Engine
from pine_engine.scheduling.job import Job
from pine_engine.scheduling.runs import Runs
from tests.support.running import logged, sources_of, views_of
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
    assert last.prefill_s > 0 and [one.prompts for one in amounts] == sorted(one.prompts for one in amounts)
