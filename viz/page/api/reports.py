"""JSON results of the API endpoints, from the state of a run."""

from collections.abc import Sequence
from typing import Any

import numpy as np

import pine_engine as pine
from pine_engine.engine.events import trace_report
from pine_engine.methods.table import METHODS
from pine_engine.prompts.tasks import TASKS, USUAL_TASK
from viz.page.answers.shown import Shown
from viz.page.api.results import (
    AnswersInOrder,
    Compared,
    DocumentSeen,
    LeftOut,
    MethodLeftOut,
    MethodOrders,
    MethodTrace,
    OrderAnswer,
    Shuffled,
    Traced,
)
from viz.page.internals.left_out_job import LeftOutView


def compared(view: Shown, accepted: Sequence[str]) -> Compared | None:
    """Return the answers of all methods; None before the end of the run."""
    run = view.run
    if run is None:
        return None
    report = run.result.to_dict()
    for answer in report["results"]:
        answer["is_correct"] = _is_correct(answer["text"], accepted)
    header = {"model": run.model, "dtype": run.dtype, "repeated": run.repeats}
    return Compared.model_validate(header | report)


def shuffled(view: Shown, accepted: Sequence[str]) -> Shuffled | None:
    """Return the answers of the finished orders; None before the first."""
    run = view.run
    if run is None:
        return None
    orders = [
        AnswersInOrder(
            order=list(row.order),
            answers=[
                OrderAnswer(
                    method=method,
                    text=cell.answer.text,
                    is_correct=_is_correct(cell.answer.text, accepted),
                    same_as_first=cell.same_text,
                    max_abs_logit_diff=cell.max_abs_logit_diff,
                    bitwise_identical=cell.bitwise_identical,
                )
                for method, cell in row.comparisons.items()
            ],
        )
        for row in run.comparisons
    ]
    methods = []
    stats = pine.summarize_orders([row.comparisons for row in run.comparisons])
    for place, (method, found) in enumerate(stats.items()):
        right = [bool(order.answers[place].is_correct) for order in orders]
        methods.append(
            MethodOrders(
                method=method,
                num_correct=sum(right) if accepted else None,
                invariance_held=(
                    all(row.comparisons[method].is_unchanged for row in run.comparisons)
                    if METHODS[method].is_order_invariant
                    else None
                ),
                **vars(found),
            )
        )
    return Shuffled(model=run.model, dtype=run.dtype, repeated=run.repeats, methods=methods, orders=orders)


def traced(view: Shown, *, arrays: bool) -> Traced | None:
    """Return the trace over all layers and heads, optionally with arrays; None before the end of the run."""
    run = view.run
    if run is None:
        return None
    report = trace_report(run.result)
    lengths = report.pop("document_tokens")
    results = [_method_trace(seen, lengths, arrays=arrays) for seen in report.pop("results")]
    return Traced(model=run.model, dtype=run.dtype, **report, results=results)


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


def left_out(view: LeftOutView) -> LeftOut | None:
    """Return the scores of the methods that are complete; None before the first."""
    done = [MethodLeftOut.model_validate(one.to_dict()) for one in view.complete]
    return LeftOut(model=view.model, dtype=view.complete[0].dtype, results=done) if done else None


def _is_correct(text: str, accepted: Sequence[str]) -> bool | None:
    """Check whether an answer contains an accepted one as whole words; None without accepted answers."""
    return TASKS[USUAL_TASK].score(text, accepted) == 1 if accepted else None
