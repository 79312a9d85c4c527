"""Answers of /health and /metrics."""

from collections.abc import Mapping
from typing import Any

import pine_engine as pine
from pine_engine.scheduling.runs import Runs


def health_record(status: str, model: str | None, runs: Runs, uptime_s: float) -> dict[str, Any]:
    """Return the answer of /health, on the page and on the OpenAI server.

    Args:
        status: "ready", or the stage of a model that is not.
        model: Name of the model; None before it is loaded.
        runs: Runs of the process.
        uptime_s: Seconds since the start of the process.
    """
    return {
        "status": status,
        "model": model,
        "version": pine.__version__,
        "uptime_s": round(uptime_s, 1),
        "runs": runs.outcomes.total(),
        "running": runs.num_running,
        "failures": runs.outcomes["failed"],
        "waiting": runs.queue.waiting,
    }


def metrics_text(gauges: Mapping[str, float], counters: Mapping[str, tuple[str, Mapping[str, int]]]) -> str:
    """Return metrics in the text format of Prometheus.

    Args:
        gauges: Values by name.
        counters: Label, and counts by value of the label, by name.
    """
    lines = [f"# TYPE pine_{name} gauge\npine_{name} {value}" for name, value in gauges.items()]
    for name, (label, counts) in counters.items():
        lines.append(f"# TYPE pine_{name}_total counter")
        lines += [f'pine_{name}_total{{{label}="{key}"}} {count}' for key, count in counts.items()]
    return "\n".join(lines) + "\n"
