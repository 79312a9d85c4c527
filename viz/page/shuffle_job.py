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
from pine_engine.endpoint.repeats import Repeats
from pine_engine.engine.events import Event
from pine_engine.prompts.layout import TokenLayout
from pine_engine.scheduling.job import PreparedJob
from pine_engine.scheduling.work import planned
from viz.cards.answers import AnswerCard
from viz.figures.positions_by_order import default_head
from viz.page.answers.answering import REDRAW_S, Meter, advance, count_repeats, progress_sentence, remarks
from viz.page.answers.order_answers import Order, order_answers
from viz.page.answers.run import Run, finish_run
from viz.page.answers.shown import Shown
from viz.page.common.host_settings import DEFAULTS, HostSettings
from viz.page.form.checks import check_orders, checked_request, request_layout
from viz.page.form.form import Form
from viz.page.form.orders import tries_all, with_controls

if TYPE_CHECKING:  # imports torch
    from pine_engine.backend import Backend


def orders_for(num_documents: int, count: int, seed: int) -> list[tuple[int, ...]]:
    """Return the orders, input order first: all orders of few documents, else a seeded sample.

    Raises InputError if count is less than 1 or too large.
    """
    if tries_all(num_documents):
        return pine.sample_orders(num_documents)
    check_orders(count)
    return pine.sample_orders(num_documents, count - 1, seed)


def prepare_shuffle(
    engine: "Backend",
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

    Raises PineError for an invalid form, and for a method that the engine does not have.
    """
    request = checked_request(form, engine, settings).with_date(engine)
    layout = request_layout(request, form, engine, settings)
    if controls:
        form = replace(form, methods=with_controls(form.methods, engine.methods))
    slots = [tuple(map(form.order.index, order)) for order in orders]
    slots = slots or orders_for(len(form.entries), count, seed)
    engine.select_methods(form.methods)
    num_bytes = engine.run_bytes(
        layout, form.methods, form.max_new_tokens, num_orders=len(slots), return_logits=True
    )
    work = planned(
        tokens=layout.num_tokens // engine.ids_per_token,
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
    engine: "Backend",
    *,
    form: Form,
    request: "pine.Request",
    layout: TokenLayout,
    slots: list[tuple[int, ...]],
    seed: int | None,
    trace: bool,
) -> Generator[Shown, None, None]:
    """Run the form in one order after another; closing the generator stops the model.

    An order with a refused answer is in no run; the others are compared with the first of them. Raises
    InputError if all answers were refused.
    """
    engine, _ = engine.bind_template_kwargs(form.parsed_kwargs)
    orders = tuple(tuple(form.order[slot] for slot in order) for order in slots)
    meter, num_done, refused = Meter(layout.num_tokens), 0, dict[tuple[int, str], str]()
    view = Shown(form, tuple(map(AnswerCard, form.methods)), orders, sentence=_count(len(orders)))
    yield view
    began = drawn = time.monotonic()
    results = engine.compare_orders(
        layout,
        methods=form.methods,
        orders=slots,
        max_new_tokens=form.max_new_tokens,
        trace=trace and engine.misfit("traces") is None,
    )
    with closing(results):
        for item in results:
            if isinstance(item, pine.OrderResult):
                row, found = bare(item, orders[num_done]), item.result.answers
                num_done += 1
                refused |= {(num_done, name): one.refusal for name, one in found.items() if one.refusal}
                if len(item.comparisons) == len(form.methods):
                    meter.finish(item.result)
                    if view.run is None:
                        run = _start_run(engine, form, request, item, row, seed, count_repeats(engine, meter))
                        head = default_head(item.result.traces.values())
                    else:
                        answers = order_answers(
                            engine, form, item.result, row.order, head=head, comparison=row
                        )
                        run = replace(view.run, orders={**view.run.orders, row.order: answers})
                    view = replace(view, run=run)
                early = {order: answers for order, answers in view.early.items() if order != row.order}
                view = replace(view, done=meter.work, early=early)
                yield replace(view, sentence=f"Order {num_done} done")
                continue
            meter.see(item)
            view = replace(view, cards=advance(view.cards, item))
            if isinstance(item, pine.GenerationFinished) and not item.answer.refusal:
                view = view.with_early(orders[item.order], item.answer)
            if time.monotonic() - drawn >= REDRAW_S or isinstance(item, pine.RequestsPlanned):
                drawn = time.monotonic()
                num_read, num_prompts = meter.work.prompts, len(orders) * len(form.methods)
                sentence = _progress(item, num_read, num_prompts, len(orders) - num_done)
                yield replace(view, sentence=sentence, done=meter.work)
    num_answered = len(view.run.orders) if view.run else 0
    counted = f"{num_answered} of {len(orders)}" if refused else str(len(orders))
    sentences = [f"Done: {counted} orders in {time.monotonic() - began:.1f} s."]
    sentences += remarks(engine, meter, refused, len(orders) * len(form.methods))
    yield replace(view, sentence=" ".join(sentences))


def _start_run(
    engine: "Backend",
    form: Form,
    request: "pine.Request",
    first: "pine.OrderResult",
    row: "pine.OrderResult",
    seed: int | None,
    repeats: Repeats | None,
) -> Run:
    """Return the run of the first answered order, whose form has the documents in this order.

    It has a certificate if there are logits.
    """
    entries = sorted(form.entries, key=lambda entry: row.order.index(entry.letter))
    form = replace(form, entries=tuple(entries))
    run = finish_run(engine, form, first.result, comparison=row, repeats=repeats)
    notes = map(str.capitalize, repeats.notes() if repeats else [])
    run = replace(run, caption=" ".join([caption_of(engine, form), *notes]))
    if not first.result.logits:
        return run
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
    return replace(run, first_certificate=certificate)


def bare(result: "pine.OrderResult", order: Order) -> "pine.OrderResult":
    """Return a result with the documents as entered, without traces and logits, which take most memory."""
    return replace(result, order=order, result=replace(result.result, traces={}, logits={}))


def _progress(event: Event, num_read: int, num_prompts: int, num_left: int) -> str:
    """Describe the progress, from the numbers of prefills and of orders without all answers."""
    match event:
        case pine.RequestsPlanned() | pine.RequestProgress():
            return progress_sentence(event)
        case pine.PrefillProgress(share=share):
            num_done = num_read + share
        case pine.PrefillDone():
            num_done = num_read
        case _:
            return f"{_count(num_left)}: generating answers"
    return f"{_count(num_left)}: reading documents, {num_done / num_prompts:.0%}"


def _count(num_orders: int) -> str:
    return f"{num_orders} order{'s' * (num_orders != 1)}"


def caption_of(engine: "Backend", form: Form) -> str:
    """Describe the settings of the comparison."""
    invariance_warning = f"{engine.invariance_warning} " if engine.invariance_warning else ""
    compared = (
        "Texts are compared."
        if engine.misfit("logits")
        else "Δ logit: maximum over question and answer tokens up to the first difference. Log-probability: "
        "of the method’s row-1 answer."
    )
    return (
        f"{invariance_warning}{engine.conditions}, max {form.max_new_tokens} new tokens. Each row is "
        f"computed independently and compared with row 1. {compared}"
    )
