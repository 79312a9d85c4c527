"""The page's public calls, for scripts and for assistants (MCP): what the command line's verbs return.

Their docstrings are what a caller reads at *Use via API*, and an assistant as the description of a tool.
"""

import inspect
import json
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr
from gradio.events import api
from pydantic import ValidationError, validate_call

from pine_engine.engine.events import RunDone, RunResult
from pine_engine.errors import InputError
from pine_engine.methods.table import get_methods
from viz.page.answers.answering import plan_answers
from viz.page.common.failures import explain, first_problem
from viz.page.common.host_settings import HostSettings
from viz.page.files.data_sets import DataSet, read_brought
from viz.page.files.reading_files import FileReader, without_words
from viz.page.form.checks import form_layout
from viz.page.form.documents import entries_from
from viz.page.form.form import Form
from viz.page.form.limits import check_rows
from viz.page.jobs.cost import Work
from viz.page.jobs.metering import Meter
from viz.page.jobs.presence import listener, stop_if_left, visitor, while_there
from viz.page.jobs.run_log import Run
from viz.page.jobs.running import MODEL_EVENT, WAIT_S
from viz.page.jobs.sources import Sources
from viz.page.jobs.zerogpu import compute

if TYPE_CHECKING:  # importing the engine imports torch, which would keep the page waiting
    from pine_engine.engine.engine import Engine
    from pine_engine.evaluation.records import Record
    from viz.page.measure.measuring import Asked

TASK = "retrieval_qa"
REQUEST_ID = "request"
"""The id of the one row that /shuffle reports."""

USUAL_ORDERS = ("as-is", "reversed")
"""Of /measure."""


@dataclass(frozen=True)
class Told:
    """How far a call is, which can be pickled. done: the work so far. last: whether that is all.

    answer: makes the answer, of what is done so far; None before there is any.
    """

    done: Work
    answer: Callable[[], dict[str, Any]] | None = None
    last: bool = False


