"""Conversion of runs to API results."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pine_engine.methods.table import METHODS
from pine_engine.prompts.tasks import USUAL_TASK, get_task
from viz.page.api.results import (
    AnswersInOrder,
    ApiResult,
    DocumentSeen,
    MethodOrders,
    MethodTrace,
    OrderAnswer,
    Shuffled,
    Traced,
)

if TYPE_CHECKING:  # importing the engine imports torch, which would keep the page waiting
    from pine_engine.engine.orders import OrderComparison, OrderResult


def as_json(result: ApiResult) -> dict[str, Any]:
    """Return the result as a JSON object; the caller sets `stop_reason`."""
    return result.model_dump(mode="json", exclude={"stop_reason"})


def is_correct(text: str, accepted: Sequence[str]) -> bool | None:
    """Check whether an answer contains an accepted one; None without accepted answers."""
    return get_task(USUAL_TASK).score(text, accepted) == 1 if accepted else None


def shuffled_result(
    model: str, dtype: str, rows: "Sequence[OrderResult]", accepted: Sequence[str]
) -> Shuffled:
    """Return the result of the orders done so far."""
    from pine_engine.engine.orders import summarize_orders

    def answer(method: str, cell: "OrderComparison") -> OrderAnswer:
        return OrderAnswer(
            method=method,
            text=cell.answer.text,
            is_correct=is_correct(cell.answer.text, accepted),
            same_as_first=cell.same_text,
            max_abs_logit_diff=_number(cell.max_abs_logit_diff),
            bitwise_identical=cell.bitwise_identical,
        )

    orders = [
        AnswersInOrder(order=list(row.order), answers=[answer(*one) for one in row.comparisons.items()])
        for row in rows
    ]
    methods = []
    for place, (method, summary) in enumerate(summarize_orders([row.comparisons for row in rows]).items()):
        right = [bool(order.answers[place].is_correct) for order in orders]
        methods.append(
            MethodOrders(
                method=method,
                orders=summary.orders,
                num_distinct_answers=summary.num_distinct_answers,
                num_correct=sum(right) if accepted else None,
                max_abs_logit_diff=_number(summary.max_abs_logit_diff),
                bitwise_identical=summary.bitwise_identical,
                invariance_held=summary.bitwise_identical if METHODS[method].is_order_invariant else None,
            )
        )
    return Shuffled(model=model, dtype=dtype, methods=methods, orders=orders)


def traced_result(report: dict[str, Any], *, arrays: bool) -> Traced:
    """Return the report of engine/events.py over all layers and heads, optionally with arrays."""
    lengths = report["document_tokens"]
    return Traced(
        model=report["model"],
        dtype=report["dtype"],
        prefix_tokens=report["prefix_tokens"],
        suffix_tokens=report["suffix_tokens"],
        results=[_method_trace(seen, lengths, arrays=arrays) for seen in report["results"]],
    )


def _method_trace(seen: dict[str, Any], lengths: Sequence[int], *, arrays: bool) -> MethodTrace:
    starts = np.array(seen["starts"])
    importance, attention = (
        None if seen[name] is None else np.array(seen[name]).mean((0, 1))
        for name in ("importance", "attention")
    )
    shares = [None] * (len(lengths) + 2) if attention is None else attention.tolist()
    documents = [
        DocumentSeen(
            tokens=length,
            starts=(
                int(starts[..., place].min()),
                float(starts[..., place].mean()),
                int(starts[..., place].max()),
            ),
            importance=None if importance is None else float(importance[place]),
            attention=shares[1 + place],
        )
        for place, length in enumerate(lengths)
    ]
    return MethodTrace(
        method=seen["method"],
        text=seen["text"],
        documents=documents,
        prefix_attention=shares[0],
        suffix_attention=shares[-1],
        **{name: seen[name] if arrays else None for name in ("starts", "importance", "attention")},
    )


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
