"""Results as plain JSON objects: the shapes that the command line prints and the page's API returns."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pine_engine.benchmark.profiling import Share
from pine_engine.engine.engine import Engine
from pine_engine.engine.events import RunResult
from pine_engine.engine.orders import OrderSummary
from pine_engine.invariance.kernels import Check
from pine_engine.methods.table import METHODS
from pine_engine.prompts.layout import TokenLayout

Json = dict[str, Any]

SMALLEST_SHARE = 0.01
"""Places that take less time than this are left out of the table of `bench --profile`."""


def compare_report(engine: Engine, result: RunResult) -> Json:
    """Answers of one run: model, dtype, and for each method text, tokens, and times in seconds."""
    return {
        "model": engine.model_name,
        "dtype": engine.dtype,
        "results": [
            {
                "method": answer.method,
                "text": answer.text,
                "tokens": len(answer.token_ids),
                "prefill_s": answer.prefill_s,
                "decode_s_per_token": answer.decode_s_per_token,
            }
            for answer in result.answers.values()
        ],
    }


def trace_report(engine: Engine, result: RunResult) -> Json:
    """What the last token of the prompt, which writes the answer's first, sees of the documents.

    For each method of a traced run by layer, query head and document in input order: the position of its
    first token, its importance (None for methods that do not rank), and the share of attention that goes to
    the prefix, each document and the suffix. Methods that place alike everywhere have one layer and head.
    """
    return {"model": engine.model_name, "dtype": engine.dtype, **traced(result)}


def traced(result: RunResult) -> Json:
    """The report of a trace, without the model's name and dtype."""
    layout, last = result.layout, result.layout.suffix_length - 1
    return {
        "prefix_tokens": layout.prefix_length,
        "document_tokens": layout.lengths.tolist(),
        "suffix_tokens": layout.suffix_length,
        "results": [
            {
                "method": method,
                "text": result.answers[method].text,
                "starts": trace.suffix_starts[:, :, last].tolist(),
                "importance": _at(trace.suffix_importance, last),
                "attention": _at(trace.suffix_attention, last),
            }
            for method, trace in result.traces.items()
        ],
    }


def _at(values: NDArray[np.float32] | None, query: int) -> Json | None:
    return None if values is None else values[:, :, query].tolist()


def verify_report(engine: Engine, summaries: Sequence[tuple[str, dict[str, OrderSummary]]]) -> Json:
    """Invariance of each method on each row, and over all rows.

    summaries: pairs of a row's id and its methods' summaries. In the summary, kept_promise is None for
    a method that promises nothing.
    """
    rows: list[Json] = [
        {
            "id": row_id,
            "method": method,
            "orders": summary.orders,
            "distinct_texts": summary.distinct_texts,
            "max_abs_logit_diff": summary.max_abs_logit_diff,
            "bitwise_equal": summary.bitwise_equal,
        }
        for row_id, by_method in summaries
        for method, summary in by_method.items()
    ]
    names = list(dict.fromkeys(row["method"] for row in rows))
    return {
        "model": engine.model_name,
        "dtype": engine.dtype,
        "rows": rows,
        "summary": {name: _over_rows(name, [row for row in rows if row["method"] == name]) for name in names},
    }


def bench_rows(report: Json, *, sizes: bool = False) -> list[Json]:
    """The report of one benchmark for people: the stock model, each method, all of them decoding together.

    "x" is the ratio to the stock model, "traced" the ratio to the same run without trace.
    sizes: lead with the prompt's tokens and documents.
    """
    rows: list[Json] = []
    for name, values in {"stock": report["stock"], **report["methods"]}.items():
        row = {
            "method": name,
            "prefill": f"{values['prefill_s']:.3g} s",
            "decode per token": f"{1000 * values['decode_s_per_token']:.3g} ms",
            "end to end": "-",
            "peak memory": f"{_peak(values):,.0f} MB",
        }
        if name != "stock":
            row["prefill"] += f", {values['prefill_ratio']:.2f}x"
            row["decode per token"] += f", {values['decode_ratio']:.2f}x"
            row["end to end"] = f"{values['end_to_end_ratio']:.2f}x"
            row["peak memory"] = f"{values['memory_over_stock_mb']:+,.0f} MB"
        if "trace_end_to_end_ratio" in values:
            row["traced"] = f"{values['trace_end_to_end_ratio']:.2f}x"
        rows.append(row)
    together = report["together"]
    if len(together["methods"]) > 1:
        step = f"{1000 * together['decode_s_per_step']:.3g} ms, {together['decode_ratio']:.2f}x"
        rows.append({"method": "all together", "decode per token": step})
    lead = {"n": report["n"], "documents": report["documents"]} if sizes else {}
    return [{**lead, **row} for row in rows]


def _peak(values: Json) -> float:
    peak: float = values["peak_device_mb" if "peak_device_mb" in values else "peak_rss_mb"]
    return peak


def profile_report(
    engine: Engine, shares: Sequence[tuple[TokenLayout, dict[str, dict[str, list[Share]]]]]
) -> Json:
    """Where time goes: for each prompt and method, the shares of prefill and of decoding."""
    return {
        "model": engine.model_name,
        "dtype": engine.dtype,
        "profiles": [
            {
                "n": layout.num_tokens,
                "documents": layout.num_documents,
                "method": name,
                "part": part,
                "places": [dataclasses.asdict(share) for share in places],
            }
            for layout, by_method in shares
            for name, parts in by_method.items()
            for part, places in parts.items()
        ],
    }


def profile_rows(report: Json) -> list[Json]:
    """The places that take at least one percent, in rows."""
    return [
        {
            **{key: profile[key] for key in ("n", "documents", "method", "part")},
            "where": place["where"],
            "share": f"{place['share']:.1%}",
        }
        for profile in report["profiles"]
        for place in profile["places"]
        if place["share"] >= SMALLEST_SHARE
    ]


def broken_promises(report: Json) -> list[str]:
    """Methods that promise invariance and did not keep it, by name."""
    return [name for name, summary in report["summary"].items() if summary["kept_promise"] is False]


def selftest_report(engine: Engine, checks: Sequence[Check]) -> Json:
    """All checks of a self-test, and whether those that were promised hold."""
    return {
        "model": engine.model_name,
        "dtype": engine.dtype,
        "device": engine.device,
        "checks": [dataclasses.asdict(check) for check in checks],
        "passed": all(check.holds for check in checks if check.is_promised),
    }


def _over_rows(method: str, rows: list[Json]) -> Json:
    bitwise_equal = all(row["bitwise_equal"] for row in rows)
    return {
        "rows": len(rows),
        "orders": sum(row["orders"] for row in rows),
        "rows_with_one_text": sum(row["distinct_texts"] == 1 for row in rows),
        "max_abs_logit_diff": max(row["max_abs_logit_diff"] for row in rows),
        "bitwise_equal": bitwise_equal,
        "kept_promise": bitwise_equal if METHODS[method].promises_invariance else None,
    }
