"""From the answers on the page to a record, and from a record to answers on the page."""

from dataclasses import replace
from itertools import islice
from typing import Any

from viz.cards.answers import AnswerCard
from viz.page.answers.record import RunRecord, record_of, with_answers
from viz.page.answers.run import Run
from viz.page.answers.shown import Shown
from viz.page.common.limits import MAX_ORDERS

MAX_SHARED_ORDERS = 24  # of a link


def record_of_run(run: Run, **others: Any) -> RunRecord:
    """Return the record of a run, with as many of its orders as a record may have.

    others: further fields of the record, such as the accepted answers.
    """
    facts = {"model": run.model, "dtype": run.dtype, "revision": run.revision, "source": run.source}
    orders = dict(islice(run.orders.items(), MAX_ORDERS))
    record = with_answers(record_of(run.form, ran=True, **facts, **others), orders)
    answers = []
    for answer in record.answers:
        found, traced = run.result.answers[answer.method], run.answer_records.get(answer.method)
        known = {"num_tokens": found.num_tokens, "thinking": found.thinking, "times": found.times}
        if traced:
            known |= {"token_ids": traced.token_ids, "tokens": traced.tokens, "logprobs": traced.logprobs}
        answers.append(answer.model_copy(update=known))
    return record.model_copy(update={"answers": tuple(answers)})


def share_answers(session: RunRecord, shown: Shown) -> RunRecord:
    """Return a session with the answers on the page to its inputs, except precomputed ones.

    Further orders than the maximum are left out. The session names the model if all answers are of one.
    """
    answers = shown.orders
    orders = shown.finished_orders((session.form, shown.model), session.methods)
    live = [order for order in orders if answers[order].source != "recorded"]
    kept = {order: answers[order] for order in live[:MAX_SHARED_ORDERS]}
    if not kept:
        return session
    own = session.model, session.dtype, session.revision
    models = {one.model or own for one in kept.values()}
    names = models.pop() if len(models) == 1 else ("", "", "")
    facts = dict(zip(("model", "dtype", "revision"), names, strict=True))
    return with_answers(session.model_copy(update=facts), kept)


def shown_of(record: RunRecord) -> Shown:
    """Return the answers of a record that has some as those on the page, marked as not of this session."""
    orders, form = record.by_order(), record.form
    order = form.order if form.order in orders else record.orders[0]
    lettered = {entry.letter: entry for entry in form.entries}
    form = replace(form, entries=tuple(lettered[letter] for letter in order))
    cards = tuple(
        AnswerCard(
            method,
            state="finished",
            text=orders[order].texts[method],
            finish_reason="length" if method in orders[order].cut_off else "stop",
            source=record.source,
        )
        for method in form.methods
    )
    return Shown(form, cards, earlier=orders)
