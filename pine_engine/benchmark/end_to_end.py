"""Times of whole jobs of the page, and profiles by operation."""

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from pine_engine.attention.state import input_device
from pine_engine.benchmark.throughput import Advance, time_stock
from pine_engine.benchmark.workload import Workload
from pine_engine.engine import passes
from pine_engine.engine.engine import Engine
from pine_engine.methods.table import METHODS, get_methods
from pine_engine.prompts.layout import TokenLayout

NUM_ORDERS = 6  # maximum number of orders of the shuffle

JOBS = {
    "run": "default methods, traced, one result",
    "generate": "default methods, traced, one event per token",
    "beside": "as run, while another process uses a core",
    "shuffle": f"up to {NUM_ORDERS} orders, default methods and controls, traced",
}

BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    pass"
"""Code of a process that uses a core until its parent ends."""


def num_steps(repeats: int) -> int:
    """Return the number of calls of `advance` in `measure_jobs`."""
    return (repeats + 1) * (len(JOBS) + 1)


def measure_jobs(
    engine: Engine, work: Workload, layout: TokenLayout, repeats: int, advance: Advance
) -> dict[str, Any]:
    """Time jobs from prompt to last token, in turns with one answer of the stock model.

    Returns the JSON object of `bench --end-to-end`: medians over the rounds after a warm-up round, in
    seconds, and of ratios to the stock model and to the job run in the same round.
    """
    options: dict[str, Any] = {"max_new_tokens": work.new_tokens, "stop_at_eos": False, "trace": True}
    controls = (method for method in METHODS.values() if method.role == "control")
    shuffled = list(dict.fromkeys(method.name for method in (*get_methods(None), *controls)))
    run = partial(engine.run, layout, **options)

    def run_beside() -> None:
        process = subprocess.Popen([sys.executable, "-c", BUSY])
        try:
            run()
        finally:
            process.kill()
            process.wait()

    jobs: dict[str, Callable[[], object]] = {
        "run": run,
        "generate": lambda: list(engine.generate(layout, **options)),
        "beside": run_beside,
        "shuffle": partial(engine.shuffle, layout, methods=shuffled, count=NUM_ORDERS, **options),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ("stock", *jobs)}
    for number in range(repeats + 1):
        advance(f"round {number} of {repeats}: stock")
        seconds["stock"].append(time_stock(engine.model, layout, work.new_tokens).end_to_end(work.new_tokens))
        for name, job in jobs.items():
            advance(f"round {number} of {repeats}: {name}")
            started = time.perf_counter()
            job()
            seconds[name].append(time.perf_counter() - started)

    def ratio(name: str, baseline: str) -> float:
        pairs = zip(seconds[name][1:], seconds[baseline][1:], strict=True)
        return round(median(one / base for one, base in pairs), 3)

    medians = {name: round(median(rounds[1:]), 3) for name, rounds in seconds.items()}
    return {
        "n": layout.num_tokens,
        "documents": layout.num_documents,
        "new_tokens": work.new_tokens,
        "model": engine.model_name,
        "dtype": engine.dtype,
        "threads": torch.get_num_threads(),
        "stock_s": medians["stock"],
        "jobs": {name: {"seconds": medians[name], "ratio": ratio(name, "stock")} for name in jobs},
        "generate_over_run": ratio("generate", "run"),
        "beside_over_run": ratio("beside", "run"),
    }


@torch.inference_mode()
def profile_method(
    engine: Engine, layout: TokenLayout, name: str, new_tokens: int
) -> dict[str, list[dict[str, Any]]]:
    """Return the operations of prefill and of decode with seconds and share, largest first.

    They are times of the GPU for a model on a GPU, otherwise of the CPU. Profiling adds time to each
    operation: use the shares, and take seconds from a run without it.
    """
    on_gpu = input_device(engine.model).type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]

    def prefill() -> Sequence[Any]:
        options = passes.PassOptions(engine.patched_models, reserved_tokens=new_tokens)
        return passes.prefill(layout, METHODS[name], options)

    def decode() -> None:
        for _ in range(new_tokens - 1):
            passes.extend([sequence], [layout.ids[:1]], is_step=True)

    def operations(run: Callable[[], object]) -> list[dict[str, Any]]:
        with profile(activities=activities) as recorded:
            run()
        time_of = "self_device_time_total" if on_gpu else "self_cpu_time_total"
        seconds = {event.key: getattr(event, time_of) / 1e6 for event in recorded.key_averages()}
        total = sum(seconds.values())
        ordered = sorted(seconds.items(), key=lambda pair: -pair[1])
        return [{"where": key, "seconds": value, "share": value / total} for key, value in ordered if value]

    sequence, _ = prefill()  # also allocates memory and selects kernels
    return {"prefill": operations(prefill), "decode": operations(decode)}
