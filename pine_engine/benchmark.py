"""Measure the engine against the stock model: interleaved runs on the same tokens, medians of ratios."""

import multiprocessing
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from pine_engine import models
from pine_engine.engine import Engine
from pine_engine.layout import TokenLayout
from pine_engine.methods import get_methods

PREFIX_TOKENS = 30
SUFFIX_TOKENS = 28


@dataclass(frozen=True)
class Timing:
    """Seconds of one run."""

    prefill_s: float
    decode_s_per_token: float

    def end_to_end(self, new_tokens: int) -> float:
        """Seconds from prompt to last token."""
        return self.prefill_s + self.decode_s_per_token * max(new_tokens - 1, 0)


@dataclass(frozen=True)
class Workload:
    """What is measured: a prompt of random tokens and an answer of fixed length."""

    model: str | None
    dtype: str
    device: str
    documents: int
    document_tokens: int
    new_tokens: int

    def layout(self, vocabulary: int) -> TokenLayout:
        """Random tokens, the same for everyone."""
        generator = torch.Generator().manual_seed(0)

        def ids(count: int) -> tuple[int, ...]:
            return tuple(torch.randint(vocabulary, (count,), generator=generator).tolist())

        documents = tuple(ids(self.document_tokens) for _ in range(self.documents))
        return TokenLayout(ids(PREFIX_TOKENS), documents, ids(SUFFIX_TOKENS))


def run_benchmark(
    work: Workload, methods: Sequence[str] | None, repeats: int, advance: Callable[[str], None]
) -> dict[str, Any]:
    """Times the stock model, each method, and all together in turns; then memory, a process for each.

    repeats: rounds; one more is run first and not counted. advance: called with a few words before each
    measurement. Returns the JSON object of `bench`; times in seconds, memory in MB (2**20 bytes).
    """
    names = [method.name for method in get_methods(methods)]
    engine = Engine.load(work.model, dtype=work.dtype, device=work.device)
    stock = models.load(work.model, dtype=work.dtype, device=work.device, attn_implementation="sdpa").model
    layout = work.layout(len(engine.tokenizer))

    stock_times: list[Timing] = []
    method_times: dict[str, list[Timing]] = {name: [] for name in names}
    together_times: list[Timing] = []
    for number in range(repeats + 1):
        advance(f"round {number} of {repeats}: stock")
        stock_times.append(time_stock(stock, layout, work.new_tokens))
        for name in names:
            advance(f"round {number} of {repeats}: {name}")
            method_times[name].append(time_methods(engine, layout, [name], work.new_tokens))
        advance(f"round {number} of {repeats}: all together")
        together_times.append(time_methods(engine, layout, names, work.new_tokens))
    del engine, stock

    advance("memory: stock")
    stock_memory = peak_memory(work, None)
    memory = {}
    for name in names:
        advance(f"memory: {name}")
        memory[name] = peak_memory(work, name)

    counted = stock_times[1:]
    return {
        "n": layout.num_tokens,
        "documents": work.documents,
        "dtype": work.dtype,
        "stock": {**_medians(counted), "peak_rss_mb": stock_memory},
        "methods": {
            name: {
                **_medians(times[1:]),
                **_ratios(times[1:], counted, work.new_tokens),
                "peak_rss_mb": memory[name],
            }
            for name, times in method_times.items()
        },
        "together": {
            "methods": names,
            "decode_s_per_step": _medians(together_times[1:])["decode_s_per_token"],
            "decode_ratio": _ratios(together_times[1:], counted, work.new_tokens)["decode_ratio"],
        },
    }


@torch.inference_mode()
def time_stock(model: Any, layout: TokenLayout, new_tokens: int) -> Timing:
    """The stock model's own greedy loop: its fused attention, its own cache."""
    ids = torch.tensor(layout.ids, device=model.device)[None]
    began = time.perf_counter()
    output = model(input_ids=ids, use_cache=True, logits_to_keep=1)
    token = output.logits[:, -1].argmax(-1, keepdim=True)
    token.item()  # waits for an accelerator
    prefilled = time.perf_counter()
    for _ in range(new_tokens - 1):
        output = model(input_ids=token, past_key_values=output.past_key_values, use_cache=True)
        token = output.logits[:, -1].argmax(-1, keepdim=True)
        token.item()
    ended = time.perf_counter()
    return Timing(prefilled - began, (ended - prefilled) / max(new_tokens - 1, 1))


def time_methods(engine: Engine, layout: TokenLayout, names: Sequence[str], new_tokens: int) -> Timing:
    """The engine under one or more methods; prefill is the sum over them."""
    result = engine.run(layout, methods=names, max_new_tokens=new_tokens, stop_at_end=False)
    answers = list(result.answers.values())
    return Timing(sum(answer.prefill_s for answer in answers), answers[0].decode_s_per_token)


def peak_memory(work: Workload, method: str | None) -> float:
    """Largest resident memory in MB of a fresh process that runs one method, or the stock model for None."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_measure_memory, (work, method))


def _measure_memory(work: Workload, method: str | None) -> float:
    if method is None:
        stock = models.load(work.model, dtype=work.dtype, device=work.device, attn_implementation="sdpa")
        _forget_peak()
        time_stock(stock.model, work.layout(len(stock.tokenizer)), work.new_tokens)
    else:
        engine = Engine.load(work.model, dtype=work.dtype, device=work.device)
        _forget_peak()
        time_methods(engine, work.layout(len(engine.tokenizer)), [method], work.new_tokens)
    return _peak_mb()


def _forget_peak() -> None:
    """Resets the kernel's peak counter, so that loading does not count; where it can't be, it counts."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _peak_mb() -> float:
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return round(int(line.split()[1]) / 1024, 1)
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


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
