"""API endpoints for scripts and assistants (MCP), with the results of the subcommands.

Their docstrings are shown under *Use via API* and as MCP tool descriptions.
"""

import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, TypedDict, TypeVar

import gradio as gr
from gradio.events import api
from pydantic import ValidationError, validate_call

from pine_engine.additions import find_addition
from pine_engine.endpoint import NO_INTERNALS
from pine_engine.errors import InputError, PineError
from pine_engine.methods.table import Method, get_methods
from pine_engine.prompts.chat_templates import dump_kwargs
from pine_engine.prompts.parse_errors import MAX_SHOWN, format_validation_errors
from pine_engine.prompts.prompt import Document, DocumentInput
from pine_engine.prompts.tasks import USUAL_TASK
from pine_engine.prompts.untrusted_json import ListInput
from pine_engine.scheduling.runs import Job
from viz.page.answers.answering import prepare_answers
from viz.page.api.result import ApiResult
from viz.page.api.results import MethodName, compared, left_out, shuffled, traced
from viz.page.common.failures import explain
from viz.page.common.host_settings import HostSettings
from viz.page.common.widgets import MODEL_EVENT
from viz.page.files.reading_files import FileReader
from viz.page.form.checks import check_answer_length
from viz.page.form.documents import entries_from
from viz.page.form.form import Form
from viz.page.internals_jobs import prepare_answers_left_out
from viz.page.jobs.sources import Sources
from viz.page.shuffle_job import prepare_shuffle

PROGRESS_S = 1.0  # seconds between two messages of progress to a client


View = TypeVar("View")  # of a job, with its sentence and its progress


class TitledDocument(TypedDict, total=False):
    """Document in the API schema, where gradio has no other way to mark the title as optional."""

    text: str
    title: str


