"""Runs of one prompt in several document orders, compared with the first order."""

import itertools
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import torch

from pine_engine.attention.state import SequenceState, input_device
from pine_engine.engine.events import Answer, Event, RunResult, to_frame
from pine_engine.engine.likelihood import score_answers
from pine_engine.engine.prepared_model import BYTES_AT_ONCE, PreparedModel, check_engine
from pine_engine.engine.run import PreparedRun, RunOptions, prefill_runs, prepare_run
from pine_engine.errors import InputError
from pine_engine.input_validation import as_int, as_ints, describe, sequence
from pine_engine.methods.table import METHODS, Method
from pine_engine.prompts.layout import PLACES, TokenLayout
from pine_engine.prompts.orders import sample_orders
from pine_engine.prompts.prompt import Prompt
from pine_engine.reprs import html_table, plot, short_repr, shorten
from pine_engine.scheduling.scheduler import Coroutine, stream_shared
from pine_engine.scheduling.worker import RunControl

if TYPE_CHECKING:
    from pandas import DataFrame

MAX_PREFILL_TOKENS = 1024
"""Maximum number of tokens in one batch of several orders' prefills, which limits its memory."""


@dataclass(frozen=True)
class OrderComparison:
    """Answer of one method in one order, compared with its answer in the first order."""

    answer: Answer
    same_text: bool  # True if the tokens, or the texts after a thinking part, are equal
    first_difference: int | None  # index of the first different token, None if all are equal
    max_abs_logit_diff: float  # of the suffix, and of the steps up to this token
    bitwise_identical: bool | None  # True if all of these logits and all tokens are; None for an endpoint
    reference_logprob: float  # of the answer of the first order, in nats, without its end; 0 if it is empty
    token_text: str | None = None  # of the first different token, None if the answer ended before it
    reference_token_text: str | None = None  # of the token of the first order at this index

    __repr__ = short_repr

    @property
    def text(self) -> str:
        """Text of the answer."""
        return self.answer.text

    @property
    def is_unchanged(self) -> bool:
        """True if nothing that is known changed: logits and tokens, or the text of an endpoint."""
        return self.same_text if self.bitwise_identical is None else self.bitwise_identical


@dataclass(frozen=True)
class OrderResult:
    """Answers of all methods in one order, compared with the first order."""

    order: tuple[int, ...]  # document in each slot
    comparisons: dict[str, OrderComparison]  # by method
    result: RunResult

    def __repr__(self) -> str:
        answers = (f"{method}={shorten(one.text)}" for method, one in self.comparisons.items())
        return f"OrderResult({', '.join([str(self.order), *answers])})"


@dataclass(frozen=True)
class OrderStats:
    """One method in all orders."""

    orders: int
    num_matching_answers: int  # answers equal to that of the first order
    num_distinct_answers: int
    max_abs_logit_diff: float  # NaN if that of an order is NaN
    bitwise_identical: bool | None  # None for an endpoint, whose logits are not known
    logprob_spread: float  # largest minus smallest log-probability of the answer of the first order, in nats


def summarize_orders(rows: Sequence[Mapping[str, OrderComparison]]) -> dict[str, OrderStats]:
    """Return the statistics of each method.

    Args:
        rows: `OrderResult.comparisons` of each order.
    """
    statistics = {}
    for method in rows[0]:
        comparisons = [row[method] for row in rows]
        logprobs = [one.reference_logprob for one in comparisons]
        differences = [one.max_abs_logit_diff for one in comparisons]
        statistics[method] = OrderStats(
            orders=len(comparisons),
            num_matching_answers=sum(one.same_text for one in comparisons),
            num_distinct_answers=len({one.answer.content for one in comparisons}),
            max_abs_logit_diff=float(np.max(differences)),
            bitwise_identical=(
                None
                if comparisons[0].bitwise_identical is None
                else all(one.bitwise_identical for one in comparisons)
            ),
            logprob_spread=max(logprobs) - min(logprobs),
        )
    return statistics


