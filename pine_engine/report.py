"""Results as plain JSON objects: the shapes that the command line prints and the page's API returns."""

from collections.abc import Sequence
from typing import Any

from pine_engine.engine import Engine
from pine_engine.events import RunResult
from pine_engine.invariance import OrderSummary
from pine_engine.methods import METHODS

Json = dict[str, Any]


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


def broken_promises(report: Json) -> list[str]:
    """Methods that promise invariance and did not keep it, by name."""
    return [name for name, summary in report["summary"].items() if summary["kept_promise"] is False]


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
