"""Runs of one prompt in several document orders, compared with the first order."""

import itertools
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Unpack

import torch

from pine_engine.attention.state import SequenceState, input_device
from pine_engine.engine.events import Answer, Event, RunResult
from pine_engine.engine.generation import ActiveGeneration
from pine_engine.engine.likelihood import score_answers
from pine_engine.engine.order_results import OrderComparison, OrderResult
from pine_engine.engine.prepared_model import BYTES_AT_ONCE, PreparedModel, check_engine
from pine_engine.engine.run import PreparedRun, RunOptions, prefill_runs, prepare_run
from pine_engine.errors import InputError
from pine_engine.input_validation import as_int, as_ints, describe, sequence
from pine_engine.methods.table import Method, compared_pair
from pine_engine.prompts.layout import PLACES, TokenLayout
from pine_engine.prompts.orders import sample_orders
from pine_engine.prompts.prompt import Prompt
from pine_engine.scheduling.scheduler import Coroutine, stream_shared
from pine_engine.scheduling.worker import RunControl

NUM_EARLY_ORDERS = 2
"""Number of orders in which the compared pair of methods is answered before all others."""

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
    has its own prefill. Two methods (`compared_pair`) are answered first, in two orders; then all others in
    as many orders as fit in memory. Short prompts are prefilled in one batch, and answers decoded in one, so
    that events are interleaved. Closing the generator stops the model.

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
        batches = _batches(run, len(orders))
        # A batch of one uses a different GEMM kernel, and without oneDNN every batch size may.
        batch_size = max(2, *(num_rows for *_, num_rows in batches))
        at_once = max(1, MAX_PREFILL_TOKENS // run.layout.num_tokens)
        answers: dict[int, dict[Method, ActiveGeneration]] = {index: {} for index in range(len(runs))}
        reference: RunResult | None = None

        def report_finished() -> None:
            nonlocal reference
            while answers and len(found := answers[index := min(answers)]) == len(run.methods):
                if not all(answer.finish_reason for answer in found.values()):
                    return
                del answers[index]
                result = runs[index].result([found[method] for method in run.methods])
                reference = reference or result
                rows = {answer.method: answer.rows[0] for answer in found.values()}
                comparisons = compare(run.model, reference, result, rows)
                control.report(OrderResult(orders[index], comparisons, result))

        for indices, methods, _ in batches:
            new = []
            for first in range(0, len(indices), at_once):
                part = {index: runs[index] for index in indices[first : first + at_once] if index in answers}
                new += yield from prefill_runs(part, methods, answers, control)
            num_orders = len({answer.index for answer in new})
            for step in run.decode(new, control, batch_size=batch_size, num_requests=num_orders):
                report_finished()
                yield step
            report_finished()

    return stream_shared(work)


def _batches(run: PreparedRun, num_orders: int) -> list[tuple[range, Sequence[Method], int]]:
    """Return the indices of the orders, the methods, and the number of new answers of each batch.

    The first batch has the compared pair of methods in the first orders, so that both are shown early. A
    later one has all missing answers of as many orders as fit in memory.
    """
    methods, indices = run.methods, range(num_orders)
    num_bytes = run.model.answer_bytes(
        run.layout, methods, run.max_new_tokens, return_logits=run.return_logits
    )
    at_once = max(1, int(BYTES_AT_ONCE // num_bytes))
    early = indices[: min(NUM_EARLY_ORDERS, at_once)]
    first_methods = _early_methods(methods) if num_orders > 1 else methods
    num_early = len(early) * len(first_methods)
    batches: list[tuple[range, Sequence[Method], int]] = [(early, first_methods, num_early)]
    for first in range(0, num_orders, at_once):
        part = indices[first : first + at_once]
        batches.append((part, methods, len(part) * len(methods) - (0 if first else num_early)))
    return [batch for batch in batches if batch[2]]


def _early_methods(methods: Sequence[Method]) -> list[Method]:
    """Return the compared pair, and the methods whose prefix the pair reuses in a run of all methods."""
    pair = compared_pair(methods)
    first_of = {method.prefix_encoding: method for method in reversed(methods)}
    sources = [first_of[method.prefix_encoding] for method in pair]
    return [method for method in methods if method in (*pair, *sources)]


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
