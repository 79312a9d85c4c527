"""Times and memory of methods and of jobs against the stock model, in turns."""

import multiprocessing
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from pine_engine.attention.state import input_device
from pine_engine.benchmark.shapes import Workload, load_engine
from pine_engine.engine.engine import Engine
from pine_engine.engine.events import GenerationFinished, TokenGenerated
from pine_engine.engine.generation import synchronize
from pine_engine.engine.order_results import OrderResult
from pine_engine.engine.orders import choose_orders, compare_orders
from pine_engine.methods.table import compared_pair
from pine_engine.prompts.layout import TokenLayout
from pine_engine.scheduling.worker import compute_on

MB = 2**20  # bytes
NUM_ORDERS = 6  # maximum number of orders of the shuffle
SHUFFLED_ORDERS = (2, NUM_ORDERS)  # maximum numbers of orders of the shuffles whose moments are measured

JOBS = {
    "run": "default methods, traced, one result",
    "generate": "default methods, traced, one event per token",
    "beside": "as run, while another process uses a core",
    "shuffle": f"up to {NUM_ORDERS} orders, default methods and controls, traced",
}

MOMENTS = {
    "first_token": "first token",
    "first_answers": "first answers of both compared methods",
    "first_order": "first complete order",
    "all_orders": "all orders",
}
"""Moments of a shuffle of the default methods, traced, with one event per token."""

NUM_JOB_RUNS = len(JOBS) + len(SHUFFLED_ORDERS) + 1  # in one round of `measure_jobs`

RATIOS = ("prefill_ratio", "decode_ratio", "end_to_end_ratio")  # of the fields of Timing

BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    pass"
"""Code of a process that uses a core until its parent ends."""

Advance = Callable[[str], None]  # called with a description of each measurement, before it starts


class Timing(NamedTuple):
    """Seconds of one run."""

    prefill_s: float
    decode_s_per_token: float
    end_to_end_s: float  # from prompt to last token


def timing(prefill_s: float, decode_s_per_token: float, new_tokens: int) -> Timing:
    """Return the times of a run; the prefill gives the first token."""
    return Timing(prefill_s, decode_s_per_token, prefill_s + decode_s_per_token * max(new_tokens - 1, 0))


def time_rounds(
    runs: Mapping[str, Callable[[], Any]], repeats: int, advance: Advance
) -> dict[str, NDArray[np.float64]]:
    """Time runs in turns. Return the seconds of `repeats` rounds by name, without a warm-up round."""
    times: dict[str, list[Any]] = {name: [] for name in runs}
    for number in range(repeats + 1):
        for name, run in runs.items():
            advance(f"round {number} of {repeats}: {name}")
            times[name].append(run())
    return {name: np.array(rounds[1:]) for name, rounds in times.items()}


def num_steps(names: Sequence[str], repeats: int, *, trace: bool = False) -> int:
    """Return the number of calls of `advance` in `measure_methods`."""
    return (repeats + 1) * (len(names) * (2 if trace else 1) + 2) + len(names) + 1