@dataclass(frozen=True)
class ShuffleResult:
    """Answers to one prompt in several document orders, each compared with the first."""

    results: tuple[OrderResult, ...]
    methods: tuple[Method, ...] = ()  # of the run; needed for those that are in no table

    @property
    def orders(self) -> tuple[tuple[int, ...], ...]:
        """The orders, the reference first; `orders[i][slot]` is a document."""
        return tuple(result.order for result in self.results)

    @property
    def comparisons(self) -> list[dict[str, OrderComparison]]:
        """Comparisons of each order, by method."""
        return [result.comparisons for result in self.results]

    @property
    def answers(self) -> dict[str, list[str]]:
        """Text of each method's answers, in all orders."""
        return {method: [row[method].text for row in self.comparisons] for method in self.summary}

    @cached_property
    def summary(self) -> dict[str, OrderStats]:
        """Statistics of each method."""
        return summarize_orders(self.comparisons)

    @property
    def invariance_held(self) -> dict[str, bool | None]:
        """For each method, True if all orders are bitwise identical; None if it is not order-invariant."""
        rows = {**METHODS, **{method.name: method for method in self.methods}}
        return {
            method: stats.bitwise_identical if rows[method].is_order_invariant else None
            for method, stats in self.summary.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the answers as JSON, one entry per order and method.

        Each entry has the order, the method, the text of the answer, and the comparison with the answer in
        the first order.
        """
        answers = [
            {
                "order": list(result.order),
                "method": method,
                "text": one.text,
                "same_text": one.same_text,
                "bitwise_identical": one.bitwise_identical,
                "max_abs_logit_diff": one.max_abs_logit_diff,
                "reference_logprob": one.reference_logprob,
            }
            for result in self.results
            for method, one in result.comparisons.items()
        ]
        return {"results": answers}

    def to_frame(self) -> "DataFrame":
        """Return the entries of `to_dict` as a pandas DataFrame, one row per order and method.

        Raises:
            InputError: pandas is not installed.
        """
        return to_frame(self.to_dict()["results"])

    def show(self) -> None:
        """Open a figure with the answer of each method in each order, in a notebook or in the browser."""
        plot("plot_shuffle", self.results).show()

    @property
    def first(self) -> RunResult:
        """The run in the first order."""
        return self.results[0].result

    def __repr__(self) -> str:
        parts = [f"{len(self.results)} order{'s' * (len(self.results) != 1)}"]
        for method, stats in self.summary.items():
            count = stats.num_distinct_answers
            parts.append(f"{method}: {count} answer{'s' * (count != 1)}, {_describe_logits(stats)}")
        return f"ShuffleResult({'; '.join(parts)})"

    def _repr_html_(self) -> str:
        rows = [
            (" ".join(map(str, result.order)), *(one.text for one in result.comparisons.values()))
            for result in self.results
        ]
        statistics = self.summary.values()
        held = {True: "held", False: "violated", None: "not claimed"}
        rows += [
            ("different answers", *(str(stats.num_distinct_answers) for stats in statistics)),
            ("logits", *map(_describe_logits, statistics)),
            ("order invariance", *(held[value] for value in self.invariance_held.values())),
        ]
        return html_table(("order", *self.summary), rows)


def _describe_logits(stats: OrderStats) -> str:
    if stats.bitwise_identical:
        return "bitwise identical"
    return f"differ by up to {stats.max_abs_logit_diff:.3g}"


def choose_orders(
    layout: TokenLayout, orders: Iterable[Sequence[int]] | None, *, count: int | None = None, seed: int = 0
) -> list[tuple[int, ...]]:
    """Return validated orders, or sample their number."""
    if orders is None:
        shuffles = None if count is None else as_int(count, "number of orders", least=1) - 1
        return sample_orders(layout.num_documents, shuffles, seed)
    if count is not None:
        raise InputError("orders and count were passed. Pass one of them.", field="count")
    items = sequence(orders)
    if not items:
        message = f"invalid orders: got {describe(orders)}, expected several, such as [[0, 1, 2], [2, 0, 1]]"
        raise InputError(message, field="orders")
    slots = [as_ints(order, "an order", PLACES) for order in items]
    for order in slots:
        layout.reorder(order)
    return slots


def compare_orders(
    engine: PreparedModel,
    prompt: Prompt | TokenLayout,
    *,
    orders: Iterable[Sequence[int]] | None = None,
    **options: Unpack[RunOptions],
) -> Generator[Event | OrderResult, None, None]:
    """Answer a prompt in each document order and yield events; Engine.shuffle returns the result at once.

    Yields the events of Engine.generate, and for each order an OrderResult instead of RunFinished. Each order
    has its own prefill. After the first order, short prompts are prefilled in one batch, and answers decoded
    in one of as many orders as fit in memory, so that their events are interleaved. Closing the generator
    stops the model.

    Args:
        engine: Engine that answers.
        prompt: Prompt in its first document order.
        orders: Document orders. All are compared with the first. Default: those of sample_orders.
        **options: Keyword arguments of Engine.run.

    Raises:
        InputError: For invalid orders, and as Engine.run.
    """
    check_engine(engine)
    options["return_logits"] = True
    run = prepare_run(engine, prompt, **options)
    return run_orders(run, choose_orders(run.layout, orders))


def run_orders(
    run: PreparedRun, orders: Sequence[tuple[int, ...]]
) -> Generator[Event | OrderResult, None, None]:
    """Run a prompt, whose run keeps its logits, in several orders; see compare_orders."""

    @torch.inference_mode()
    def work(control: RunControl) -> Coroutine[None]:
        runs = [run.reorder(order) for order in orders]
        batch = [(yield from runs[0].prefill(control))]
        num_bytes = sum(answer.num_bytes(run.max_new_tokens) for answer in batch[0])
        max_size = max(1, BYTES_AT_ONCE // num_bytes)
        # The first order is decoded alone, so that a comparison is shown early.
        sizes = [1, *(min(max_size, len(orders) - first) for first in range(1, len(orders), max_size))]
        # A batch of one uses a different GEMM kernel, and without oneDNN every batch size may.
        batch_size = max(2, max(sizes) * len(batch[0]))
        at_once = max(1, MAX_PREFILL_TOKENS // run.layout.num_tokens)
        reference: RunResult | None = None
        finished = 0

        def report_finished() -> None:
            nonlocal reference, finished
            while batch and all(answer.finish_reason for answer in batch[0]):
                answers_of_order = batch.pop(0)
                result = runs[finished].result(answers_of_order)
                reference = reference or result
                rows = {answer.method: answer.rows[0] for answer in answers_of_order}
                comparisons = compare(run.model, reference, result, rows)
                control.report(OrderResult(orders[finished], comparisons, result))
                finished += 1

        for size in sizes:
            missing = runs[finished + len(batch) : finished + size]
            for first in range(0, len(missing), at_once):
                batch += yield from prefill_runs(missing[first : first + at_once], control)
            answers = run.decode(
                list(itertools.chain(*batch)), control, batch_size=batch_size, num_requests=size
            )
            for step in answers:
                report_finished()
                yield step
            report_finished()

    return stream_shared(work)


def compare(
    model: PreparedModel, first: RunResult, other: RunResult, rows: Mapping[str, SequenceState]
) -> dict[str, OrderComparison]:
    """Compare the answer of each method with that in the first order; rows: states after the other run."""
    comparisons = {}
    for method, answer in other.answers.items():
        reference = first.answers[method]
        pairs = enumerate(itertools.zip_longest(reference.token_ids, answer.token_ids))
        difference = next((index for index, (one, another) in pairs if one != another), None)
        logits, reference_logits = other.logits[method], first.logits[method]
        comparable = min(len(logits), len(reference_logits))
        if difference is not None:
            comparable = min(comparable, other.layout.suffix_length + difference)
        logits, reference_logits = logits[:comparable], reference_logits[:comparable]
        # Logits that are minus infinity in both are equal.
        differences = (logits - reference_logits).abs().masked_fill(logits == reference_logits, 0)
        comparisons[method] = OrderComparison(
            answer=answer,
            same_text=answer.content == reference.content,
            first_difference=difference,
            max_abs_logit_diff=differences.max().item(),
            bitwise_identical=difference is None and torch.equal(logits, reference_logits),
            reference_logprob=_reference_logprob(reference, other, rows[method], difference),
            token_text=_token_text(model, answer, difference),
            reference_token_text=_token_text(model, reference, difference),
        )
    return comparisons


def _token_text(model: PreparedModel, answer: Answer, index: int | None) -> str | None:
    if index is None or index >= len(answer.token_ids) or model.tokenizer is None:
        return None
    return model.decode_tokens([answer.token_ids[index]])[0]


@torch.inference_mode()
def _reference_logprob(
    reference: Answer, other: RunResult, row: SequenceState, difference: int | None
) -> float:
    """Return OrderComparison.reference_logprob, scored after truncating the cache to the first difference."""
    ids, logprobs = reference.token_ids, other.answers[reference.method].logprobs
    if difference is None or difference == len(ids):
        return sum(logprobs[: len(ids)], 0.0)
    num_extra = row.num_cached_tokens() - row.state.plan.layout.num_tokens - difference
    row.cache.truncate(row.cache.length - num_extra)
    last = other.layout.suffix_length - 1 + difference
    logits = other.logits[reference.method][last : last + 1].to(input_device(row.state.patched_model.network))
    (rest,) = score_answers([row], [logits], reference.text, ids[difference:])
    return sum([*logprobs[:difference], *rest.logprobs])
