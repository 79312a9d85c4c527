"""Time and memory of methods against the stock model: interleaved rounds on the same tokens."""

import multiprocessing
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel

from pine_engine.attention.state import input_device
from pine_engine.benchmark.random_models import load_engine
from pine_engine.benchmark.workload import Workload
from pine_engine.engine.engine import Engine
from pine_engine.engine.generation import synchronize
from pine_engine.prompts.layout import TokenLayout
from pine_engine.scheduling.worker import compute_on

MB = 2**20  # bytes

Advance = Callable[[str], None]  # called with a description of each measurement, before it starts


class Timing(NamedTuple):
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

    Returns the JSON object of `bench`: medians in seconds, medians of ratios to the stock model in the same
    round, and peak memory in MB. `repeats` rounds follow a warm-up round. With `trace`, each method is also
    timed with the document-level trace.
    """
    runs: dict[str, Callable[..., Timing]] = {}
    runs["stock"] = partial(time_stock, engine.model, layout, work.new_tokens)
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
    memory: dict[str, float] = {}
    for name in ("stock", *names):
        advance(f"memory: {name}")
        memory[name] = peak_memory(engine, work, None if name == "stock" else name)

    def medians(name: str) -> dict[str, float]:
        prefill, decode = (median(seconds) for seconds in zip(*times[name][1:], strict=True))
        return {"prefill_s": round(prefill, 4), "decode_s_per_token": round(decode, 5)}

    def ratios(name: str, baseline: str = "stock") -> dict[str, float]:
        quotients = [
            (
                one.prefill_s / base.prefill_s,
                one.decode_s_per_token / base.decode_s_per_token,
                one.end_to_end(work.new_tokens) / base.end_to_end(work.new_tokens),
            )
            for one, base in zip(times[name][1:], times[baseline][1:], strict=True)
        ]
        keys = ("prefill_ratio", "decode_ratio", "end_to_end_ratio")
        columns = zip(*quotients, strict=True)
        return {key: round(median(column), 3) for key, column in zip(keys, columns, strict=True)}

    memory_key = "peak_device_mb" if input_device(engine.model).type == "cuda" else "peak_rss_mb"
    methods: dict[str, dict[str, Any]] = {}
    for name in names:
        methods[name] = {
            **medians(name),
            **ratios(name),
            memory_key: memory[name],
            "memory_over_stock_mb": round(memory[name] - memory["stock"], 1),
        }
        if trace:
            methods[name] |= {f"trace_{key}": ratio for key, ratio in ratios(f"{name}, traced", name).items()}
    return {
        "n": layout.num_tokens,
        "documents": work.documents,
        "model": engine.model_name,
        "dtype": engine.dtype,
        "stock": {**medians("stock"), memory_key: memory["stock"]},
        "methods": methods,
        "together": {
            "methods": list(names),
            "decode_s_per_step": medians("all together")["decode_s_per_token"],
            "decode_ratio": ratios("all together")["decode_ratio"],
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
        return Timing(prefilled - started, (ended - prefilled) / max(new_tokens - 1, 1))

    return compute_on(model.device, run)


def time_methods(
    engine: Engine, layout: TokenLayout, names: Sequence[str], new_tokens: int, *, trace: bool = False
) -> Timing:
    """Time the engine under one or more methods; prefill is their sum."""
    result = engine.run(layout, methods=names, max_new_tokens=new_tokens, stop_at_eos=False, trace=trace)
    answers = list(result.answers.values())
    return Timing(sum(answer.prefill_s for answer in answers), answers[0].decode_s_per_token)


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
