"""JSON results of the API calls, from the records of a run; `results.toml` has their schemas."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

import pine_engine as pine
from pine_engine.engine.events import trace_report
from pine_engine.prompts.tasks import TASKS, USUAL_TASK
from viz.page.answers.run import Run
from viz.page.answers.shown import Shown
from viz.page.internals.left_out_job import LeftOutView


def compared(view: Shown, accepted: Sequence[str]) -> dict[str, Any] | None:
    """Return the answers of all methods; None before the end of the run."""
    if (run := view.run) is None:
        return None
    results = [
        {
            "method": answer.method,
            "text": answer.text,
            "is_correct": _is_correct(answer.text, accepted),
            "tokens": answer.num_tokens,
            **answer.times,
        }
        for answer in run.result.answers.values()
    ]
    return _header(run) | {"results": results}


def shuffled(view: Shown, accepted: Sequence[str]) -> dict[str, Any] | None:
    """Return the answers of the finished orders; None before the first."""
    if (run := view.run) is None:
        return None
    found = pine.ShuffleResult(tuple(run.comparisons))
    methods = [
        {
            "method": method,
            "orders": stats.orders,
            "num_distinct_answers": stats.num_distinct_answers,
            "num_correct": (
                sum(bool(_is_correct(text, accepted)) for text in found.answers[method]) if accepted else None
            ),
            "max_abs_logit_diff": _known(stats.max_abs_logit_diff),
            "bitwise_identical": stats.bitwise_identical,
            "invariance_held": found.invariance_held[method],
        }
        for method, stats in found.summary.items()
    ]
    orders = [
        {
            "order": list(row.order),
            "answers": [_in_order(method, cell, accepted) for method, cell in row.comparisons.items()],
        }
        for row in found.results
    ]
    return _header(run) | {"methods": methods, "orders": orders}


def _in_order(method: str, cell: "pine.OrderComparison", accepted: Sequence[str]) -> dict[str, Any]:
    return {
        "method": method,
        "text": cell.text,
        "is_correct": _is_correct(cell.text, accepted),
        "same_as_first": cell.same_text,
        "max_abs_logit_diff": _known(cell.max_abs_logit_diff),
        "bitwise_identical": cell.bitwise_identical,
    }


def traced(view: Shown, *, arrays: bool) -> dict[str, Any] | None:
    """Return the trace over all layers and heads, optionally with arrays; None before the end of the run."""
    if (run := view.run) is None:
        return None
    report = trace_report(run.result)
    lengths = report.pop("document_tokens")
    results = [_method_trace(seen, lengths, arrays=arrays) for seen in report.pop("results")]
    return _header(run) | report | {"results": results}


def _method_trace(seen: dict[str, Any], lengths: Sequence[int], *, arrays: bool) -> dict[str, Any]:
    starts = np.array(seen["starts"])
    importance, attention = (
        None if seen[name] is None else np.array(seen[name]).mean((0, 1)).tolist()
        for name in ("importance", "attention")
    )
    shares = attention or [None] * (len(lengths) + 2)
    documents = [
        {
            "tokens": length,
            "starts": [int(at.min()), float(at.mean()), int(at.max())],
            "importance": None if importance is None else importance[place],
            "attention": shares[1 + place],
        }
        for place, (length, at) in enumerate(zip(lengths, np.moveaxis(starts, -1, 0), strict=True))
    ]
    return {
        "method": seen["method"],
        "text": seen["text"],
        "documents": documents,
        "prefix_attention": shares[0],
        "suffix_attention": shares[-1],
        **{name: seen[name] if arrays else None for name in ("starts", "importance", "attention")},
    }


def left_out(view: LeftOutView) -> dict[str, Any] | None:
    """Return the scores of the methods that are complete; None before the first."""
    done = [one.to_dict() for one in view.complete]
    dtypes = [one.pop("dtype") for one in done]
    return {"model": view.model, "dtype": dtypes[0], "results": done} if done else None


def _header(run: Run) -> dict[str, Any]:
    """Return the fields of every result."""
    repeated = {"repeated": asdict(run.repeats)} if run.repeats is not None else {}
    return {"model": run.model, "dtype": run.dtype, **repeated}


def _known(difference: float) -> float | None:
    """Return a logit difference; None for NaN and infinity, which JSON does not have."""
    return difference if math.isfinite(difference) else None


def _is_correct(text: str, accepted: Sequence[str]) -> bool | None:
    """Check whether an answer contains an accepted one as whole words; None without accepted answers."""
    return TASKS[USUAL_TASK].score(text, accepted) == 1 if accepted else None
