"""The page's public calls, for scripts and for assistants (MCP): what the command line's verbs return.

Their docstrings are what a caller reads at *Use via API*, and an assistant as the description of a tool.
"""

import inspect
import json
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypedDict

import gradio as gr
from gradio.events import api
from pydantic import ValidationError, validate_call

from pine_engine.errors import InputError, PineError
from pine_engine.methods.table import get_methods
from pine_engine.prompts.parse_errors import MAX_SHOWN, format_validation_errors
from pine_engine.prompts.prompt import Document, DocumentInput
from pine_engine.prompts.tasks import USUAL_TASK
from viz.page.api import works
from viz.page.api.results import MethodName
from viz.page.api.works import CallView
from viz.page.common.event_options import MODEL_EVENT
from viz.page.common.failures import explain
from viz.page.common.host_settings import HostSettings
from viz.page.files.data_sets import DataSet, read_brought
from viz.page.files.reading_files import FileReader, without_words
from viz.page.form.documents import entries_from
from viz.page.form.form import Form
from viz.page.form.limits import check_answer_length, check_rows
from viz.page.jobs.cost import Work
from viz.page.jobs.runner import run_on_model
from viz.page.jobs.sources import Sources

USUAL_ORDERS = ("as-is", "reversed")
"""Of /measure."""


class TitledDocument(TypedDict, total=False):
    """A document in the description of a call, where gradio has no other way to say that a title may lack."""

    text: str
    title: str


def add_api(sources: Sources, settings: HostSettings, reader: FileReader) -> None:
    """Adds /compare, /shuffle, /trace and /measure to the Blocks being built.

    settings: what the host allows, to callers as to visitors. reader: of the rows that callers send.
    """

    def compare(
        question: str,
        documents: list[DocumentInput],
        methods: list[str] | None = None,
        max_new_tokens: int = 64,
        instruction: str = "",
        answers: list[str] | None = None,
    ) -> dict[str, Any]:
        """Answer a question over documents, once with each method: vanilla as every language model does it,
        PINE and PCW so that the order of the documents cannot matter.

        Args:
            question: What is asked about the documents.
            documents: Texts, or {"title", "text"}, in the order in which the model is to see them.
            methods: Names of the method table, such as vanilla, nia, pcw, pine; the usual four if empty.
            max_new_tokens: Longest answer, in tokens.
            instruction: Comes before the documents; the usual one if empty.
            answers: Texts of which a right answer holds one; without any, nothing is said to be right.

        Returns:
            Model, dtype, and for each method the text of its answer, whether it is right, its tokens, and the
            seconds it took.
        """
        form = _form(settings, question, documents, methods, max_new_tokens, instruction)
        asked: dict[str, Any] = {"form": form, "accepted": tuple(answers or ()), "settings": settings}
        return _answer(sources, "api compare", form.methods, works.compare, works.plan_run, asked)

    def shuffle(
        question: str,
        documents: list[DocumentInput],
        methods: list[str] | None = None,
        max_new_tokens: int = 64,
        instruction: str = "",
        orders: int = 6,
        seed: int = 0,
        answers: list[str] | None = None,
    ) -> dict[str, Any]:
        """Find out whether the order of the documents changes the answer: the same question under several
        orders, each computed anew, with the answers, right or wrong, and what changes between them.

        Args:
            question: What is asked about the documents.
            documents: Texts, or {"title", "text"}.
            methods: Names of the method table; the usual four if empty.
            max_new_tokens: Longest answer, in tokens.
            instruction: Comes before the documents; the usual one if empty.
            orders: How many orders to try; up to 4 documents all orders are tried.
            seed: Of the orders that are drawn.
            answers: Texts of which a right answer holds one; without any, nothing is said to be right.

        Returns:
            For each method the different answers, how many orders are right, the largest difference of a
            logit, and whether all were equal to the last bit; and each order with every method's answer.
        """
        form = _form(settings, question, documents, methods, max_new_tokens, instruction)
        asked: dict[str, Any] = {
            "form": form,
            "count": orders,
            "seed": seed,
            "accepted": tuple(answers or ()),
            "settings": settings,
        }
        return _answer(sources, "api shuffle", form.methods, works.shuffle, works.plan_shuffle, asked)

    def trace(
        question: str,
        documents: list[DocumentInput],
        methods: list[str] | None = None,
        max_new_tokens: int = 8,
        instruction: str = "",
        arrays: bool = False,
    ) -> dict[str, Any]:
        """Look inside: at which position the model sees each document when it begins to answer, how
        important it finds it, and how its attention is shared, by layer and head.

        Args:
            question: What is asked about the documents.
            documents: Texts, or {"title", "text"}, in the order in which the model is to see them.
            methods: Names of the method table; the usual four if empty.
            max_new_tokens: Longest answer, in tokens.
            instruction: Comes before the documents; the usual one if empty.
            arrays: Every layer and head too; half a megabyte for a dozen documents.

        Returns:
            Lengths in tokens, and for each method and document where it starts, its importance (null for
            methods that do not rank) and its share of attention, over all layers and heads; with arrays,
            `starts` and `importance` [layer][head][document], `attention` [layer][head][part] too.
        """
        form = _form(settings, question, documents, methods, max_new_tokens, instruction)
        asked: dict[str, Any] = {"form": form, "arrays": arrays, "settings": settings}
        return _answer(sources, "api trace", form.methods, works.trace, works.plan_run, asked)

    def measure(
        rows: list[dict[str, Any]],
        methods: list[str] | None = None,
        orders: list[str] | None = None,
        max_new_tokens: int = 48,
    ) -> dict[str, Any]:
        """Measure a small data set: score, 95 % intervals, and how often the order changes the answer.

        Args:
            rows: Examples, each {"question", "documents", "answers", "gold_index"?, "id"?, "task"?}, all of
                one task such as judge_pair or math_reasoning; retrieval_qa if they name none.
            methods: Names of the method table, or with a wrapper around one, such as
                permutation_full:vanilla; the usual four if empty.
            orders: Of as-is, reversed, gold-first, gold-last, gold-all, swapped, shuffled:S, all; as-is and
                reversed if empty.
            max_new_tokens: Longest answer, in tokens.

        Returns:
            A summary of all methods and orders, paired over the same rows, and every single record.
        """
        chosen = tuple(methods or (row.name for row in get_methods()))
        asked: dict[str, Any] = {
            "rows": _data_set(reader, rows, settings),
            "methods": chosen,
            "orders": tuple(orders or USUAL_ORDERS),
            "max_new_tokens": max_new_tokens,
            "settings": settings,
        }
        return _answer(sources, "api measure", chosen, works.measure, works.plan_measurement, asked)

    for call in (compare, shuffle, trace, measure):
        api(_checked(call), api_name=call.__name__, **MODEL_EVENT)


