"""What comparisons of orders and the self-test found, as plain JSON objects."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pine_engine.methods.table import METHODS

if TYPE_CHECKING:
    from pine_engine.engine.engine import Engine
    from pine_engine.engine.orders import OrderSummary
    from pine_engine.invariance.kernels import Check


def verify_report(
    engine: "Engine", summaries: Sequence[tuple[str, dict[str, "OrderSummary"]]]
) -> dict[str, Any]:
    """Invariance of each method on each row, and over all rows.

    summaries: pairs of a row's id and its methods' summaries. In the summary, kept_promise is None for
    a method that promises nothing.
    """
    rows: list[dict[str, Any]] = [
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


def broken_promises(report: dict[str, Any]) -> list[str]:
    """Methods that promise invariance and did not keep it, by name."""
    return [name for name, summary in report["summary"].items() if summary["kept_promise"] is False]


def selftest_report(engine: "Engine", checks: Sequence["Check"]) -> dict[str, Any]:
    """All checks of a self-test, and whether those that were promised hold."""
    return {
        "model": engine.model_name,
        "dtype": engine.dtype,
        "device": engine.device,
        "checks": [dataclasses.asdict(check) for check in checks],
        "passed": all(check.holds for check in checks if check.is_promised),
    }


def _over_rows(method: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    bitwise_equal = all(row["bitwise_equal"] for row in rows)
    return {
        "rows": len(rows),
        "orders": sum(row["orders"] for row in rows),
        "rows_with_one_text": sum(row["distinct_texts"] == 1 for row in rows),
        "max_abs_logit_diff": max(row["max_abs_logit_diff"] for row in rows),
        "bitwise_equal": bitwise_equal,
        "kept_promise": bitwise_equal if METHODS[method].promises_invariance else None,
    }
