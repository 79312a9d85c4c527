"""Shuffle test: a form goes in, a row of answers per order comes out. Imports torch.

Nothing is cached between orders.
"""

import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from pine_engine.engine.engine import Engine
from pine_engine.engine.events import Event, PrefillDone, PrefillProgress, RunResult, TokenGenerated
from pine_engine.engine.orders import OrderComparison, OrderResult, compare_orders, sample_orders
from pine_engine.invariance.certificate import Certificate, create_certificate, hash_logits
from pine_engine.methods.table import METHODS, Method, get_methods
from viz.cards.answers import AnswerCard
from viz.cards.shuffle import InOrders
from viz.drawing.identity import document_letter
from viz.figures.answer_tokens import answer_tokens
from viz.figures.positions_by_order import DocumentPositions, default_head, document_positions
from viz.page.answers.answer_records import TriedOrder
from viz.page.answers.answering import (
    REDRAW_S,
    FinishedRun,
    advance,
    finish_run,
    finished_cards,
    progress_sentence,
)
from viz.page.answers.cards import waiting_cards
from viz.page.common.host_settings import DEFAULTS, HostSettings
from viz.page.form.checks import form_layout
from viz.page.form.form import Form
from viz.page.form.limits import check_orders
from viz.page.form.orders import tries_all, with_controls
from viz.page.jobs.cost import Work, planned
from viz.page.jobs.metering import Meter
from viz.page.sharing.sheets import form_comparison


@dataclass(frozen=True)
class ShuffleOutcome:
    """Result of a shuffle test: the run in input order with all other orders, and a certificate."""

    finished: FinishedRun
    certificate: Certificate


@dataclass(frozen=True)
class Tried:
    """Orders so far, for the figures: caption, rows without traces, and document positions of each row."""

    methods: tuple[Method, ...]
    caption: str
    rows: tuple[OrderResult, ...] = ()
    placed: tuple[DocumentPositions, ...] = ()


@dataclass(frozen=True)
class ShuffleView:
    """State of the page during a shuffle test; None for unchanged parts."""

    sentence: str
    tried: "Tried | None" = None
    cards: tuple[AnswerCard, ...] = ()
    """Answers in the first order."""

    in_orders: InOrders | None = None
    outcome: ShuffleOutcome | None = None
    """Orders so far."""

    done: Work | None = None
    """Work so far."""


def orders_for(
    num_documents: int, count: int, seed: int, settings: HostSettings = DEFAULTS
) -> list[tuple[int, ...]]:
    """Return the orders, input order first: all orders of few documents, else a seeded sample.

    Raises InputError if count is less than 1, or more than the host allows.
    """
    if tries_all(num_documents, settings.max_orders):
        return sample_orders(num_documents)
    check_orders(count, settings)
    return sample_orders(num_documents, count - 1, seed)