def _checked(call: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """The call, with arguments as its signature has them; raises gr.Error that names those that are not."""
    checked, signature = validate_call(call), inspect.signature(call)

    @wraps(call)
    def validated(*values: Any, **named: Any) -> dict[str, Any]:
        try:
            return checked(**signature.bind(*values, **named).arguments)
        except ValidationError as error:
            raise gr.Error(
                f"The argument {'; '.join(map(str, format_validation_errors(error)[:MAX_SHOWN]))}."
            ) from error

    # What gradio describes: it knows nothing of what a Document is read from.
    if "documents" in call.__annotations__:
        validated.__annotations__ = call.__annotations__ | {
            "documents": list[str | TitledDocument],
            "methods": list[MethodName] | None,
        }
    return validated


@contextmanager
def _argument(name: str) -> Iterator[None]:
    """What is wrong with an argument is said with its name. Raises gr.Error."""
    try:
        yield
    except PineError as error:
        raise gr.Error(f"The argument {name}: {explain(error)}", print_exception=False) from error


def _form(
    settings: HostSettings,
    question: str,
    documents: list[Document],
    methods: list[str] | None,
    max_new_tokens: int,
    instruction: str,
) -> Form:
    with _argument("question"):
        if not question.strip():
            raise InputError("it is empty; write what is asked about the documents")
    with _argument("documents"):
        if not documents:
            raise InputError("it is empty; give at least one text")
    for place, document in enumerate(documents):
        with _argument(f"documents.{place}"):
            if not document.text.strip():
                raise InputError("it has no text; write some, or leave it out")
    with _argument("methods"):
        get_methods(methods or None)
    with _argument("max_new_tokens"):
        check_answer_length(max_new_tokens, settings)
    entries = entries_from([(document.title, document.text) for document in documents])
    chosen = tuple(methods or (row.name for row in get_methods()))
    return Form(USUAL_TASK, question, instruction, chosen, max_new_tokens, entries)


def _data_set(reader: FileReader, rows: list[dict[str, Any]], settings: HostSettings) -> DataSet:
    """The rows, read as those of a file are. Raises gr.Error with a sentence that names the line, from 1."""
    try:
        check_rows(len(rows), settings)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "rows.jsonl")
            file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
            return without_words(read_brought(reader, file, what="read rows", say=str))
    except Exception as error:
        raise gr.Error(explain(error), print_exception=False) from error


def _answer(
    sources: Sources,
    what: str,
    methods: Sequence[str],
    work: Callable[..., Generator[CallView, None, None]],
    plan: Callable[..., Work],
    asked: Mapping[str, Any],
) -> dict[str, Any]:
    """What the work answers, of which these are the arguments, once it is its turn and the model is there.

    One that had to end before it was done answers with what it has, and `ended`, a sentence that says why.
    Raises gr.Error with a sentence if it fails, or has nothing yet.
    """
    run = sources.runs.new(what, methods)
    progress = gr.Progress()
    answer = None

    def take(view: CallView) -> None:
        nonlocal answer
        run.done, run.complete, answer = view.done, view.is_last, view.answer or answer
        if view.progress:
            progress(view.progress, desc=view.sentence)

    steps = run_on_model(
        sources,
        run,
        lambda: sources.lease(USUAL_TASK),
        partial(work, **asked),
        plan=partial(plan, **asked),
        say=lambda sentence: None,
        show=take,
    )
    for _ in steps:
        pass
    if run.failure or answer is None:
        raise gr.Error(run.failure or run.why or "The model gave no answer.", print_exception=False)
    return answer() | ({"stop_reason": run.why} if run.why else {})
