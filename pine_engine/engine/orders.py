"""Runs of one prompt in several orders of its documents: orders to try, and what differs between them."""

import itertools
import math
import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from pine_engine.attention.state import Row, input_device
from pine_engine.engine.events import Answer, Event, RunResult
from pine_engine.engine.likelihood import score_answer
from pine_engine.engine.run import NEVER, AnswerInProgress, Run
from pine_engine.engine.streaming import Emit
from pine_engine.errors import InputError
from pine_engine.given import in_words, sequence, whole_number, whole_numbers
from pine_engine.prompts.layout import PLACES, TokenLayout
from pine_engine.shown import in_short, short_repr

ALL_ORDERS_UP_TO = 4
"""Documents up to which all orders are tried unless a number is asked for: 4! = 24."""

DEFAULT_SHUFFLES = 10

BYTES_AT_ONCE = 2**30
"""Memory for the states and logits of the orders that are written together; one order may take more."""

FIRST_ORDERS = 2
"""Orders that are written before the others are read, so that there is soon something to compare."""


@dataclass(frozen=True)
class OrderCell:
    """One method's answer in one order, compared with its answer in the first order.

    first_difference: index of the first token that differs, None if none does.
    max_abs_logit_diff: over the suffix and the decoding steps up to that token.
    bitwise_equal: all of these logits, and all tokens, are equal to the last bit.
    reference_logprob: log-probability, in nats, that this order gives to the answer of the first order, its
        end left out; 0 for an empty one.
    """

    answer: Answer
    same_text: bool
    first_difference: int | None
    max_abs_logit_diff: float
    bitwise_equal: bool
    reference_logprob: float

    __repr__ = short_repr

    @property
    def text(self) -> str:
        """The answer's text."""
        return self.answer.text


@dataclass(frozen=True)
class OrderRow:
    """All methods' answers in one order; order[p] is the document at place p."""

    order: tuple[int, ...]
    cells: dict[str, OrderCell]
    result: RunResult

    def without_logits(self) -> "OrderRow":
        """The same without the logits of its run, which take more memory than all the rest."""
        return replace(self, result=replace(self.result, logits={}))

    def __repr__(self) -> str:
        answers = (f"{method}={in_short(cell.answer.text)}" for method, cell in self.cells.items())
        return f"OrderRow({', '.join([str(self.order), *answers])})"


@dataclass(frozen=True)
class OrderSummary:
    """One method over all orders tried.

    max_abs_logit_diff: the largest; not a number if that of any order is none.
    logprob_spread: largest less smallest log-probability of the first order's answer, in nats.
    """

    orders: int
    same_texts: int
    distinct_texts: int
    max_abs_logit_diff: float
    bitwise_equal: bool
    logprob_spread: float


def orders_to_try(num_documents: int, shuffles: int | None = None, seed: int = 0) -> list[tuple[int, ...]]:
    """Orders of the documents, as they are first, no order twice.

    shuffles: how many others, drawn with the seed; all of them if there are no more than that. None
    stands for all orders of up to four documents, and for ten shuffles above.
    Raises InputError for a negative number.
    """
    if shuffles is not None and shuffles < 0:
        raise InputError(f"the number of shuffles is {shuffles}; give 0 or more")
    as_is = tuple(range(num_documents))
    count = math.factorial(num_documents)
    if shuffles is None:
        shuffles = count if num_documents <= ALL_ORDERS_UP_TO else DEFAULT_SHUFFLES
    if shuffles >= count - 1:
        return list(itertools.permutations(as_is))
    generator = random.Random(seed)
    orders = {as_is: None}
    while len(orders) <= shuffles:
        orders[tuple(generator.sample(as_is, num_documents))] = None
    return list(orders)


def known_orders(layout: TokenLayout, orders: Iterable[Sequence[int]]) -> list[tuple[int, ...]]:
    """The orders given, as places. Raises InputError for none, and for what is no order of the documents."""
    given = sequence(orders)
    if not given:
        raise InputError(
            f"the orders are {in_words(orders)}; give at least one, as orders_to_try(num_documents) does: "
            "[[0, 1, 2], [2, 0, 1]]"
        )
    places = [whole_numbers(order, "an order", PLACES) for order in given]
    for order in places:
        layout.reorder(order)
    return places


def chosen_orders(
    layout: TokenLayout,
    orders: Iterable[Sequence[int]] | None,
    *,
    count: int | None,
    seed: int,
) -> list[tuple[int, ...]]:
    """The orders given, or else count of them, the documents' own included, as orders_to_try draws them.

    Raises InputError for both, for a count below 1, and as known_orders does.
    """
    if orders is not None and count is not None:
        raise InputError("orders were given, and a count of them; give one of the two")
    if orders is not None:
        return known_orders(layout, orders)
    shuffles = None if count is None else whole_number(count, "number of orders", least=1) - 1
    return orders_to_try(layout.num_documents, shuffles, seed)