def shuffle(
    engine: Engine,
    form: Form,
    *,
    count: int,
    seed: int,
    controls: bool,
    settings: HostSettings = DEFAULTS,
) -> Generator[ShuffleView, None, None]:
    """Run the form in one order after another; closing the generator stops the model.

    Raises InputError for an invalid form.
    """
    layout = form_layout(form, engine, settings)
    if controls:
        form = replace(form, methods=with_controls(form.methods))
    orders = orders_for(layout.num_documents, count, seed, settings)
    meter = Meter(layout.num_tokens)
    identities = [_identities(form, order) for order in orders]
    shown = Tried(get_methods(form.methods), caption_of(engine, form))
    cells: list[dict[str, OrderComparison]] = []
    tried: list[TriedOrder] = []
    began = drawn = time.monotonic()
    results = compare_orders(
        engine,
        layout,
        methods=form.methods,
        orders=orders,
        max_new_tokens=form.max_new_tokens,
        trace=True,
    )
    first = {card.method: card for card in waiting_cards(form.methods)}
    planned_orders = InOrders(tuple(identities), {method: () for method in form.methods})
    yield ShuffleView(f"Order 1 of {len(orders)}", shown, tuple(first.values()), planned_orders)
    with closing(results):
        for item in results:
            if isinstance(item, OrderResult):
                meter.finish(item.result)
                if not cells:
                    first = {card.method: card for card in finished_cards(item.result)}
                    hashes = hash_logits(item.result)
                    # Logits of a long answer take more memory than all the rest.
                    finished = finish_run(engine, form, replace(item.result, logits={}))
                    head = default_head(item.result.traces.values())
                else:
                    tried.append(_tried(engine, item.result, identities[len(cells)]))
                order = identities[len(cells)]
                cells.append(item.comparisons)
                bare = replace(item.result, traces={}, logits={})
                placed = document_positions(order, item.result.traces, *head)
                shown = replace(
                    shown,
                    rows=(*shown.rows, replace(item, order=order, result=bare)),
                    placed=(*shown.placed, placed),
                )
                certificate = create_certificate(
                    engine,
                    form_comparison(form),
                    orders=identities[: len(cells)],
                    comparisons=cells,
                    hashes=hashes,
                    seed=None if tries_all(layout.num_documents, settings.max_orders) else seed,
                    max_new_tokens=form.max_new_tokens,
                    traced=True,
                )
                yield ShuffleView(
                    f"Order {len(shown.rows)} done",
                    shown,
                    tuple(first.values()),
                    _in_orders(shown, identities),
                    ShuffleOutcome(replace(finished, tried=tuple(tried)), certificate),
                    meter.work,
                )
                continue
            meter.see(item)
            if not cells and isinstance(item, PrefillDone | PrefillProgress | TokenGenerated):
                first[item.method] = advance(first[item.method], item)
            if time.monotonic() - drawn >= REDRAW_S:
                drawn = time.monotonic()
                read = meter.work.prompts // len(form.methods)
                yield ShuffleView(
                    _sentence(item, len(shown.rows), read, len(orders)),
                    cards=() if cells else tuple(first.values()),
                    in_orders=planned_orders,
                    done=meter.work,
                )
    yield ShuffleView(f"Done: {len(shown.rows)} orders in {time.monotonic() - began:.1f} s.")


def _in_orders(tried: Tried, orders: Sequence[tuple[int, ...]]) -> InOrders:
    methods = [method.name for method in tried.methods]
    answers = {method: tuple(row.comparisons[method].text for row in tried.rows) for method in methods}
    return InOrders(tuple(orders), answers, positions=tried.placed)


def _sentence(event: Event, done: int, read: int, count: int) -> str:
    """Describe the progress; `done` and `read` count orders with answers and with prefills."""
    if isinstance(event, PrefillProgress | PrefillDone):
        return f"Order {min(read + 1, count)} of {count}: {progress_sentence(event)}"
    which = f"order {read}" if read == done + 1 else f"orders {done + 1} to {read}"
    return f"{progress_sentence(event)} in {which} of {count}"


def caption_of(engine: Engine, form: Form) -> str:
    """Describe the settings of the comparison."""
    invariance_warning = f"{engine.invariance_warning} " if engine.invariance_warning else ""
    return (
        f"{invariance_warning}{engine.model_name}, {engine.dtype} on {engine.device}, greedy decoding, "
        f"at most "
        f"{form.max_new_tokens} tokens. Every row is computed anew and compared with the first; Δ logit is "
        "the largest over the question and the answer up to the first token that differs; the "
        "log-probability is that of the method's own answer in the first row."
    )


def _identities(form: Form, order: Sequence[int]) -> tuple[int, ...]:
    """Return the identity of the document in each slot of an order of the form's slots."""
    return tuple(form.order[place] for place in order)


def _tried(engine: Engine, result: RunResult, order: tuple[int, ...]) -> TriedOrder:
    return TriedOrder(
        order=order,
        label=" ".join(map(document_letter, order)),
        answer_records={
            method: answer_tokens(engine.decode_tokens, result, method, order, METHODS[method].label)
            for method in result.answers
        },
    )


def plan_shuffle(
    engine: Engine,
    form: Form,
    *,
    count: int,
    seed: int,
    controls: bool,
    settings: HostSettings = DEFAULTS,
) -> Work:
    """Plan the work of a shuffle test, from the arguments of shuffling.shuffle."""
    layout = form_layout(form, engine, settings)
    methods = with_controls(form.methods) if controls else form.methods
    return planned(
        tokens=layout.num_tokens,
        methods=len(methods),
        orders=len(orders_for(layout.num_documents, count, seed, settings)),
        new_tokens=form.max_new_tokens,
    )
