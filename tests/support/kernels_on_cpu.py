"""Kernels of `triton_kernels` without a GPU, in a process of its own: interpreted, or compiled and not run.

`python -m tests.support.kernels_on_cpu interpret` prints, as JSON, how results with the kernels differ from
those with torch's operations; it needs TRITON_INTERPRET=1. `compile` prints the shared memory of each kernel
in bytes.
"""

import json
import sys
from collections.abc import Callable
from typing import Any, cast
from unittest import mock

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

import pine_engine as pine
from pine_engine.attention import gpu, triton_kernels
from pine_engine.attention.blocks import build_blocks
from pine_engine.network.registration import AttentionParams

METHODS_TESTED = ["vanilla", "pcw", "sp", "pine", "pine_reversed", "pine_max", "rotor", "superposition"]

LAYOUT = pine.TokenLayout((5, 6, 7), ((8, 9), (10, 11, 12, 13, 14, 15, 16), (17, 18, 19)), (20, 21, 22))

GENERATION = 80  # of GPUs: A100, the oldest with these kernels

POINTERS = {
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.int32: "*i32",
    torch.int8: "*i8",
}


def build() -> PreTrainedModel:
    """Return a model with a softcap, and seven query heads for one key head of 18 dimensions."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "gemma2",
        vocab_size=97,
        hidden_size=7 * 18,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=7,
        num_key_value_heads=1,
        head_dim=18,
        query_pre_attn_scalar=18,
        initializer_range=0.2,
        max_position_embeddings=128,
        pad_token_id=0,
    )
    return cast(PreTrainedModel, AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval())


def interpret() -> dict[str, Any]:
    """Return the largest difference of a logit between kernels and torch, and the methods that are exact."""
    options: dict[str, Any] = {"max_new_tokens": 2, "stop_at_eos": False, "methods": METHODS_TESTED}
    with mock.patch.object(gpu, "_module", lambda: None):
        expected = pine.Engine(build()).run(LAYOUT, return_logits=True, trace=True, **options)
    engine = pine.Engine(build())
    computed = engine.run(LAYOUT, return_logits=True, trace=True, **options)
    differences = {
        method: (computed.logits[method] - expected.logits[method]).abs().max().item()
        for method in METHODS_TESTED
    }
    shuffled = engine.shuffle(LAYOUT, count=3, **options)
    changed = [method for method, holds in shuffled.invariance_held.items() if holds is False]
    return {"differences": differences, "changed": changed, "warning": engine.invariance_warning}


def compile_all() -> list[tuple[str, int]]:
    """Compile every kernel, for half and single precision, prefill and decode; return its shared memory."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile as compile_kernel

    found: list[tuple[str, int]] = []

    def capture(kernel: Any, _grid: object) -> Callable[..., None]:
        def run(*args: Any, **constants: Any) -> None:
            options = {name: constants.pop(name) for name in ("num_warps", "num_stages") if name in constants}
            signature: dict[str, str] = {}
            for name, value in zip(kernel.arg_names, args, strict=False):
                is_tensor = isinstance(value, torch.Tensor)
                number = "fp32" if isinstance(value, float) else "i32"
                signature[name] = POINTERS[value.dtype] if is_tensor else number
            signature |= dict.fromkeys(constants, "constexpr")
            places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
            source, target = ASTSource(kernel, signature, places), GPUTarget("cuda", GENERATION, 32)
            compiled = compile_kernel(source, target=target, options=options)
            found.append((kernel.__name__, compiled.metadata.shared))

        return run

    with mock.patch.object(triton_kernels, "_launch", capture):
        for dtype, heads in ((torch.bfloat16, (8, 2, 128)), (torch.float32, (7, 1, 64))):
            launch_all(dtype, *heads)
    return found


def launch_all(dtype: torch.dtype, num_heads: int, num_kv_heads: int, head_dim: int) -> None:
    """Call every function with kernels at shapes of prefill and decode."""
    blocks = build_blocks(LAYOUT, torch.device("cpu"))
    tables = triton_kernels.DocumentTables.of(blocks)
    count, slots, scoring = 3, len(blocks.document), AttentionParams(0.1, softcap=30.0)
    table = torch.ones(64, head_dim // 2)
    kinds: Any = {"kind": "mean", "reverse": False}

    def vectors(heads: int, tokens: int, as_dtype: torch.dtype = dtype) -> torch.Tensor:
        return torch.ones(heads, tokens, head_dim, dtype=as_dtype)

    def on_suffix(queries: int) -> None:
        query = vectors(num_heads, queries, torch.float32)
        keys, tail = (vectors(num_kv_heads, length, torch.float32) for length in (slots, 40))
        starts = triton_kernels.rank_for_suffix(query, keys, tables, 20, **kinds).starts
        positions = torch.arange(queries, dtype=torch.int32)
        pairs = (keys, keys), (tail, tail)
        triton_kernels.attend_suffix(query, *pairs, tables, (table, table), positions, starts, None)

    for queries in (40, 1):
        keys = vectors(num_kv_heads, 40)
        triton_kernels.attend(vectors(num_heads, queries), keys, keys, scoring, torch.zeros(40))
        on_suffix(queries)
    query, keys = vectors(num_heads, slots), vectors(num_kv_heads, slots)
    triton_kernels.document_importance(query, keys, tables, 0.1, "mean")
    with_prefix = vectors(num_kv_heads, slots + LAYOUT.prefix_length)
    triton_kernels.attend_documents(
        query,
        with_prefix,
        with_prefix,
        tables,
        (table, table),
        torch.zeros(slots, dtype=torch.int32),
        torch.zeros(count, num_heads, count, dtype=torch.int32),
        torch.ones(count, count, dtype=torch.int8),
        scoring,
    )


def main() -> None:
    """Print the results of the command given by name."""
    if sys.argv[1] == "compile":
        print(json.dumps(compile_all()))
        return
    print(json.dumps(interpret()))


if __name__ == "__main__":
    main()
