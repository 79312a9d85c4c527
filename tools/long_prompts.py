"""Prefill of long prompts: processor time per floating-point operation, memory, and time between reports.

    python -m tools.long_prompts --tokens 8192,32768 --rounds 3

One layer of the embedded model's shape with random weights, one thread, documents of 160 tokens. The sizes
are measured in turns; ratios are to the first size in the same round. Prints JSON.
"""

import json
import resource
import time
from itertools import pairwise
from statistics import median
from typing import Any

import torch
import typer
from transformers import AutoConfig, AutoModelForCausalLM

from pine_engine import METHODS, Engine, TokenLayout
from pine_engine.benchmark.shapes import PREFIX_TOKENS, SUFFIX_TOKENS, Workload
from pine_engine.cli.options import parse_numbers
from pine_engine.engine import passes
from pine_engine.methods.plan import build_plan
from pine_engine.network.thread_tuner import torch_num_threads

SHAPE: dict[str, Any] = {
    "vocab_size": 1000,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 1,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "initializer_range": 0.1,  # with 0.02 all documents are almost equally important
}


def num_flop(engine: Engine, layout: TokenLayout, method: str) -> float:
    """Return the floating-point operations of linear layers, attention and ranking of a prefill."""
    config = engine.model.config
    head_dim = config.hidden_size // config.num_attention_heads
    layers = engine.model.get_submodule("model.layers").parameters()
    linear = 2 * layout.num_tokens * sum(parameter.numel() for parameter in layers)
    pairs = build_plan(METHODS[method], layout).num_pairs
    return float(linear + config.num_hidden_layers * 4 * config.num_attention_heads * head_dim * pairs)


@torch.inference_mode()
def measure(engine: Engine, layout: TokenLayout, method: str) -> dict[str, float]:
    """Return the measurements of one prefill."""
    reports = [time.perf_counter()]
    began = time.process_time()
    options = passes.PassOptions(
        engine.patched_models, reserved_tokens=1, on_layer=lambda _: reports.append(time.perf_counter())
    )
    sequence, _ = passes.prefill(layout, METHODS[method], options)
    seconds = time.process_time() - began
    reports.append(time.perf_counter())
    return {
        "cpu_s": round(seconds, 2),
        "ps_per_flop": round(seconds / num_flop(engine, layout, method) * 1e12, 2),
        "cache_bytes_per_token": round(sequence.cache.num_bytes / layout.num_tokens),
        "longest_silence_s": round(max(after - before for before, after in pairwise(reports)), 2),
        "peak_rss_mb": peak_rss_mb(),
    }


def peak_rss_mb() -> int:
    """Return the peak memory of this process in MB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def long_prompts(
    tokens: str = "8192,32768", document_tokens: int = 160, rounds: int = 3, method: str = "pine"
) -> None:
    """Measure the prefill of prompts with these numbers of tokens in turns, and print a JSON object."""
    sizes = parse_numbers(tokens, "--tokens")
    torch.manual_seed(0)
    config = AutoConfig.for_model("llama", max_position_embeddings=max(sizes), **SHAPE)
    engine = Engine(AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval())
    works = [
        Workload(
            *(None, "float32", "cpu"),
            documents=(size - PREFIX_TOKENS - SUFFIX_TOKENS) // document_tokens,
            document_tokens=document_tokens,
            new_tokens=0,
        )
        for size in sizes
    ]
    layouts = [work.layout(engine) for work in works]
    before = peak_rss_mb()
    with torch_num_threads(1):
        measured = [[measure(engine, layout, method) for layout in layouts] for _ in range(rounds)]
    report = []
    for index, layout in enumerate(layouts):
        ratios = [one[index]["ps_per_flop"] / one[0]["ps_per_flop"] for one in measured]
        size = {"tokens": layout.num_tokens, "documents": layout.num_documents}
        report.append({**size, "ratio": round(median(ratios), 3), "rounds": [one[index] for one in measured]})
    print(json.dumps({"rss_before_mb": before, "sizes": report}, indent=1))


if __name__ == "__main__":
    typer.run(long_prompts)