def measure_methods(
    engine: Engine,
    work: Workload,
    names: Sequence[str],
    repeats: int,
    advance: Advance,
    *,
    trace: bool = False,
) -> dict[str, Any]:
    """Time the stock model, each method, and all methods together in turns, then measure memory.

    Returns the JSON object of `bench`: medians in seconds, medians of ratios to the stock model in the same
    round, and peak memory in MB. `repeats` rounds follow a warm-up round. With `trace`, each method is also
    timed with the document-level trace.
    """
    layout = work.layout(engine)
    runs: dict[str, Callable[..., Timing]] = {}
    runs["stock"] = partial(time_stock, engine.model, layout, work.new_tokens)
    for name in names:
        runs[name] = partial(time_methods, engine, layout, [name], work.new_tokens)
        if trace:
            runs[f"{name}, traced"] = partial(runs[name], trace=True)
    runs["all together"] = partial(time_methods, engine, layout, names, work.new_tokens)
    times = time_rounds(runs, repeats, advance)
    memory: dict[str, float] = {}
    for name in ("stock", *names):
        advance(f"memory: {name}")
        memory[name] = peak_memory(engine, work, None if name == "stock" else name)

    def seconds(name: str) -> dict[str, float]:
        prefill_s, decode_s, _ = _medians(times[name])
        return {"prefill_s": round(prefill_s, 4), "decode_s_per_token": round(decode_s, 5)}

    def ratios(name: str, baseline: str = "stock", start: str = "") -> dict[str, float]:
        values = _medians(times[name] / times[baseline])
        return {start + key: round(value, 3) for key, value in zip(RATIOS, values, strict=True)}

    memory_key = "peak_device_mb" if input_device(engine.model).type == "cuda" else "peak_rss_mb"
    methods: dict[str, dict[str, Any]] = {}
    for name in names:
        over_stock = round(memory[name] - memory["stock"], 1)
        methods[name] = {**seconds(name), **ratios(name)}
        methods[name] |= {memory_key: memory[name], "memory_over_stock_mb": over_stock}
        if trace:
            methods[name] |= ratios(f"{name}, traced", name, "trace_")
    return {
        "n": layout.num_tokens,
        "documents": work.documents,
        "model": engine.model_name,
        "dtype": engine.dtype,
        "stock": {**seconds("stock"), memory_key: memory["stock"]},
        "methods": methods,
        "together": {
            "methods": list(names),
            "decode_s_per_step": seconds("all together")["decode_s_per_token"],
            "decode_ratio": ratios("all together")["decode_ratio"],
        },
    }


def measure_jobs(engine: Engine, work: Workload, repeats: int, advance: Advance) -> dict[str, Any]:
    """Time jobs from prompt to last token, in turns with one answer of the stock model.

    Calls `advance` once per round for each job, each shuffle of MOMENTS and the stock model. Returns the JSON
    object of `bench --end-to-end`: medians over the rounds after a warm-up round, in seconds, and of ratios
    to the stock model and to the job run in the same round.
    """
    layout = work.layout(engine)
    options: dict[str, Any] = {"max_new_tokens": work.new_tokens, "stop_at_eos": False, "trace": True}
    controls = (method for method in engine.methods if method.role == "control")
    shuffled = list(dict.fromkeys(method.name for method in (*engine.select_methods(None), *controls)))

    def run_beside() -> None:
        process = subprocess.Popen([sys.executable, "-c", BUSY])
        try:
            engine.run(layout, **options)
        finally:
            process.kill()
            process.wait()

    jobs: dict[str, Callable[[], object]] = {
        "run": partial(engine.run, layout, **options),
        "generate": lambda: list(engine.generate(layout, **options)),
        "beside": run_beside,
        "shuffle": partial(engine.shuffle, layout, methods=shuffled, count=NUM_ORDERS, **options),
    }

    def seconds_of(job: Callable[[], object]) -> float:
        started = time.perf_counter()
        job()
        return time.perf_counter() - started

    def moments_of(count: int) -> list[float]:
        orders = choose_orders(layout, None, count=count)
        pair = [method.name for method in compared_pair(engine.select_methods(None))]
        seconds: dict[str, float] = {}
        started = time.perf_counter()
        for event in compare_orders(engine, layout, orders=orders, **options):
            seconds["all_orders"] = time.perf_counter() - started
            match event:
                case TokenGenerated():
                    seconds.setdefault("first_token", seconds["all_orders"])
                case GenerationFinished(answer=answer, order=0) if answer.method in pair:
                    seconds["first_answers"] = seconds["all_orders"]
                case OrderResult():
                    seconds.setdefault("first_order", seconds["all_orders"])
        return [seconds[moment] for moment in MOMENTS]

    runs: dict[str, Callable[[], float | list[float]]] = {
        "stock": lambda: time_stock(engine.model, layout, work.new_tokens).end_to_end_s
    }
    runs |= {name: partial(seconds_of, job) for name, job in jobs.items()}
    runs |= {str(count): partial(moments_of, count) for count in SHUFFLED_ORDERS}
    times = time_rounds(runs, repeats, advance)
    for count in SHUFFLED_ORDERS:
        times |= zip((f"{count} {moment}" for moment in MOMENTS), times.pop(str(count)).T, strict=True)

    def ratio(name: str, baseline: str) -> float:
        quotient: float = _medians(times[name] / times[baseline])
        return round(quotient, 3)

    def over_stock(name: str) -> dict[str, float]:
        return {"seconds": medians[name], "ratio": ratio(name, "stock")}

    medians = {name: round(_medians(rounds), 3) for name, rounds in times.items()}
    return {
        "n": layout.num_tokens,
        "documents": layout.num_documents,
        "new_tokens": work.new_tokens,
        "model": engine.model_name,
        "dtype": engine.dtype,
        "threads": torch.get_num_threads(),
        "stock_s": medians["stock"],
        "jobs": {name: over_stock(name) for name in jobs},
        "orders": {
            str(count): {moment: over_stock(f"{count} {moment}") for moment in MOMENTS}
            for count in SHUFFLED_ORDERS
        },
        "generate_over_run": ratio("generate", "run"),
        "beside_over_run": ratio("beside", "run"),
    }


