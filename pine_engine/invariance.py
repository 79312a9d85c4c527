"""Whether an answer depends on the order of the documents: orders to try, and what differs between them."""

import itertools
import math
import random
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

import torch

from pine_engine.engine import Engine
from pine_engine.errors import InputError
from pine_engine.events import Answer, Event, RunDone, RunResult
from pine_engine.layout import TokenLayout
from pine_engine.prompt import Prompt

ALL_ORDERS_UP_TO = 4
"""Documents up to which all orders are tried unless a number is asked for: 4! = 24."""

DEFAULT_SHUFFLES = 10


@dataclass(frozen=True)
class OrderCell:
    """One method's answer in one order, compared with its answer in the first order.

    first_difference: index of the first token that differs, None if none does.
    max_abs_logit_diff: over the suffix and the decoding steps up to that token.
    bitwise_equal: all of these logits, and all tokens, are equal to the last bit.
    """

    answer: Answer
    same_text: bool
    first_difference: int | None
    max_abs_logit_diff: float
    bitwise_equal: bool


@dataclass(frozen=True)
class OrderRow:
    """All methods' answers in one order; order[p] is the document at place p."""

    order: tuple[int, ...]
    cells: dict[str, OrderCell]
    result: RunResult


@dataclass(frozen=True)
class OrderSummary:
    """One method over all orders tried."""

    orders: int
    same_texts: int
    distinct_texts: int
    max_abs_logit_diff: float
    bitwise_equal: bool


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


def compare_orders(
    engine: Engine,
    prompt: Prompt | TokenLayout,
    *,
    methods: Sequence[str] | None = None,
    orders: Sequence[Sequence[int]],
    max_new_tokens: int = 32,
    stop_at_end: bool = True,
) -> Generator[Event | OrderRow, None, None]:
    """Answers the prompt in every order; yields each run's events, then its OrderRow in place of RunDone.

    Every order is computed from scratch. Closing the generator stops the computing.
    """
    layout = engine.tokenize(prompt)
    first: RunResult | None = None
    for order in orders:
        run = engine.generate(
            layout.reorder(order),
            methods=methods,
            max_new_tokens=max_new_tokens,
            keep_logits=True,
            stop_at_end=stop_at_end,
        )
        for event in run:
            if not isinstance(event, RunDone):
                yield event
                continue
            first = first or event.result
            yield OrderRow(tuple(order), _compare(first, event.result), event.result)


def summarize(rows: Sequence[Mapping[str, OrderCell]]) -> dict[str, OrderSummary]:
    """Each method over the cells of all orders."""
    summaries = {}
    for method in rows[0]:
        cells = [row[method] for row in rows]
        summaries[method] = OrderSummary(
            orders=len(cells),
            same_texts=sum(cell.same_text for cell in cells),
            distinct_texts=len({cell.answer.token_ids for cell in cells}),
            max_abs_logit_diff=max(cell.max_abs_logit_diff for cell in cells),
            bitwise_equal=all(cell.bitwise_equal for cell in cells),
        )
    return summaries


def _compare(first: RunResult, other: RunResult) -> dict[str, OrderCell]:
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
        )
    return cells


def _first_difference(reference: tuple[int, ...], other: tuple[int, ...]) -> int | None:
    pairs = itertools.zip_longest(reference, other)
    return next((index for index, (left, right) in enumerate(pairs) if left != right), None)
