"""What somebody waits for in front of the page, against one answer of the stock model of the same length."""

import functools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import torch

from pine_engine.benchmark.speed import Advance, time_stock
from pine_engine.benchmark.workload import Workload
from pine_engine.engine.engine import Engine
from pine_engine.methods.table import METHODS, get_methods
from pine_engine.prompts.layout import TokenLayout

ORDERS = 6
"""Orders of a shuffle, or as many as there are."""

JOBS = {
    "run": "the default methods, traced, returned at once",
    "generate": "the same, told as they are written",
    "beside": "the first of these beside a busy process",
    "shuffle": f"up to {ORDERS} orders under the default methods and the controls, traced and compared",
}


_BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    pass"


def num_steps(repeats: int) -> int:
    """How often one measurement calls `advance`."""
    return (repeats + 1) * (len(JOBS) + 1)


def measure_live(
    engine: Engine, work: Workload, layout: TokenLayout, repeats: int, advance: Advance
) -> dict[str, Any]:
    """Times whole jobs from prompt to last token, in turns with one answer of the stock model.

    layout: work.layout_for(engine). repeats: rounds; one more is run first and not counted. Returns the JSON
    object of `bench --end-to-end`: median seconds of the stock answer and of each job; the median of its
    ratios to the stock answer of the same round; and those of generate, and of a run with a busy
    neighbour, to run.
    """
    jobs = _jobs(engine, layout, work.new_tokens)
    stock: list[float] = []
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(repeats + 1):
        advance(f"round {number} of {repeats}: stock")
        stock.append(time_stock(engine.model, layout, work.new_tokens).end_to_end(work.new_tokens))
        for name, job in jobs.items():
            advance(f"round {number} of {repeats}: {name}")
            began = time.perf_counter()
            job()
            seconds[name].append(time.perf_counter() - began)
    counted = {name: times[1:] for name, times in seconds.items()}
    return {
        "n": layout.num_tokens,
        "documents": layout.num_documents,
        "new_tokens": work.new_tokens,
        "dtype": engine.dtype,
        "threads": torch.get_num_threads(),
        "stock_s": round(median(stock[1:]), 3),
        "jobs": {
            name: {"seconds": round(median(times), 3), "ratio": _ratio(times, stock[1:])}
            for name, times in counted.items()
        },
        "generate_over_run": _ratio(counted["generate"], counted["run"]),
        "beside_over_run": _ratio(counted["beside"], counted["run"]),
    }


def live_rows(report: dict[str, Any]) -> list[dict[str, Any]]:
    """The report of measure_live for people."""
    stock = {"job": "stock, one answer", "seconds": f"{report['stock_s']:.3g} s"}
    return [
        stock,
        *(
            {
                "job": JOBS[name],
                "seconds": f"{values['seconds']:.3g} s",
                "over stock": f"{values['ratio']:.2f}x",
            }
            for name, values in report["jobs"].items()
        ),
    ]


def _jobs(engine: Engine, layout: TokenLayout, new_tokens: int) -> dict[str, Callable[[], object]]:
    of_all: dict[str, Any] = {"max_new_tokens": new_tokens, "stop_at_eos": False, "trace": True}
    methods = [*get_methods(None), *(row for row in METHODS.values() if row.role == "control")]
    shuffled = list(dict.fromkeys(row.name for row in methods))

    def run_beside() -> None:
        with _busy_neighbour():
            engine.run(layout, **of_all)

    return {
        "run": functools.partial(engine.run, layout, **of_all),
        "generate": lambda: list(engine.generate(layout, **of_all)),
        "beside": run_beside,
        "shuffle": functools.partial(engine.shuffle, layout, methods=shuffled, count=ORDERS, **of_all),
    }


@contextmanager
def _busy_neighbour() -> Iterator[None]:
    """Another process that computes all the time, and ends with this one."""
    process = subprocess.Popen([sys.executable, "-c", _BUSY])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _ratio(times: list[float], others: list[float]) -> float:
    """The median of the ratios of each round."""
    return round(median(one / other for one, other in zip(times, others, strict=True)), 3)
