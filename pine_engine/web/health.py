"""Answers of /health and /metrics."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.responses import Response

import pine_engine as pine
from pine_engine.scheduling.runs import Runs

HELP = {
    "ready": "1 if the model is loaded, else 0.",
    "running": "Runs that are computed or follow one that is.",
    "waiting": "Runs in the queue.",
    "sessions": "Sessions in memory.",
    "uptime_seconds": "Seconds since the start of the process.",
    "requests": "Requests that ended, by outcome.",
    "runs": "Runs that ended, by outcome.",
    "tokens": "Tokens of prompts and answers.",
}
"""Descriptions of the metrics, by name without prefix."""


def health_record(status: str, model: str | None, runs: Runs, uptime_s: float) -> dict[str, Any]:
    """Return the answer of /health, on the page and on the OpenAI server.

    The status is "ready", or the stage of a model that is not. The model is None before it is loaded.
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


class Metrics(NamedTuple):
    """Values of this process at one time, as a collector of prometheus-client.

    Attributes:
        gauges: Values by name.
        counters: Label, and counts by value of the label, by name.
    """

    gauges: Mapping[str, float]
    counters: Mapping[str, tuple[str, Mapping[str, int]]]

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics under their public names."""
        for name, value in self.gauges.items():
            yield GaugeMetricFamily(f"pine_{name}", HELP[name], value)
        for name, (label, counts) in self.counters.items():
            family = CounterMetricFamily(f"pine_{name}", HELP[name], labels=[label])
            for key, count in counts.items():
                family.add_metric([key], count)
            yield family

    def response(self) -> Response:
        """Return the metrics in the text format of Prometheus."""
        return Response(generate_latest(self), media_type=CONTENT_TYPE_LATEST)
