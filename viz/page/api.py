"""The page's public calls, for scripts and for assistants (MCP): what the command line's verbs return.

Their docstrings are what a caller reads at *Use via API*, and an assistant as the description of a tool.
"""

import json
import tempfile
from collections.abc import Callable, Generator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr
from gradio.events import api

from pine_engine.errors import InputError
from pine_engine.methods import get_methods
from viz.page.data_sets import MOST_ROWS, read_set
from viz.page.documents import entries_from
from viz.page.failures import explain
from viz.page.form import Form, form_layout
from viz.page.gpu import compute
from viz.page.presence import stop_if_left, while_there
from viz.page.running import MODEL_EVENT, WAIT_S
from viz.page.source import Sources
from viz.page.speed import Work

if TYPE_CHECKING:  # importing the engine imports torch, which would keep the page waiting
    from pine_engine.engine import Engine
    from pine_engine.evaluation.examples import Example
    from pine_engine.events import RunResult
    from pine_engine.layout import TokenLayout

TASK = "retrieval_qa"
REQUEST_ID = "request"
"""The id of the one row that /shuffle reports."""

USUAL_ORDERS = ("as-is", "reversed")
"""Of /measure."""


Report = Generator[dict[str, Any] | None, None, None]
"""A report at the end; before it None again and again, so that work ends when the caller has left."""


def add_api(sources: Sources) -> None:
    """Adds /compare, /shuffle, /trace and /measure to the Blocks being built."""

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
        return _run(sources, partial(_compare, form=form), partial(_plan_answers, form=form))

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
        asked: dict[str, Any] = {"form": form, "count": orders, "seed": seed}
        return _run(sources, partial(_shuffle, **asked), partial(_plan_shuffle, **asked))

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
        return _run(sources, partial(_trace, form=form), partial(_plan_answers, form=form))

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
            methods: Names of the method table; the usual four if empty.
            orders: Of as-is, reversed, gold-first, gold-last, gold-all, swapped, shuffled:S, all; as-is and
                reversed if empty.
            max_new_tokens: Longest answer, in tokens.

        Returns:
            A summary of all methods and orders, paired over the same rows, and every single record.
        """
        asked: dict[str, Any] = {
            "rows": rows,
            "methods": methods,
            "orders": orders,
            "max_new_tokens": max_new_tokens,
        }
        return _run(sources, partial(_measure, **asked), partial(_plan_measurement, **asked))

    for call in (compare, shuffle, trace, measure):
        api(call, api_name=call.__name__, **MODEL_EVENT)


def _form(
    question: str, documents: list[str], methods: list[str] | None, max_new_tokens: int, instruction: str
) -> Form:
    entries = entries_from([("", text) for text in documents])
    chosen = tuple(methods or (row.name for row in get_methods()))
    return Form(TASK, question, instruction, chosen, max_new_tokens, entries)


def _compare(engine: "Engine", form: Form) -> Report:
    from pine_engine.report import compare_report  # imports torch, which is there by now

    layout = form_layout(form, engine)
    result = yield from _answers(engine, layout, form)
    yield compare_report(engine, result)


def _trace(engine: "Engine", form: Form) -> Report:
    from pine_engine.report import trace_report  # imports torch, as above

    layout = form_layout(form, engine)
    result = yield from _answers(engine, layout, form, trace=True)
    yield trace_report(engine, result)


def _answers(
    engine: "Engine", layout: "TokenLayout", form: Form, *, trace: bool = False
) -> "Generator[None, None, RunResult]":
    """Returns what Engine.run returns; closing it stops the model."""
    from pine_engine.events import RunDone  # imports torch, as above

    events = engine.generate(layout, methods=form.methods, max_new_tokens=form.max_new_tokens, trace=trace)
    with closing(events):
        for event in events:
            yield
            if isinstance(event, RunDone):
                result = event.result
    return result


def _measure(
    engine: "Engine",
    rows: list[dict[str, Any]],
    methods: list[str] | None,
    orders: list[str] | None,
    max_new_tokens: int,
) -> Report:
    from pine_engine.evaluation.measure import measure  # imports torch, as above
    from pine_engine.evaluation.records import Record
    from pine_engine.evaluation.summary import summarize

    records = []
    with closing(measure(engine, _examples(rows), **_options(methods, orders, max_new_tokens))) as events:
        for event in events:
            yield None
            if isinstance(event, Record):
                records.append(event)
    yield {
        "model": engine.model_name,
        "dtype": engine.dtype,
        "summary": summarize(records).model_dump(mode="json"),
        "records": [record.model_dump(mode="json") for record in records],
    }


def _options(methods: list[str] | None, orders: list[str] | None, max_new_tokens: int) -> dict[str, Any]:
    """What evaluation.measure.choose takes."""
    return {
        "methods": methods or None,
        "arrangements": orders or USUAL_ORDERS,
        "max_new_tokens": max_new_tokens,
    }


def _examples(rows: list[dict[str, Any]]) -> "tuple[Example, ...]":
    """The rows as examples, read as those of a file are. Raises InputError that names the line, from 1."""
    if len(rows) > MOST_ROWS:
        raise InputError(f"there are {len(rows)} rows, more than {MOST_ROWS}; send fewer, or use `evaluate`")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.jsonl")
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return read_set(file).examples


def _shuffle(engine: "Engine", form: Form, count: int, seed: int) -> Report:
    from pine_engine.invariance import OrderRow, compare_orders, summarize  # import torch, as above
    from pine_engine.report import verify_report
    from viz.page.shuffling import orders_for

    layout = form_layout(form, engine)
    events = compare_orders(
        engine,
        layout,
        methods=form.methods,
        orders=orders_for(layout.num_documents, count, seed),
        max_new_tokens=form.max_new_tokens,
    )
    cells = []
    with closing(events):
        for event in events:
            yield None
            if isinstance(event, OrderRow):
                cells.append(event.cells)
    yield verify_report(engine, [(REQUEST_ID, summarize(cells))])


def _plan_answers(engine: "Engine", form: Form) -> Work:
    from viz.page.planning import plan_answers  # imports torch, as above

    return plan_answers(engine, form)


def _plan_shuffle(engine: "Engine", form: Form, count: int, seed: int) -> Work:
    from viz.page.planning import plan_shuffle  # imports torch, as above

    return plan_shuffle(engine, form, count=count, seed=seed, controls=False)


def _plan_measurement(
    engine: "Engine",
    rows: list[dict[str, Any]],
    methods: list[str] | None,
    orders: list[str] | None,
    max_new_tokens: int,
) -> Work:
    from pine_engine.evaluation.measure import choose  # imports torch, as above
    from viz.page.planning import plan_measurement

    examples = _examples(rows)
    return plan_measurement(engine, examples, choose(examples, **_options(methods, orders, max_new_tokens)))


def _run(
    sources: Sources, work: "Callable[[Engine], Report]", plan: "Callable[[Engine], Work]"
) -> dict[str, Any]:
    """The report that work ends with, once it is its turn and the model is there.

    Raises gr.Error with a sentence if it fails.
    """
    try:
        with sources.line.join() as place:
            while place.wait(WAIT_S):
                stop_if_left()
            while (engine := sources.main.wait(WAIT_S)) is None:
                stop_if_left()
            *_, report = while_there(compute(engine, work, plan=plan))
    except Exception as error:
        raise gr.Error(explain(error), print_exception=False) from error
    assert report is not None
    return report