def _medians(rounds: NDArray[np.float64]) -> Any:
    return np.median(rounds, axis=0).tolist()


@contextmanager
def stock_attention(model: PreTrainedModel) -> Iterator[None]:
    """Run the model with its own fused attention inside the block."""
    before = model.config._attn_implementation
    model.set_attn_implementation("sdpa")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


@torch.inference_mode()
def time_stock(model: PreTrainedModel, layout: TokenLayout, new_tokens: int) -> Timing:
    """Time the stock model's greedy loop, with its fused attention and cache, in the engine's thread."""
    ids = torch.tensor(layout.ids, device=input_device(model))[None]

    def run() -> Timing:
        with stock_attention(model):
            synchronize(ids)
            started = time.perf_counter()
            output = model(input_ids=ids, use_cache=True, logits_to_keep=1)
            token = output.logits[:, -1].argmax(-1, keepdim=True)
            synchronize(token)
            prefilled = time.perf_counter()
            for _ in range(new_tokens - 1):
                output = model(input_ids=token, past_key_values=output.past_key_values, use_cache=True)
                token = output.logits[:, -1].argmax(-1, keepdim=True)
                token.item()  # a loop that checks for the end of the answer synchronizes too
            synchronize(token)
            ended = time.perf_counter()
        return timing(prefilled - started, (ended - prefilled) / max(new_tokens - 1, 1), new_tokens)

    return compute_on(model.device, run)


def time_methods(
    engine: Engine, layout: TokenLayout, names: Sequence[str], new_tokens: int, *, trace: bool = False
) -> Timing:
    """Time the engine under one or more methods; prefill is their sum."""
    result = engine.run(layout, methods=names, max_new_tokens=new_tokens, stop_at_eos=False, trace=trace)
    answers = list(result.answers.values())
    return timing(sum(one.prefill_s for one in answers), answers[0].decode_s_per_token, new_tokens)


def peak_memory(engine: Engine, work: Workload, method: str | None) -> float:
    """Return the peak memory in MB of a method, None: of the stock model. On the CPU, of a new process."""
    device = input_device(engine.model)
    if device.type != "cuda":
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            return pool.apply(_process_peak_mb, (work, method))
    torch.cuda.reset_peak_memory_stats(device)
    _run_once(engine, work, method)
    torch.cuda.synchronize(device)
    return round(torch.cuda.max_memory_allocated(device) / MB, 1)


def _process_peak_mb(work: Workload, method: str | None) -> float:
    """Return the peak resident memory of this process in MB while it computes, without loading."""
    engine = load_engine(work.model, dtype=work.dtype, device=work.device)
    with suppress(OSError):  # other systems than Linux: the peak includes loading
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    _run_once(engine, work, method)
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with suppress(OSError):
        lines = Path("/proc/self/status").read_text().splitlines()
        kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return round(kilobytes / 1024, 1)


def _run_once(engine: Engine, work: Workload, method: str | None) -> None:
    layout = work.layout(engine)
    if method is None:
        time_stock(engine.model, layout, work.new_tokens)
    else:
        time_methods(engine, layout, [method], work.new_tokens)