@dataclass(frozen=True)
class OrderRuns:
    """One prompt in several orders, each read from scratch, and written together as far as memory goes: first
    two of them, then the others.

    start: a run of the prompt in one order, which keeps its logits.
    """

    start: Callable[[TokenLayout], Run]
    layout: TokenLayout
    orders: Sequence[tuple[int, ...]]

    @torch.inference_mode()
    def work(self, emit: Callable[[Event | OrderRow], None], cancelled: threading.Event = NEVER) -> None:
        """Emits the events of all runs, and for each order in turn an OrderRow in place of RunDone.

        Raises as Run.finish does.
        """
        first: RunResult | None = None
        orders = iter(self.orders)
        batch = [self._read(next(orders), emit, cancelled)]
        sizes = _batch_sizes(len(self.orders), max(1, BYTES_AT_ONCE // batch[0].num_bytes))
        # One row alone is a product of another kind, and elsewhere each number of rows is.
        places = max(2, max(sizes) * len(batch[0].answers))
        for size in sizes:
            batch += [self._read(next(orders), emit, cancelled) for _ in range(size - len(batch))]
            done: dict[int, RunResult] = {}
            told = 0
            together = [read.answers for read in batch]
            for number in batch[0].run.write(together, emit, cancelled, places=places):
                done[number] = batch[number].run.result(batch[number].answers)
                while told in done:
                    first = first or done[told]
                    read = {answer.method: answer.row for answer in batch[told].answers}
                    cells = compare(first, done[told], read)
                    emit(OrderRow(batch[told].order, cells, done.pop(told)))
                    told += 1
            batch = []

    def _read(self, order: tuple[int, ...], emit: Emit, cancelled: threading.Event) -> "_ReadOrder":
        run = self.start(self.layout.reorder(order))
        return _ReadOrder(order, run, run.read(emit, cancelled))


@dataclass(frozen=True)
class _ReadOrder:
    order: tuple[int, ...]
    run: Run
    answers: list[AnswerInProgress]

    @property
    def num_bytes(self) -> int:
        """Memory that its states and logits take in the end."""
        return sum(answer.num_bytes(self.run.options.max_new_tokens) for answer in self.answers)


def _batch_sizes(num_orders: int, at_once: int) -> list[int]:
    """How many orders are written together, one batch after the other."""
    first = min(FIRST_ORDERS, at_once, num_orders)
    whole, rest = divmod(num_orders - first, at_once)
    return [first, *[at_once] * whole, *([rest] if rest else [])]


def summarize(rows: Sequence[Mapping[str, OrderCell]]) -> dict[str, OrderSummary]:
    """Each method over the cells of all orders."""
    summaries = {}
    for method in rows[0]:
        cells = [row[method] for row in rows]
        logprobs = [cell.reference_logprob for cell in cells]
        differences = [cell.max_abs_logit_diff for cell in cells]
        summaries[method] = OrderSummary(
            orders=len(cells),
            same_texts=sum(cell.same_text for cell in cells),
            distinct_texts=len({cell.answer.token_ids for cell in cells}),
            max_abs_logit_diff=next(filter(math.isnan, differences), max(differences)),
            bitwise_equal=all(cell.bitwise_equal for cell in cells),
            logprob_spread=max(logprobs) - min(logprobs),
        )
    return summaries


def compare(first: RunResult, other: RunResult, read: Mapping[str, Row]) -> dict[str, OrderCell]:
    """How each answer in another order compares with that in the first.

    read: the row of each method that has read the prompt of `other` and what it answered.
    """
    cells = {}
    for method, answer in other.answers.items():
        reference = first.answers[method]
        difference = _first_difference(reference.token_ids, answer.token_ids)
        rows, reference_rows = other.logits[method], first.logits[method]
        comparable = min(len(rows), len(reference_rows))
        if difference is not None:
            comparable = min(comparable, other.layout.suffix_length + difference)
        rows, reference_rows = rows[:comparable], reference_rows[:comparable]
        cells[method] = OrderCell(
            answer=answer,
            same_text=difference is None,
            first_difference=difference,
            max_abs_logit_diff=(rows - reference_rows).abs().max().item(),
            bitwise_equal=difference is None and torch.equal(rows, reference_rows),
            reference_logprob=_reference_logprob(reference, other, read[method], difference),
        )
    return cells


@torch.inference_mode()
def _reference_logprob(reference: Answer, other: RunResult, row: Row, parting: int | None) -> float:
    """See OrderCell. Where the answers agree it is the sum of the answer's own log-probabilities.

    row: has read the prompt of `other` and what it answered; the row goes back to where the answers part and
    reads the rest of the reference, all at once. parting: index of the first token that differs.
    """
    ids, own = reference.token_ids, other.answers[reference.method].logprobs
    if parting is None or parting == len(ids):
        return sum(own[: len(ids)], 0.0)
    too_many = row.num_read() - other.layout.num_tokens - parting
    row.cache.truncate(row.cache.length - too_many)
    last = other.layout.suffix_length - 1 + parting
    logits = other.logits[reference.method][last : last + 1].to(input_device(row.state.wiring.network))
    rest = score_answer(row, logits, reference.text, ids[parting:])
    return sum([*own[:parting], *rest.logprobs])


def _first_difference(reference: tuple[int, ...], other: tuple[int, ...]) -> int | None:
    pairs = itertools.zip_longest(reference, other)
    return next((index for index, (left, right) in enumerate(pairs) if left != right), None)
