"""Time and memory of methods against the stock model: interleaved rounds on the same tokens."""

import multiprocessing
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import PreTrainedModel

from pine_engine.attention.state import input_device
from pine_engine.benchmark.random_models import load_engine
from pine_engine.benchmark.workload import Workload
from pine_engine.engine.engine import Engine
from pine_engine.engine.model_worker import compute_on
from pine_engine.prompts.layout import TokenLayout

MB = 2**20
"""Bytes."""

Advance = Callable[[str], None]
"""Called with a description of each measurement, before it starts."""


@dataclass(frozen=True)
class Timing:
    """Seconds of one run."""

    prefill_s: float
    decode_s_per_token: float

    def end_to_end(self, new_tokens: int) -> float:
        """Return the seconds from prompt to last token."""
        return self.prefill_s + self.decode_s_per_token * max(new_tokens - 1, 0)


def num_steps(names: Sequence[str], repeats: int, *, trace: bool = False) -> int:
    """Return the number of calls of `advance` in one benchmark."""
    return (repeats + 1) * (len(names) * (2 if trace else 1) + 2) + len(names) + 1


def run_benchmark(
    engine: Engine,
    work: Workload,
    layout: TokenLayout,
    names: Sequence[str],
    repeats: int,
    advance: Advance,
    *,
    trace: bool = False,
) -> dict[str, Any]:
    """Time the stock model, each method, and all methods together in turns, then measure memory.

    Args:
        engine: Engine with the model.
        work: Size of the benchmark.
        layout: `work.layout_for(engine)`.
        names: Names of the methods.
        repeats: Rounds, after a warm-up round that is not counted.
        advance: Called before each measurement.
        trace: Also time each method with the document-level trace.

    Returns:
        The JSON object of `bench`: times in seconds, ratios to the stock model, memory in MB (2**20 bytes),
        of a separate process per method on the CPU and of torch's allocator on a GPU.
    """
    runs: dict[str, Callable[..., Timing]] = {
        "stock": lambda: time_stock(engine.model, layout, work.new_tokens)
    }
    for name in names:
        runs[name] = partial(time_methods, engine, layout, [name], work.new_tokens)
        if trace:
            runs[f"{name}, traced"] = partial(runs[name], trace=True)
    runs["all together"] = partial(time_methods, engine, layout, names, work.new_tokens)
    times: dict[str, list[Timing]] = {name: [] for name in runs}
    for number in range(repeats + 1):
        for name, run in runs.items():
            advance(f"round {number} of {repeats}: {name}")
            times[name].append(run())
    counted = {name: rounds[1:] for name, rounds in times.items()}

    memory_key = "peak_device_mb" if input_device(engine.model).type == "cuda" else "peak_rss_mb"
    memory: dict[str | None, float] = {}
    for method in (None, *names):
        advance(f"memory: {method or 'stock'}")
        memory[method] = peak_memory(engine, work, method)

    methods: dict[str, dict[str, Any]] = {}
    for name in names:
        methods[name] = {
            **_medians(counted[name]),
            **_ratios(counted[name], counted["stock"], work.new_tokens),
            memory_key: memory[name],
            "memory_over_stock_mb": round(memory[name] - memory[None], 1),
        }
        if trace:
            ratios = _ratios(counted[f"{name}, traced"], counted[name], work.new_tokens)
            methods[name] |= {f"trace_{key}": value for key, value in ratios.items()}
    together = counted["all together"]
    return {
        "n": layout.num_tokens,
        "documents": work.documents,
        "dtype": engine.dtype,
        "stock": {**_medians(counted["stock"]), memory_key: memory[None]},
        "methods": methods,
        "together": {
            "methods": list(names),
            "decode_s_per_step": _medians(together)["decode_s_per_token"],
            "decode_ratio": _ratios(together, counted["stock"], work.new_tokens)["decode_ratio"],
        },
    }


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
    """Time the stock model's greedy loop, with its fused attention and cache and the engine's weights.

    It runs in the worker thread of the engine, so that both have the same conditions.
    """
    return compute_on(model.device, lambda: _time_stock(model, layout, new_tokens))


def _time_stock(model: PreTrainedModel, layout: TokenLayout, new_tokens: int) -> Timing:
    device = input_device(model)
    ids = torch.tensor(layout.ids, device=device)[None]
    with stock_attention(model):
        _synchronize(device)
        started = time.perf_counter()
        output = model(input_ids=ids, use_cache=True, logits_to_keep=1)
        token = output.logits[:, -1].argmax(-1, keepdim=True)
        _synchronize(device)
        prefilled = time.perf_counter()
        for _ in range(new_tokens - 1):
            output = model(input_ids=token, past_key_values=output.past_key_values, use_cache=True)
            token = output.logits[:, -1].argmax(-1, keepdim=True)
            token.item()  # a loop that checks for the end of the answer synchronizes too
        _synchronize(device)
        ended = time.perf_counter()
    return Timing(prefilled - started, (ended - prefilled) / max(new_tokens - 1, 1))


def time_methods(
    engine: Engine, layout: TokenLayout, names: Sequence[str], new_tokens: int, *, trace: bool = False
) -> Timing:
    """Time the engine under one or more methods; prefill is their sum."""
    result = engine.run(layout, methods=names, max_new_tokens=new_tokens, stop_at_eos=False, trace=trace)
    answers = list(result.answers.values())
    return Timing(sum(answer.prefill_s for answer in answers), answers[0].decode_s_per_token)


def peak_memory(engine: Engine, work: Workload, method: str | None) -> float:
    """Return the peak memory in MB of a method, or of the stock model for None.

    On the CPU, a new process loads the model again. On a GPU, the model of the engine is used.
    """
    device = input_device(engine.model)
    if device.type != "cuda":
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            return pool.apply(_process_peak_mb, (work, method))
    torch.cuda.reset_peak_memory_stats(device)
    _time_once(engine, work, method)
    _synchronize(device)
    return round(torch.cuda.max_memory_allocated(device) / MB, 1)


def _process_peak_mb(work: Workload, method: str | None) -> float:
    """Return the peak resident memory of this process in MB while it computes, without loading."""
    engine = load_engine(work.model, dtype=work.dtype, device=work.device)
    status = Path("/proc/self/status")
    with suppress(OSError):  # other systems than Linux: the peak includes loading
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    _time_once(engine, work, method)
    if status.exists():
        (kilobytes,) = (
            line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM")
        )
        return round(int(kilobytes) / 1024, 1)
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def _time_once(engine: Engine, work: Workload, method: str | None) -> Timing:
    layout = work.layout_for(engine)
    if method is None:
        return time_stock(engine.model, layout, work.new_tokens)
    return time_methods(engine, layout, [method], work.new_tokens)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _medians(times: Sequence[Timing]) -> dict[str, float]:
    return {
        "prefill_s": round(median(timing.prefill_s for timing in times), 4),
        "decode_s_per_token": round(median(timing.decode_s_per_token for timing in times), 5),
    }


def _ratios(times: Sequence[Timing], baseline: Sequence[Timing], new_tokens: int) -> dict[str, float]:
    """Return the medians over the rounds of the ratios to the baseline of the same round."""
    seconds: dict[str, Callable[[Timing], float]] = {
        "prefill_ratio": lambda timing: timing.prefill_s,
        "decode_ratio": lambda timing: timing.decode_s_per_token,
        "end_to_end_ratio": lambda timing: timing.end_to_end(new_tokens),
    }
    pairs = list(zip(times, baseline, strict=True))
    return {key: round(median(of(one) / of(base) for one, base in pairs), 3) for key, of in seconds.items()}