def add_api(sources: Sources, settings: HostSettings, reader: FileReader) -> None:
    """Add the API calls to the Blocks that are being built, also those of `viz.lab`."""

    def compare(
        question: str,
        documents: ListInput[DocumentInput],
        methods: ListInput[str] | None = None,
        max_new_tokens: int = 64,
        instruction: str = "",
        answers: ListInput[str] | None = None,
        chat_template_kwargs: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Answer a question about documents with each method.

        Vanilla is the unmodified model; PINE and PCW are invariant to document order.

        Args:
            question: Question about the documents.
            documents: Documents in prompt order, as text or {"title", "text"}.
            methods: Method names, such as vanilla, nia, pcw, pine. Default: these four.
            max_new_tokens: Maximum number of new tokens.
            instruction: Instruction before the documents. Default: the instruction of the task.
            answers: Accepted answers. A correct answer contains one as whole words. Default: no scoring.
            chat_template_kwargs: Arguments of the chat template. Default: none.

        Returns:
            Model, dtype, and for each method the text of its answer, its correctness, tokens and times.
        """
        form = _form(sources, question, documents, methods, max_new_tokens, instruction, chat_template_kwargs)
        report = partial(compared, accepted=tuple(answers or ()))
        run = {"form": form, "settings": settings, "trace": False}
        return answer_job(sources, Job("api compare", form.methods, prepare_answers, run), report)

    def shuffle(
        question: str,
        documents: ListInput[DocumentInput],
        methods: ListInput[str] | None = None,
        max_new_tokens: int = 64,
        instruction: str = "",
        orders: int = 6,
        seed: int = 0,
        answers: ListInput[str] | None = None,
        chat_template_kwargs: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Test whether document order changes the answer.

        Runs several orders independently and compares answers and logits.

        Args:
            question: Question about the documents.
            documents: Documents, as text or {"title", "text"}.
            methods: Method names. Default: vanilla, nia, pcw, pine.
            max_new_tokens: Maximum number of new tokens.
            instruction: Instruction before the documents. Default: the instruction of the task.
            orders: Number of orders; up to 4 documents, all orders are run.
            seed: Random seed for the orders.
            answers: Accepted answers. A correct answer contains one as whole words. Default: no scoring.
            chat_template_kwargs: Arguments of the chat template. Default: none.

        Returns:
            For each method the distinct answers, the number of correct orders, the maximum logit difference
            and bitwise identity; and each order with the answer of every method.
        """
        form = _form(sources, question, documents, methods, max_new_tokens, instruction, chat_template_kwargs)
        run = {"form": form, "settings": settings, "trace": False}
        run |= {"count": orders, "seed": seed, "controls": False}
        report = partial(shuffled, accepted=tuple(answers or ()))
        return answer_job(sources, Job("api shuffle", form.methods, prepare_shuffle, run), report)

    def trace(
        question: str,
        documents: ListInput[DocumentInput],
        methods: ListInput[str] | None = None,
        max_new_tokens: int = 8,
        instruction: str = "",
        arrays: bool = False,
        chat_template_kwargs: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return document positions, importance and attention shares at the first answer token.

        Args:
            question: Question about the documents.
            documents: Documents in prompt order, as text or {"title", "text"}.
            methods: Method names. Default: vanilla, nia, pcw, pine.
            max_new_tokens: Maximum number of new tokens.
            instruction: Instruction before the documents. Default: the instruction of the task.
            arrays: Include per-layer and per-head arrays (about 0.5 MB for 12 documents).
            chat_template_kwargs: Arguments of the chat template. Default: none.

        Returns:
            Lengths in tokens, and for each method and document its start position, importance (null for
            methods without ranking) and attention share, over all layers and heads; with arrays, also
            `starts` and `importance` [layer][head][document] and `attention` [layer][head][segment].
        """
        if settings.endpoint:
            raise gr.Error(NO_INTERNALS, print_exception=False)
        form = _form(sources, question, documents, methods, max_new_tokens, instruction, chat_template_kwargs)
        report, run = partial(traced, arrays=arrays), {"form": form, "settings": settings}
        return answer_job(sources, Job("api trace", form.methods, prepare_answers, run), report)

    def leave_one_out(
        question: str,
        documents: ListInput[DocumentInput],
        methods: ListInput[str] | None = None,
        max_new_tokens: int = 16,
        instruction: str = "",
        chat_template_kwargs: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Answer a question, then measure how much each answer depends on each document.

        Scores each method's own answer again without one document at a time.

        Args:
            question: Question about the documents.
            documents: Two or more documents in prompt order, as text or {"title", "text"}.
            methods: Method names, such as vanilla, nia, pcw, pine. Default: these four.
            max_new_tokens: Maximum number of new tokens.
            instruction: Instruction before the documents. Default: the instruction of the task.
            chat_template_kwargs: Arguments of the chat template. Default: none.

        Returns:
            For each method its answer, the log-probability of this answer with all documents, and how much
            it falls without each document, in nats.
        """
        if settings.endpoint:
            raise gr.Error(NO_INTERNALS, print_exception=False)
        form = _form(sources, question, documents, methods, max_new_tokens, instruction, chat_template_kwargs)
        run = {"form": form, "settings": settings}
        job = Job("api leave one out", form.methods, prepare_answers_left_out, run)
        return answer_job(sources, job, left_out)

    added = (make(sources, settings, reader) for make in find_addition("viz.lab.page", "api_calls", tuple)())
    for call in (compare, shuffle, trace, leave_one_out, *added):
        api(_checked(call), api_name=call.__name__, **MODEL_EVENT)


def _checked(call: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Wrap a call with validation of its arguments. Raises gr.Error that names invalid ones."""
    checked, signature = validate_call(call), inspect.signature(call)

    @wraps(call)
    def validated(*values: Any, **named: Any) -> dict[str, Any]:
        try:
            return checked(**signature.bind(*values, **named).arguments)
        except ValidationError as error:
            problems = format_validation_errors(error, as_json=True)[:MAX_SHOWN]
            raise gr.Error(f"Invalid argument {'; '.join(map(str, problems))}.") from error

    # For the schema of gradio, which has no description of the inputs of a Document.
    if "documents" in call.__annotations__:
        validated.__annotations__ = call.__annotations__ | {
            "documents": list[str | TitledDocument],
            "methods": list[MethodName] | None,
        }
    return validated


@contextmanager
def name_argument(name: str) -> Iterator[None]:
    """Raise gr.Error with the name of the argument for any error in the block."""
    try:
        yield
    except PineError as error:
        raise gr.Error(f"Invalid argument {name}: {explain(error)}", print_exception=False) from error


def select_methods(sources: Sources, methods: list[str] | None) -> tuple[Method, ...]:
    """Return the named methods, or the default ones that fit the model of the host, if it is loaded."""
    engine = sources.now(USUAL_TASK) if sources.main.status.stage == "ready" else None
    return engine.select_methods(methods or None) if engine else get_methods(methods or None)


def _form(
    sources: Sources,
    question: str,
    documents: list[Document],
    methods: list[str] | None,
    max_new_tokens: int,
    instruction: str,
    chat_template_kwargs: dict[str, Any] | None,
) -> Form:
    with name_argument("question"):
        if not question.strip():
            raise InputError("must not be empty.")
    with name_argument("documents"):
        if not documents:
            raise InputError("expected at least one document.")
    for place, document in enumerate(documents):
        with name_argument(f"documents[{place}]"):
            if not document.text.strip():
                raise InputError("text is empty. Add text or omit it.")
    with name_argument("methods"):
        chosen = tuple(method.name for method in select_methods(sources, methods))
    with name_argument("max_new_tokens"):
        check_answer_length(max_new_tokens)
    entries = entries_from([(document.title, document.text) for document in documents])
    kwargs = dump_kwargs(chat_template_kwargs)
    return Form(USUAL_TASK, question, instruction, chosen, max_new_tokens, entries, kwargs)


def answer_job(
    sources: Sources, job: Job, report: Callable[[View], ApiResult | None], task: str = USUAL_TASK
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
    stop_reason = {"stop_reason": why} if why else {}
    return result.model_dump(mode="json", exclude={"stop_reason"}) | stop_reason
