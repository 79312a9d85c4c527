"""Measure the engine against the stock model: interleaved runs on the same tokens, medians of ratios."""

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from transformers import PreTrainedModel

from pine_engine.attention.state import input_device
from pine_engine.benchmark.peak_memory import device_peak_mb, process_peak_mb, synchronize
from pine_engine.benchmark.workload import Workload
from pine_engine.engine.engine import Engine
from pine_engine.engine.model_worker import compute_on
from pine_engine.prompts.layout import TokenLayout

Advance = Callable[[str], None]
"""Called with a few words before each measurement."""


@dataclass(frozen=True)
class Timing:
    """Seconds of one run."""

    prefill_s: float
    decode_s_per_token: float

    def end_to_end(self, new_tokens: int) -> float:
        """Seconds from prompt to last token."""
        return self.prefill_s + self.decode_s_per_token * max(new_tokens - 1, 0)


def num_steps(names: Sequence[str], repeats: int, *, trace: bool = False) -> int:
    """How often one benchmark calls `advance`."""
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
    """Times the stock model, each method, and all together in turns; then each one's memory.

    layout: work.layout_for(engine). repeats: rounds; one more is run first and not counted. trace: time each
    method with the document-level trace on as well, for the ratio to without. Returns the JSON object of
    `bench`; times in seconds, memory in MB (2**20 bytes): of a process for each on the CPU, of torch's
    allocator on a GPU.
    """
    stock_times: list[Timing] = []
    method_times: dict[str, list[Timing]] = {name: [] for name in names}
    traced_times: dict[str, list[Timing]] = {name: [] for name in names if trace}
    together_times: list[Timing] = []
    for number in range(repeats + 1):
        advance(f"round {number} of {repeats}: stock")
        stock_times.append(time_stock(engine.model, layout, work.new_tokens))
        for name in names:
            advance(f"round {number} of {repeats}: {name}")
            method_times[name].append(time_methods(engine, layout, [name], work.new_tokens))
            if trace:
                advance(f"round {number} of {repeats}: {name}, traced")
                traced_times[name].append(time_methods(engine, layout, [name], work.new_tokens, trace=True))
        advance(f"round {number} of {repeats}: all together")
        together_times.append(time_methods(engine, layout, names, work.new_tokens))

    memory_key = "peak_device_mb" if input_device(engine.model).type == "cuda" else "peak_rss_mb"
    advance("memory: stock")
    stock_memory = peak_memory(engine, work, None)
    memory = {}
    for name in names:
        advance(f"memory: {name}")
        memory[name] = peak_memory(engine, work, name)

    counted = stock_times[1:]
    methods = {
        name: {
            **_medians(times[1:]),
            **_ratios(times[1:], counted, work.new_tokens),
            memory_key: memory[name],
            "memory_over_stock_mb": round(memory[name] - stock_memory, 1),
        }
        for name, times in method_times.items()
    }
    for name, times in traced_times.items():
        ratios = _ratios(times[1:], method_times[name][1:], work.new_tokens)
        methods[name] |= {f"trace_{key}": value for key, value in ratios.items()}
    return {
        "n": layout.num_tokens,
        "documents": work.documents,
        "dtype": engine.dtype,
        "stock": {**_medians(counted), memory_key: stock_memory},
        "methods": methods,
        "together": {
            "methods": list(names),
            "decode_s_per_step": _medians(together_times[1:])["decode_s_per_token"],
            "decode_ratio": _ratios(together_times[1:], counted, work.new_tokens)["decode_ratio"],
        },
    }


@contextmanager
def stock_attention(model: PreTrainedModel) -> Iterator[None]:
    """The model with its own fused attention, for as long as the block runs."""
    before = model.config._attn_implementation
    model.set_attn_implementation("sdpa")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


@torch.inference_mode()
def time_stock(model: PreTrainedModel, layout: TokenLayout, new_tokens: int) -> Timing:
    """The stock model's own greedy loop: its fused attention, its own cache, the engine's weights.

    In the thread in which the engine computes, so that both find the machine alike.
    """
    return compute_on(model.device, lambda: _time_stock(model, layout, new_tokens))


def _time_stock(model: PreTrainedModel, layout: TokenLayout, new_tokens: int) -> Timing:
    ids = torch.tensor(layout.ids, device=input_device(model))[None]
    with stock_attention(model):
        synchronize(input_device(model))
        began = time.perf_counter()
        output = model(input_ids=ids, use_cache=True, logits_to_keep=1)
        token = output.logits[:, -1].argmax(-1, keepdim=True)
        synchronize(input_device(model))
        prefilled = time.perf_counter()
        for _ in range(new_tokens - 1):
            output = model(input_ids=token, past_key_values=output.past_key_values, use_cache=True)
            token = output.logits[:, -1].argmax(-1, keepdim=True)
            token.item()  # as a loop that looks for the end of the answer must
        synchronize(input_device(model))
        ended = time.perf_counter()
    return Timing(prefilled - began, (ended - prefilled) / max(new_tokens - 1, 1))


def time_methods(
    engine: Engine, layout: TokenLayout, names: Sequence[str], new_tokens: int, *, trace: bool = False
) -> Timing:
    """The engine under one or more methods; prefill is the sum over them."""
    result = engine.run(layout, methods=names, max_new_tokens=new_tokens, stop_at_eos=False, trace=trace)
    answers = list(result.answers.values())
    return Timing(sum(answer.prefill_s for answer in answers), answers[0].decode_s_per_token)


def peak_memory(engine: Engine, work: Workload, method: str | None) -> float:
    """Largest memory in MB of one method, or of the stock model for None; see memory.py.

    On the CPU a process of its own loads the model again; on a GPU the engine's model is used.
    """
    device = input_device(engine.model)
    if device.type == "cuda":
        return device_peak_mb(device, _job(engine, work, method))
    return process_peak_mb(_load_job, (work, method))


def _load_job(asked: tuple[Workload, str | None]) -> Callable[[], Timing]:
    work, method = asked
    return _job(work.load(), work, method)


def _job(engine: Engine, work: Workload, method: str | None) -> Callable[[], Timing]:
    layout = work.layout_for(engine)
    if method is None:
        return functools.partial(time_stock, engine.model, layout, work.new_tokens)
    return functools.partial(time_methods, engine, layout, [method], work.new_tokens)


def _medians(times: list[Timing]) -> dict[str, float]:
    return {
        "prefill_s": round(median(timing.prefill_s for timing in times), 4),
        "decode_s_per_token": round(median(timing.decode_s_per_token for timing in times), 5),
    }


def _ratios(times: list[Timing], stock: list[Timing], new_tokens: int) -> dict[str, float]:
    """Medians of the ratios of each round."""
    pairs = list(zip(times, stock, strict=True))
    return {
        "prefill_ratio": round(median(ours.prefill_s / own.prefill_s for ours, own in pairs), 3),
        "decode_ratio": round(
            median(ours.decode_s_per_token / own.decode_s_per_token for ours, own in pairs), 3
        ),
        "end_to_end_ratio": round(
            median(ours.end_to_end(new_tokens) / own.end_to_end(new_tokens) for ours, own in pairs), 3
        ),
    }
