"""Runs of one prompt in several document orders, compared with the first order."""

import itertools
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Unpack

import torch

from pine_engine.attention.state import SequenceState, input_device
from pine_engine.engine.events import Answer, Event, RunResult
from pine_engine.engine.likelihood import score_answers
from pine_engine.engine.order_results import OrderComparison, OrderResult
from pine_engine.engine.prepared_model import BYTES_AT_ONCE, PreparedModel, check_engine
from pine_engine.engine.run import PreparedRun, RunOptions, prefill_runs, prepare_run
from pine_engine.errors import InputError
from pine_engine.input_validation import as_int, as_ints, describe, sequence
from pine_engine.prompts.layout import PLACES, TokenLayout
from pine_engine.prompts.orders import sample_orders
from pine_engine.prompts.prompt import Prompt
from pine_engine.scheduling.scheduler import Coroutine, stream_shared
from pine_engine.scheduling.worker import RunControl

MAX_PREFILL_TOKENS = 1024
"""Maximum number of tokens in one batch of several orders' prefills, which limits its memory."""


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
