"""From the answers on the page to a record, and from a record to answers on the page."""

from dataclasses import replace
from itertools import islice
from typing import Any

from viz.cards.answers import AnswerCard
from viz.page.answers.record import Results, RunRecord, record_of, results_in
from viz.page.answers.run import Run
from viz.page.answers.shown import Inputs, Shown
from viz.page.common.limits import MAX_ORDERS

MAX_SHARED_ORDERS = 24  # of a link


def record_of_run(run: Run, **others: Any) -> RunRecord:
    """Return the record of a run, with as many of its orders as a record may have.

    others: further fields of the record, such as the accepted answers.
    """
    results = results_in(run.form.methods, dict(islice(run.orders.items(), MAX_ORDERS)))
    answers = []
    for answer in results.answers:
        found, traced = run.result.answers[answer.method], run.answer_records.get(answer.method)
        known = {"num_tokens": found.num_tokens, "thinking": found.thinking, "times": found.times}
        if traced:
            known |= {"token_ids": traced.token_ids, "tokens": traced.tokens, "logprobs": traced.logprobs}
        answers.append(answer.model_copy(update=known))
    facts = {"model": run.model, "dtype": run.dtype, "revision": run.revision, "source": run.source}
    record = record_of(run.form, ran=True, **facts, **others)
    return record.model_copy(update={"results": results.model_copy(update={"answers": tuple(answers)})})


def results_of(shown: Shown, now: Inputs) -> Results | None:
    """Return the answers on the page to these inputs, except precomputed ones; None if there are none.

    Further orders than the maximum are left out.
    """
    methods, answers = now[0].methods, shown.orders
    orders = [one for one in shown.finished_orders(now, methods) if answers[one].source != "recorded"]
    kept = {order: answers[order] for order in orders[:MAX_SHARED_ORDERS]}
    return results_in(methods, kept) if kept else None


def shown_of(record: RunRecord) -> Shown:
    """Return the answers of a record with results as those on the page, marked as not of this session."""
    assert record.results
    orders, form = record.by_order(), record.form
    order = form.order if form.order in orders else record.results.orders[0]
    lettered = {entry.letter: entry for entry in form.entries}
    form = replace(form, entries=tuple(lettered[letter] for letter in order))
    cards = tuple(
        AnswerCard(method, state="finished", text=orders[order].texts[method], source=record.source)
        for method in form.methods
    )
    return Shown(form, cards, earlier=orders)
