"""Shuffle test: from a form to the answers in each document order.

Nothing is cached between orders.
"""

import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pine_engine as pine
from pine_engine.engine.events import Event
from pine_engine.prompts.layout import TokenLayout
from pine_engine.scheduling.runs import PreparedJob
from pine_engine.scheduling.work import planned
from viz.cards.answers import AnswerCard
from viz.figures.positions_by_order import default_head
from viz.page.answers.answering import REDRAW_S, Meter, advance, progress_sentence
from viz.page.answers.endpoint_job import prepare_requests
from viz.page.answers.order_answers import Order, order_answers
from viz.page.answers.run import Run, Shown, finish_run
from viz.page.common.host_settings import DEFAULTS, HostSettings
from viz.page.form.checks import check_orders, form_layout
from viz.page.form.form import Form, form_request
from viz.page.form.orders import tries_all, with_controls

if TYPE_CHECKING:
    from pine_engine.endpoint.client import Endpoint


def orders_for(num_documents: int, count: int, seed: int) -> list[tuple[int, ...]]:
    """Return the orders, input order first: all orders of few documents, else a seeded sample.

    Raises InputError if count is less than 1 or too large.
    """
    if tries_all(num_documents):
        return pine.sample_orders(num_documents)
    check_orders(count)
    return pine.sample_orders(num_documents, count - 1, seed)


def prepare_shuffle(
    engine: "pine.Engine | Endpoint",
    form: Form,
    *,
    count: int,
    seed: int,
    controls: bool,
    orders: Sequence[Order] = (),
    settings: HostSettings = DEFAULTS,
    trace: bool = True,
) -> PreparedJob[Shown]:
    """Tokenize a form, and plan its answers in these orders, by default in those of `orders_for`.

    Raises InputError for an invalid form.
    """
    from pine_engine.endpoint.client import Endpoint  # imports torch

    form.check()
    if controls:
        form = replace(form, methods=with_controls(form.methods, engine.methods))
    slots = [tuple(map(form.order.index, order)) for order in orders]
    slots = slots or orders_for(len(form.entries), count, seed)
    if isinstance(engine, Endpoint):
        return prepare_requests(engine, form, slots, settings)
    request = form_request(form).with_date(engine)
    layout = form_layout(form, engine, settings, request=request)
    num_bytes = engine.run_bytes(
        layout, form.methods, form.max_new_tokens, num_orders=len(slots), return_logits=True
    )
    work = planned(
        tokens=layout.num_tokens,
        methods=len(form.methods),
        orders=len(slots),
        new_tokens=form.max_new_tokens,
        bytes_at_once=num_bytes,
    )
    sampled_by = None if tries_all(layout.num_documents) else seed
    return PreparedJob(
        work,
        partial(
            shuffle, form=form, request=request, layout=layout, slots=slots, seed=sampled_by, trace=trace
        ),
    )


def shuffle(
    engine: "pine.Engine",
    *,
    form: Form,
    request: "pine.Request",
    layout: TokenLayout,
    slots: list[tuple[int, ...]],
    seed: int | None,
    trace: bool,
) -> Generator[Shown, None, None]:
    """Run the form in one order after another; closing the generator stops the model."""
    orders = tuple(tuple(form.order[slot] for slot in order) for order in slots)
    meter, num_done = Meter(layout.num_tokens), 0
    view = Shown(form, tuple(map(AnswerCard, form.methods)), orders, sentence=f"Order 1 of {len(orders)}")
    yield view
    began = drawn = time.monotonic()
    results = pine.compare_orders(
        engine, layout, methods=form.methods, orders=slots, max_new_tokens=form.max_new_tokens, trace=trace
    )
    with closing(results):
        for item in results:
            if isinstance(item, pine.OrderResult):
                meter.finish(item.result)
                if view.run is None:
                    run = _start_run(engine, form, request, item, seed)
                    view = replace(view, cards=tuple(map(AnswerCard.finished, item.result.answers.values())))
                    head = default_head(item.result.traces.values())
                else:
                    row = bare(item, orders[num_done])
                    answers = order_answers(engine, form, item.result, row.order, head=head, comparison=row)
                    run = replace(view.run, orders={**view.run.orders, row.order: answers})
                num_done += 1
                view = replace(view, run=run, done=meter.work)
                yield replace(view, sentence=f"Order {num_done} done")
                continue
            meter.see(item)
            if view.run is None and not isinstance(item, pine.GenerationFinished):
                view = replace(view, cards=advance(view.cards, item))
            if time.monotonic() - drawn >= REDRAW_S:
                drawn = time.monotonic()
                num_read = meter.work.prompts // len(form.methods)
                sentence = _progress(item, num_done, num_read, len(orders))
                yield replace(view, sentence=sentence, done=meter.work)
    yield replace(view, sentence=f"Done: {len(orders)} orders in {time.monotonic() - began:.1f} s.")


def _start_run(
    engine: "pine.Engine", form: Form, request: "pine.Request", first: "pine.OrderResult", seed: int | None
) -> Run:
    """Return the run of the first order, with its certificate."""
    certificate = pine.create_certificate(
        engine,
        request,
        orders=[form.order],
        comparisons=[first.comparisons],
        hashes=pine.hash_logits(first.result),
        seed=seed,
        max_new_tokens=form.max_new_tokens,
        traced=bool(first.result.traces),
    )
    run = finish_run(engine, form, first.result, comparison=bare(first, form.order))
    return replace(run, first_certificate=certificate, caption=caption_of(engine, form))


def bare(result: "pine.OrderResult", order: Order) -> "pine.OrderResult":
    """Return a result with the documents as entered, without traces and logits, which take most memory."""
    return replace(result, order=order, result=replace(result.result, traces={}, logits={}))


def _progress(event: Event, num_done: int, num_read: int, count: int) -> str:
    """Describe the progress, from the numbers of orders with answers and with prefills."""
    if isinstance(event, pine.PrefillProgress | pine.PrefillDone):
        return f"Order {min(num_read + 1, count)} of {count}: {progress_sentence(event)}"
    which = f"Order {num_read}" if num_read == num_done + 1 else f"Orders {num_done + 1}–{num_read}"
    return f"{which} of {count}: {progress_sentence(event)}"


def caption_of(engine: "pine.Engine", form: Form) -> str:
    """Describe the settings of the comparison."""
    invariance_warning = f"{engine.invariance_warning} " if engine.invariance_warning else ""
    return (
        f"{invariance_warning}{engine.model_name}, {engine.dtype}, {engine.device}; greedy decoding, max "
        f"{form.max_new_tokens} new tokens. Each row is computed independently and compared with row 1. Δ "
        "logit: maximum over question and answer tokens up to the first difference. Log-probability: of the "
        "method’s row-1 answer."
    )
