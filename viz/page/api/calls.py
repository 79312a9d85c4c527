"""API endpoints for scripts and assistants (MCP), with the results of the subcommands.

Their docstrings, with those of their arguments, are shown under *Use via API* and as MCP tool descriptions.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import gradio as gr
from gradio.events import api
from pydantic import BaseModel

from pine_engine.additions import find_addition
from pine_engine.errors import InputError
from pine_engine.prompts.tasks import USUAL_TASK
from pine_engine.scheduling.job import Job, PreparedJob
from viz.page.answers.answering import prepare_answers
from viz.page.answers.shown import Shown
from viz.page.api.arguments import Host, LeftOutQuestion, ScoredQuestion, ShuffledQuestion, TracedQuestion
from viz.page.api.functions import api_function
from viz.page.api.reports import compared, left_out, shuffled, traced
from viz.page.common.failures import explain
from viz.page.common.host_settings import HostSettings
from viz.page.common.widgets import MODEL_EVENT
from viz.page.form.form import Form
from viz.page.internals.left_out_job import prepare_answers_left_out
from viz.page.jobs.sources import Sources
from viz.page.shuffle_job import prepare_shuffle

if TYPE_CHECKING:  # imports torch
    from pine_engine.backend import Backend

PROGRESS_S = 1.0  # seconds between two messages of progress to a client

View = TypeVar("View")  # of a job, with its sentence and its progress


def compare(host: Host, request: ScoredQuestion) -> dict[str, Any]:
    """Answer a question about documents with each method.

    Vanilla is the unmodified model; PINE and PCW are invariant to document order.

    Returns:
        Model, dtype, and for each method the text of its answer, its correctness, tokens and times.
    """
    form = request.form(host)
    run = {"form": form, "settings": host.settings, "trace": False}
    report = partial(compared, accepted=tuple(request.answers or ()))
    return answer_job(host.sources, Job("api compare", form.methods, prepare_answers, run), report)


def shuffle(host: Host, request: ShuffledQuestion) -> dict[str, Any]:
    """Test whether document order changes the answer.

    Runs several orders independently and compares answers and logits.

    Returns:
        For each method the distinct answers, the number of correct orders, the maximum logit difference
        and bitwise identity; and each order with the answer of every method.
    """
    form = request.form(host)
    run = {"form": form, "settings": host.settings, "trace": False}
    run |= {"count": request.orders, "seed": request.seed, "controls": False}
    report = partial(shuffled, accepted=tuple(request.answers or ()))
    return answer_job(host.sources, Job("api shuffle", form.methods, prepare_shuffle, run), report)


def trace(host: Host, request: TracedQuestion) -> dict[str, Any]:
    """Return document positions, importance and attention shares at the first answer token.

    Returns:
        Lengths in tokens, and for each method and document its start position, importance (null for
        methods without ranking) and attention share, over all layers and heads; with arrays, also
        `starts` and `importance` [layer][head][document] and `attention` [layer][head][segment].
    """
    form = request.form(host)
    report, run = partial(traced, arrays=request.arrays), {"form": form, "settings": host.settings}
    return answer_job(host.sources, Job("api trace", form.methods, prepare_traces, run), report)


def leave_one_out(host: Host, request: LeftOutQuestion) -> dict[str, Any]:
    """Answer a question, then measure how much each answer depends on each document.

    Scores each method's own answer again without one document at a time. Takes two or more documents.

    Returns:
        For each method its answer, the log-probability of this answer with all documents, and how much
        it falls without each document, in nats.
    """
    form = request.form(host)
    run = {"form": form, "settings": host.settings}
    job = Job("api leave one out", form.methods, prepare_answers_left_out, run)
    return answer_job(host.sources, job, left_out)


def prepare_traces(engine: "Backend", form: Form, settings: HostSettings) -> PreparedJob[Shown]:
    """Plan traced answers. Raises InputError for a model that returns no traces."""
    if reason := engine.misfit("traces"):
        raise InputError(reason)
    return prepare_answers(engine, form, settings)


Call = tuple[Callable[[Host, Any], dict[str, Any]], type[BaseModel]]
"""Function of a call, whose name is that of the endpoint, and the model of its arguments."""

CALLS: tuple[Call, ...] = (
    (compare, ScoredQuestion),
    (shuffle, ShuffledQuestion),
    (trace, TracedQuestion),
    (leave_one_out, LeftOutQuestion),
)


def all_calls() -> tuple[Call, ...]:
    """Return the calls of the page and of `viz.lab`."""
    added: tuple[Call, ...] = find_addition("viz.lab.page", "api_calls", tuple)()
    return (*CALLS, *added)


def add_api(host: Host) -> None:
    """Add the calls to the Blocks that are being built."""
    for compute, arguments in all_calls():
        api(api_function(compute, arguments, host), api_name=compute.__name__, **MODEL_EVENT)


def answer_job(
    sources: Sources, job: Job, report: Callable[[View], dict[str, Any] | None], task: str = USUAL_TASK
) -> dict[str, Any]:
    """Run the job on the model of a task and report its last view; see `stop_reason` for an early end.

    Raises gr.Error if the run fails or has no result yet.
    """
    run, steps = sources.submit(job, task)
    progress = gr.Progress()
    last: View | None = None
    informed, failure = 0.0, ""
    try:
        for step in steps:
            if isinstance(step, str):
                continue
            last = step
            if time.monotonic() - informed >= PROGRESS_S:
                informed = time.monotonic()
                progress(step.progress, desc=step.sentence)
    except Exception as error:
        failure = explain(error)
    why = run.end.sentence if run.end else ""
    result = None if failure or last is None else report(last)
    if result is None:
        raise gr.Error(failure or why or "The run produced no answer.", print_exception=False)
    return result | ({"stop_reason": why} if why else {})