def add_api(sources: Sources, settings: HostSettings, reader: FileReader) -> None:
    """Adds /compare, /shuffle, /trace and /measure to the Blocks being built.

    settings: what the host allows, to callers as to visitors. reader: of the rows that callers send.
    """

    def compare(
        question: str,
        documents: list[str],
        methods: list[str] | None = None,
        max_new_tokens: int = 64,
        instruction: str = "",
    ) -> dict[str, Any]:
        """Answer a question over documents, once with each method: vanilla as every language model does it,
        PINE and PCW so that the order of the documents cannot matter.

        Args:
            question: What is asked about the documents.
            documents: Their texts, in the order in which the model is to see them.
            methods: Names of the method table, such as vanilla, nia, pcw, pine; the usual four if empty.
            max_new_tokens: Longest answer, in tokens.
            instruction: Comes before the documents; the usual one if empty.

        Returns:
            Model, dtype, and for each method the text of its answer, its tokens, and the seconds it took.
        """
        form = _form(question, documents, methods, max_new_tokens, instruction)
        asked: dict[str, Any] = {"form": form, "settings": settings}
        work, plan = partial(_compare, **asked), partial(plan_answers, **asked)
        return _run(sources, "api compare", form.methods, work, plan)

    def shuffle(
        question: str,
        documents: list[str],
        methods: list[str] | None = None,
        max_new_tokens: int = 64,
        instruction: str = "",
        orders: int = 6,
        seed: int = 0,
    ) -> dict[str, Any]:
        """Find out whether the order of the documents changes the answer: the same question under several
        orders, each computed anew, with the number of different answers and the largest change of a logit.

        Args:
            question: What is asked about the documents.
            documents: Their texts.
            methods: Names of the method table; the usual four if empty.
            max_new_tokens: Longest answer, in tokens.
            instruction: Comes before the documents; the usual one if empty.
            orders: How many orders to try; up to 4 documents all orders are tried.
            seed: Of the orders that are drawn.

        Returns:
            For each method the orders tried, the different answers, the largest difference of a logit, and
            whether all were equal to the last bit.
        """
        form = _form(question, documents, methods, max_new_tokens, instruction)
        asked: dict[str, Any] = {"form": form, "count": orders, "seed": seed, "settings": settings}
        work, plan = partial(_shuffle, **asked), partial(_plan_shuffle, **asked)
        return _run(sources, "api shuffle", form.methods, work, plan)

    def trace(
        question: str,
        documents: list[str],
        methods: list[str] | None = None,
        max_new_tokens: int = 8,
        instruction: str = "",
    ) -> dict[str, Any]:
        """Look inside: at which position the model sees each document when it begins to answer, how
        important it finds it, and how its attention is shared, by layer and head.

        Args:
            question: What is asked about the documents.
            documents: Their texts, in the order in which the model is to see them.
            methods: Names of the method table; the usual four if empty.
            max_new_tokens: Longest answer, in tokens.
            instruction: Comes before the documents; the usual one if empty.

        Returns:
            Lengths in tokens, and for each method `starts` [layer][head][document], `importance` alike
            (null for methods that do not rank) and `attention` [layer][head][prefix, documents, suffix].
        """
        form = _form(question, documents, methods, max_new_tokens, instruction)
        asked: dict[str, Any] = {"form": form, "settings": settings}
        work, plan = partial(_trace, **asked), partial(plan_answers, **asked)
        return _run(sources, "api trace", form.methods, work, plan)

    def measure(
        rows: list[dict[str, Any]],
        methods: list[str] | None = None,
        orders: list[str] | None = None,
        max_new_tokens: int = 48,
    ) -> dict[str, Any]:
        """Measure a small data set: score, 95 % intervals, and how often the order changes the answer.

        Args:
            rows: Examples, each {"id", "task", "question", "documents": [{"text", "title"?}], "gold_index"?,
                "answers"}, all of one task such as retrieval_qa, judge_pair or math_reasoning.
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
        work, plan = partial(_measure, **asked), partial(_plan_measurement, **asked)
        return _run(sources, "api measure", chosen, work, plan)

    for call in (compare, shuffle, trace, measure):
        api(_checked(call), api_name=call.__name__, **MODEL_EVENT)


def _checked(call: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """The call, with arguments as its signature has them; raises gr.Error that names one that is not."""
    checked, signature = validate_call(call), inspect.signature(call)

    @wraps(call)
    def validated(*values: Any, **named: Any) -> dict[str, Any]:
        try:
            return checked(**signature.bind(*values, **named).arguments)
        except ValidationError as error:
            raise gr.Error(f"The argument {first_problem(error)}.") from error

    return validated


def _form(
    question: str, documents: list[str], methods: list[str] | None, max_new_tokens: int, instruction: str
) -> Form:
    entries = entries_from([("", text) for text in documents])
    chosen = tuple(methods or (row.name for row in get_methods()))
    return Form(TASK, question, instruction, chosen, max_new_tokens, entries)


def _compare(engine: "Engine", form: Form, settings: HostSettings) -> Generator[Told, None, None]:
    from pine_engine.console.json_reports import compare_report  # imports torch, which is there by now

    return _answers(engine, form, settings, compare_report)


def _trace(engine: "Engine", form: Form, settings: HostSettings) -> Generator[Told, None, None]:
    from pine_engine.console.json_reports import trace_report  # imports torch, as above

    return _answers(engine, form, settings, trace_report, trace=True)


def _answers(
    engine: "Engine",
    form: Form,
    settings: HostSettings,
    report: "Callable[[Engine, RunResult], dict[str, Any]]",
    *,
    trace: bool = False,
) -> Generator[Told, None, None]:
    layout = form_layout(form, engine, settings)
    meter = Meter(layout.num_tokens)
    events = engine.generate(layout, methods=form.methods, max_new_tokens=form.max_new_tokens, trace=trace)
    with closing(events):
        for event in events:
            meter.see(event)
            if isinstance(event, RunDone):
                meter.finish(event.result)
                yield Told(meter.work, partial(dict, report(engine, event.result)), last=True)
            else:
                yield Told(meter.work)


def _shuffle(
    engine: "Engine", form: Form, count: int, seed: int, settings: HostSettings
) -> Generator[Told, None, None]:
    from pine_engine.console.json_reports import verify_report
    from pine_engine.invariance.orders import OrderRow, compare_orders, summarize  # import torch, as above
    from viz.page.shuffle.shuffling import orders_for

    layout = form_layout(form, engine, settings)
    orders = orders_for(layout.num_documents, count, seed, settings)
    meter = Meter(layout.num_tokens)
    cells = []
    events = compare_orders(
        engine, layout, methods=form.methods, orders=orders, max_new_tokens=form.max_new_tokens
    )
    with closing(events):
        for event in events:
            if isinstance(event, OrderRow):
                meter.finish(event.result)
                cells.append(event.cells)
                report = verify_report(engine, [(REQUEST_ID, summarize(cells))])
                yield Told(meter.work, partial(dict, report), last=len(cells) == len(orders))
            else:
                meter.see(event)
                yield Told(meter.work)


def _measure(
    engine: "Engine",
    rows: DataSet,
    methods: tuple[str, ...],
    orders: tuple[str, ...],
    max_new_tokens: int,
    settings: HostSettings,
) -> Generator[Told, None, None]:
    from pine_engine.evaluation.records import Record  # imports torch, as above
    from viz.page.measure.measuring import measured_events, work_of

    asked = _asked(rows, methods, orders, max_new_tokens, settings)
    records: list[Record] = []
    planned = asked.num_records(settings)
    with closing(measured_events(engine, asked, settings)) as events:
        for event in events:
            if isinstance(event, Record):
                records.append(event)
            done = tuple(records)
            answer = partial(_measured, engine.model_name, engine.dtype, done) if done else None
            yield Told(work_of(done), answer, last=len(done) == planned)


def _measured(model: str, dtype: str, records: "Sequence[Record]") -> dict[str, Any]:
    from pine_engine.evaluation.summary.summarize import summarize  # imports torch, as above

    return {
        "model": model,
        "dtype": dtype,
        "summary": summarize(records).model_dump(mode="json"),
        "records": [record.model_dump(mode="json") for record in records],
    }


def _asked(
    rows: DataSet,
    methods: tuple[str, ...],
    orders: tuple[str, ...],
    max_new_tokens: int,
    settings: HostSettings,
) -> "Asked":
    from viz.page.measure.measuring import Asked  # imports torch, as above

    return Asked(
        rows=rows,
        limit=len(rows.examples),
        methods=methods,
        orders=orders,
        generate=True,
        logprobs=True,
        max_new_tokens=max_new_tokens,
    )


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


def _plan_shuffle(engine: "Engine", form: Form, count: int, seed: int, settings: HostSettings) -> Work:
    from viz.page.shuffle.shuffling import plan_shuffle  # imports torch, as above

    return plan_shuffle(engine, form, count=count, seed=seed, controls=False, settings=settings)


def _plan_measurement(engine: "Engine", settings: HostSettings, **rows: Any) -> Work:
    from viz.page.measure.measuring import plan_measurement  # imports torch, as above

    asked = _asked(**rows, settings=settings)
    return plan_measurement(engine, asked.examples, asked.settings(settings))


def _run(
    sources: Sources,
    what: str,
    methods: Sequence[str],
    work: "Callable[[Engine], Generator[Told, None, None]]",
    plan: "Callable[[Engine], Work]",
) -> dict[str, Any]:
    """What the work answers, once it is its turn and the model is there.

    One that had to end before it was done answers with what it has, and `ended`, a sentence that says why.
    Raises gr.Error with a sentence if it fails, or has nothing yet.
    """
    runs, answer = sources.runs, None
    run = runs.new(what, methods)
    try:
        with runs.watched(run), sources.line.join(visitor(), listener()) as place:
            while place.wait(WAIT_S):
                _go_on(run)
            while (engine := sources.main.wait(WAIT_S)) is None:
                _go_on(run)
            run.start(engine)
            for told in while_there(compute(engine, work, plan=plan)):
                run.done, answer = told.done, told.answer or answer
                if not told.last and run.over():
                    break
            if answer is None:
                raise InputError(run.why or "The model gave no answer.")
            return answer() | ({"ended": run.why} if run.why else {})
    except Exception as error:
        raise gr.Error(explain(error), print_exception=False) from error


def _go_on(run: Run) -> None:
    """Raises Cancelled once the caller has left, and InputError if the run must end."""
    stop_if_left()
    if why := run.over():
        raise InputError(why)
