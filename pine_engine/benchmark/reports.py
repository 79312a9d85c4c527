"""Times and shares of time: as a plain JSON object, and as rows for people."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pine_engine.benchmark.profiling import Share
    from pine_engine.engine.engine import Engine
    from pine_engine.prompts.layout import TokenLayout

SMALLEST_SHARE = 0.01
"""Places that take less time than this are left out of the table of `bench --profile`."""


def bench_rows(report: dict[str, Any], *, sizes: bool = False) -> list[dict[str, Any]]:
    """The report of one benchmark for people: the stock model, each method, all of them decoding together.

    "x" is the ratio to the stock model, "traced" the ratio to the same run without trace.
    sizes: with the prompt's tokens and documents.
    """
    lead = {"tokens": report["n"], "documents": report["documents"]} if sizes else {}
    rows: list[dict[str, Any]] = []
    for name, values in {"stock": report["stock"], **report["methods"]}.items():
        row = {
            "method": name,
            **lead,
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
        rows.append({"method": "all together", **lead, "decode per token": step})
    return rows


def _peak(values: dict[str, Any]) -> float:
    peak: float = values["peak_device_mb" if "peak_device_mb" in values else "peak_rss_mb"]
    return peak


def profile_report(
    engine: "Engine", shares: "Sequence[tuple[TokenLayout, dict[str, dict[str, list[Share]]]]]"
) -> dict[str, Any]:
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


def profile_rows(report: dict[str, Any], *, sizes: bool = False) -> list[dict[str, Any]]:
    """The places that take at least one percent, in rows; sizes: with the prompt's tokens and documents."""
    return [
        {
            "method": profile["method"],
            "part": profile["part"],
            **({"tokens": profile["n"], "documents": profile["documents"]} if sizes else {}),
            "where": place["where"],
            "share": f"{place['share']:.1%}",
        }
        for profile in report["profiles"]
        for place in profile["places"]
        if place["share"] >= SMALLEST_SHARE
    ]
