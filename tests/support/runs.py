"""Finished runs of a tiny model, as the page makes them, for tests of its figures."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pine_engine import METHODS, Engine
from tests.support.running import views_of
from viz.figures.answer_tokens import AnswerTokens
from viz.page.answers.answering import prepare_answers
from viz.page.answers.order_answers import Order, OrderAnswers
from viz.page.answers.run import Run
from viz.page.form.documents import Entries, entries_from
from viz.page.form.form import Form
from viz.page.queries import query_choices

THREE = entries_from([("Varo", "red cat"), ("Senna", "green"), ("Orm", "white hats")])


def swapped(entries: Entries, slot: int) -> Entries:
    """Return the documents with those in this slot and the next one exchanged."""
    return (*entries[:slot], entries[slot + 1], entries[slot], *entries[slot + 2 :])


def form_of(entries: Entries = THREE, **changes: Any) -> Form:
    """Return a form of these documents; changes: of its other fields."""
    form = Form("retrieval_qa", "Which is green?", "Answer.", ("vanilla", "pine"), 3, entries)
    return replace(form, **changes)


def finish(engine: Engine, entries: Entries, **changes: Any) -> Run:
    """Return a run of these documents, by default under all methods."""
    *_, last = views_of(prepare_answers, engine, form_of(entries, **{"methods": tuple(METHODS)} | changes))
    assert last.run is not None
    return last.run


def with_orders(run: Run, *answers: tuple[Order, Mapping[str, AnswerTokens]]) -> Run:
    """Return the run with these answers token by token, in these orders besides its own."""
    records = {run.order: run.answer_records} | dict(answers)
    texts = {order: {name: one.text for name, one in by_name.items()} for order, by_name in records.items()}
    orders = {order: OrderAnswers(texts[order], by_name) for order, by_name in records.items()}
    orders[run.order] = replace(orders[run.order], origins=run.origins)
    return replace(run, orders=orders)


def telling_queries(run: Run, method: str) -> list[str]:
    """Return queries of each kind: all documents, and both ends of the question and of the answer."""
    values = [value for _, value in query_choices(run, method)]
    question = run.result.layout.num_documents
    answer = question + run.result.layout.suffix_length
    return [*values[: question + 2], values[answer - 1], values[answer], values[-1]]
