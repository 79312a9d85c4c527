"""Shuffle test: from a form to the answers in each document order.

Nothing is cached between orders.
"""

import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial

import pine_engine as pine
from pine_engine.engine.events import Event
from pine_engine.invariance.certificate import summarize_methods
from pine_engine.prompts.layout import TokenLayout
from pine_engine.scheduling.runs import PreparedJob
from pine_engine.scheduling.work import Work, planned
from viz.cards.answers import AnswerCard
from viz.cards.shuffle import InOrders
from viz.figures.positions_by_order import DocumentPositions, default_head, document_positions
from viz.page.answers.answering import (
    REDRAW_S,
    FinishedRun,
    TriedOrder,
    advance,
    finish_run,
    finished_cards,
    progress_sentence,
    read_answers,
)
from viz.page.answers.cards import waiting_cards
from viz.page.common.host_settings import DEFAULTS, HostSettings
from viz.page.form.checks import check_orders, form_layout
from viz.page.form.form import Form, form_request
from viz.page.form.options import tries_all, with_controls
from viz.page.jobs.meter import Meter


@dataclass(frozen=True)
class OrdersTried:
    """Document orders finished so far, without logits and traces.

    Attributes:
        orders: Document in each slot of each planned order, the order of the form first.
        cards: Answers in the first order.
        rows: Results of the finished orders.
        placed: Positions of the documents in these orders.
        finished: Run in the first order with the answers in the other ones, if it was traced.
        first_certificate: Certificate of the first order, with the platform of the model.
    """

    sentence: str = field(compare=False)
    methods: "tuple[pine.Method, ...]"
    caption: str
    orders: tuple[tuple[int, ...], ...]
    cards: tuple[AnswerCard, ...]
    rows: "tuple[pine.OrderResult, ...]" = ()
    placed: tuple[DocumentPositions, ...] = field(default=(), compare=False)  # one per row; arrays
    finished: FinishedRun | None = field(default=None, compare=False)
    first_certificate: "pine.Certificate | None" = field(default=None, compare=False)
    done: Work = field(default=Work(), compare=False)

    @property
    def progress(self) -> tuple[int, int]:
        """Return the number of finished orders, and of all."""
        return len(self.rows), len(self.orders)

    @property
    def is_complete(self) -> bool:
        """Return True if all orders are finished."""
        return len(self.rows) == len(self.orders)

    @property
    def certificate(self) -> "pine.Certificate | None":
        """Return the certificate of the finished orders."""
        if (first := self.first_certificate) is None:
            return None
        hashes = dict(zip(first.methods, first.hashes, strict=True))
        results = summarize_methods([row.comparisons for row in self.rows], hashes)
        return first.model_copy(
            update={"orders": [list(order) for order in self.orders[: len(self.rows)]], "results": results}
        )

    @property
    def in_orders(self) -> InOrders:
        """Return the answers of the finished orders."""
        names = [method.name for method in self.methods]
        answers = {name: tuple(row.comparisons[name].text for row in self.rows) for name in names}
        return InOrders(self.orders, answers, positions=self.placed)


def orders_for(
    num_documents: int, count: int, seed: int, settings: HostSettings = DEFAULTS
) -> list[tuple[int, ...]]:
    """Return the orders, input order first: all orders of few documents, else a seeded sample.

    Raises InputError if count is less than 1, or more than the host allows.
    """
    if tries_all(num_documents, settings.max_orders):
        return pine.sample_orders(num_documents)
    check_orders(count, settings)
    return pine.sample_orders(num_documents, count - 1, seed)


def prepare_shuffle(
    engine: "pine.Engine",
    form: Form,
    *,
    count: int,
    seed: int,
    controls: bool,
    settings: HostSettings = DEFAULTS,
    trace: bool = True,
) -> PreparedJob[OrdersTried]:
    """Tokenize a form, and plan its answers in all orders. Raises InputError for an invalid form."""
    layout = form_layout(form, engine, settings)
    if controls:
        form = replace(form, methods=with_controls(form.methods))
    slots = orders_for(layout.num_documents, count, seed, settings)
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
    sampled_by = None if tries_all(layout.num_documents, settings.max_orders) else seed
    return PreparedJob(
        work, partial(shuffle, form=form, layout=layout, slots=slots, seed=sampled_by, trace=trace)
    )


def shuffle(
    engine: "pine.Engine",
    *,
    form: Form,
    layout: TokenLayout,
    slots: list[tuple[int, ...]],
    seed: int | None,
    trace: bool,
) -> Generator[OrdersTried, None, None]:
    """Run the form in one order after another; closing the generator stops the model."""
    orders = tuple(tuple(form.order[slot] for slot in order) for order in slots)
    meter = Meter(layout.num_tokens)
    cards = {card.method: card for card in waiting_cards(form.methods)}
    tried = OrdersTried(
        f"Order 1 of {len(orders)}",
        tuple(pine.get_methods(form.methods)),
        caption_of(engine, form),
        orders,
        tuple(cards.values()),
    )
    yield tried
    began = drawn = time.monotonic()
    results = pine.compare_orders(
        engine, layout, methods=form.methods, orders=slots, max_new_tokens=form.max_new_tokens, trace=trace
    )
    with closing(results):
        for item in results:
            if isinstance(item, pine.OrderResult):
                meter.finish(item.result)
                order = orders[len(tried.rows)]
                if not tried.rows:
                    certificate = pine.create_certificate(
                        engine,
                        form_request(form),
                        orders=orders[:1],
                        comparisons=[item.comparisons],
                        hashes=pine.hash_logits(item.result),
                        seed=seed,
                        max_new_tokens=form.max_new_tokens,
                        traced=trace,
                    )
                    tried = replace(tried, cards=finished_cards(item.result), first_certificate=certificate)
                if trace:
                    if tried.finished is None:
                        # Logits of a long answer take more memory than all the rest.
                        finished = finish_run(engine, form, replace(item.result, logits={}))
                        head = default_head(item.result.traces.values())
                    else:
                        answers = TriedOrder(order, read_answers(engine, item.result, order))
                        finished = replace(tried.finished, tried=(*tried.finished.tried, answers))
                    placed = document_positions(order, item.result.traces, *head)
                    tried = replace(tried, finished=finished, placed=(*tried.placed, placed))
                bare = replace(item, order=order, result=replace(item.result, traces={}, logits={}))
                tried = replace(tried, rows=(*tried.rows, bare), done=meter.work)
                yield replace(tried, sentence=f"Order {len(tried.rows)} done")
                continue
            meter.see(item)
            if not tried.rows and not isinstance(item, pine.GenerationFinished | pine.RunFinished):
                cards[item.method] = advance(cards[item.method], item)
                tried = replace(tried, cards=tuple(cards.values()))
            if time.monotonic() - drawn >= REDRAW_S:
                drawn = time.monotonic()
                num_read = meter.work.prompts // len(form.methods)
                sentence = _progress(item, len(tried.rows), num_read, len(orders))
                yield replace(tried, sentence=sentence, done=meter.work)
    yield replace(tried, sentence=f"Done: {len(orders)} orders in {time.monotonic() - began:.1f} s.")


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
