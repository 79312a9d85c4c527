"""The page's two public calls, for scripts: what the command line's compare and verify return."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gradio as gr
from gradio.events import api

from pine_engine.methods import get_methods
from viz.page.documents import entries_from
from viz.page.failures import explain
from viz.page.form import Form, form_layout
from viz.page.running import MODEL_EVENT
from viz.page.source import EngineSource

if TYPE_CHECKING:  # importing the engine imports torch, which would keep the page waiting
    from pine_engine.engine import Engine

TASK = "retrieval_qa"
REQUEST_ID = "request"
"""The id of the one row that /shuffle reports."""


def add_api(source: EngineSource) -> None:
    """Adds /compare and /shuffle to the Blocks being built."""

    def compare(
        question: str,
        documents: list[str],
        methods: list[str] | None = None,
        max_new_tokens: int = 64,
        instruction: str = "",
    ) -> dict[str, Any]:
        """One answer per method to a question over documents.

        methods: names of the method table, all if empty. max_new_tokens: longest answer, in tokens.
        instruction: comes before the documents; empty for the usual one.
        """
        form = _form(question, documents, methods, max_new_tokens, instruction)
        return _run(source, lambda engine: _compare(engine, form))

    def shuffle(
        question: str,
        documents: list[str],
        methods: list[str] | None = None,
        max_new_tokens: int = 64,
        instruction: str = "",
        orders: int = 6,
        seed: int = 0,
    ) -> dict[str, Any]:
        """The same question under several orders of the documents, each computed anew and compared.

        orders, seed: how many orders and which; up to 4 documents all orders are tried.
        """
        form = _form(question, documents, methods, max_new_tokens, instruction)
        return _run(source, lambda engine: _shuffle(engine, form, orders, seed))

    api(compare, api_name="compare", **MODEL_EVENT)
    api(shuffle, api_name="shuffle", **MODEL_EVENT)


def _form(
    question: str, documents: list[str], methods: list[str] | None, max_new_tokens: int, instruction: str
) -> Form:
    entries = entries_from([("", text) for text in documents])
    chosen = tuple(methods or (row.name for row in get_methods()))
    return Form(TASK, question, instruction, chosen, max_new_tokens, entries)


def _compare(engine: "Engine", form: Form) -> dict[str, Any]:
    from pine_engine.report import compare_report  # imports torch, which is there by now

    layout = form_layout(form, engine)
    result = engine.run(layout, methods=form.methods, max_new_tokens=form.max_new_tokens)
    return compare_report(engine, result)


def _shuffle(engine: "Engine", form: Form, count: int, seed: int) -> dict[str, Any]:
    from pine_engine.invariance import OrderRow, compare_orders, summarize  # import torch, as above
    from pine_engine.report import verify_report
    from viz.page.shuffling import orders_for

    layout = form_layout(form, engine)
    rows = compare_orders(
        engine,
        layout,
        methods=form.methods,
        orders=orders_for(layout.num_documents, count, seed),
        max_new_tokens=form.max_new_tokens,
    )
    cells = [row.cells for row in rows if isinstance(row, OrderRow)]
    return verify_report(engine, [(REQUEST_ID, summarize(cells))])


def _run(source: EngineSource, work: "Callable[[Engine], dict[str, Any]]") -> dict[str, Any]:
    """What work(engine) returns, once the model is there. Raises gr.Error with a sentence if it fails."""
    try:
        while (engine := source.wait(1)) is None:
            pass
        return work(engine)
    except Exception as error:
        raise gr.Error(explain(error)) from error
