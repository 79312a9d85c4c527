"""Kernels of `triton_kernels` without a GPU, in a process of its own: interpreted, or compiled and not run.

`python -m tests.support.kernels_on_cpu interpret` prints, as JSON, how logits with the kernels differ from
those with torch's operations, and `interpret-each` how the results of each operation do, at a tiny size; they
need TRITON_INTERPRET=1. `compile` prints the shared memory of each kernel in bytes.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from transformers import PreTrainedModel

import pine_engine as pine
from pine_engine.attention import gpu, triton_kernels
from pine_engine.attention.arithmetic import causal_tail, rank_for_documents
from pine_engine.attention.blocks import build_blocks
from pine_engine.attention.kv_cache import DocumentBlocks, LayerCache
from pine_engine.attention.ops import Documents, KernelOps, Ops, SuffixQueries
from pine_engine.attention.strategy import Rotation
from pine_engine.network.registration import AttentionParams, LayerInput
from pine_engine.network.rope import Rope, from_pairs
from tests.support.families import make

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
    heads: dict[str, Any] = {
        "num_attention_heads": 7,
        "num_key_value_heads": 1,
        "head_dim": 18,
        "query_pre_attn_scalar": 18,
    }
    return make("gemma2", hidden_size=7 * 18, num_hidden_layers=1, **heads)


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


def interpret_each() -> dict[str, Any]:
    """Return the largest difference of each operation from torch's, and the kernels that ran."""
    launched = set()
    launch = triton_kernels._launch

    def observe(kernel: Any, grid: Any) -> Callable[..., None]:
        launched.add(kernel.__name__)
        return launch(kernel, grid)

    with mock.patch.object(triton_kernels, "_launch", observe):
        differences = _differences_of_attention() | _differences_of_documents()
    return {"differences": differences, "kernels": sorted(launched)}


def _differences_of_attention() -> dict[str, float]:
    """Return the differences of causal attention: prefill, and a decode step with a bias and a softcap."""
    random, found = torch.Generator().manual_seed(0), {}
    for num_queries, scoring in ((9, AttentionParams(0.3)), (1, AttentionParams(0.3, softcap=2.0))):
        query = torch.randn(2, num_queries, 8, generator=random)
        keys, values = torch.randn(2, 1, 9, 8, generator=random)
        bias = None if num_queries > 1 else torch.randn(9, generator=random)
        expected, computed = (
            causal_tail(query, keys, values, scoring, bias, kernels=kernels)
            for kernels in (None, triton_kernels)
        )
        found[f"attention of {num_queries}"] = _difference(computed, expected)
    return found


def _differences_of_documents() -> dict[str, float]:
    """Return the differences of the operations on documents in block order."""
    random, method = torch.Generator().manual_seed(0), pine.METHODS["pine"]
    layout = pine.TokenLayout((5, 6), ((8, 9, 10), (11, 12, 13, 14), (15,)), (20, 21))  # with padding
    plan, blocks = pine.build_plan(method, layout), build_blocks(layout, torch.device("cpu"))
    num_slots, count, prefix, suffix = len(blocks.document), 3, layout.prefix_length, layout.suffix_length
    positions = torch.from_numpy(plan.query_positions())
    rope = Rope(10.0 ** -torch.arange(4.0), "half", 1.0)
    rotation = Rotation(rope, rope.table(64, 8, torch.float32))
    visible = torch.ones(count, count, dtype=torch.bool)
    documents = Documents(plan, blocks, positions[blocks.token_index], visible, None)
    scoring = AttentionParams(0.3)

    def pairs(heads: int, tokens: int) -> torch.Tensor:
        return torch.view_as_complex(torch.randn(heads, tokens, 4, 2, generator=random))

    def vectors(tokens: int) -> torch.Tensor:
        return torch.randn(1, tokens, 8, generator=random)

    slots = LayerInput(0, pairs(2, num_slots), pairs(1, num_slots), vectors(num_slots), scoring)
    inputs = replace(slots, query=torch.randn(2, num_slots, 8, generator=random))
    stored_prefix = vectors(prefix), vectors(prefix)
    tail = vectors(prefix + suffix), vectors(prefix + suffix)
    of_suffix, suffix_positions = pairs(2, suffix), positions[-suffix:]
    rotated = from_pairs(of_suffix * rotation.table[suffix_positions])
    queries = SuffixQueries(of_suffix, rotated, suffix_positions, prefix + suffix)
    found = []
    for ops in (Ops(documents, torch.float32), KernelOps(documents, torch.float32, triton_kernels)):
        importance = ops.importance(from_pairs(slots.query), from_pairs(slots.key), scoring)
        ranking = rank_for_documents(importance, 2, blocks, layout.documents_end, reverse=False)
        output = torch.cat(ops.attend_documents(inputs, slots, stored_prefix, ranking.starts, rotation), 1)
        keys = from_pairs(slots.key)
        by_offset = from_pairs(slots.key * rotation.table[blocks.offset])
        cache = LayerCache(
            *tail, DocumentBlocks(ops.store_keys(by_offset), slots.value, keys), prefix + suffix
        )
        suffix_ranking = ops.rank_suffix(from_pairs(of_suffix), keys, scoring)
        attended, weights = ops.attend_suffix(
            queries, suffix_ranking.starts, cache, rotation, scoring, needs_weights=True
        )
        found.append(
            {
                "importance of documents": importance,
                "attention of documents": output,
                "importance for the suffix": suffix_ranking.importance,
                "starts for the suffix": suffix_ranking.starts.float(),
                "attention of the suffix": attended,
                "weights of the suffix": weights,
            }
        )
    return {name: _difference(found[1][name], value) for name, value in found[0].items()}


def _difference(computed: torch.Tensor | None, expected: torch.Tensor | None) -> float:
    assert computed is not None and expected is not None
    return (computed - expected).abs().max().item()


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
    commands = {"compile": compile_all, "interpret": interpret, "interpret-each": interpret_each}
    print(json.dumps(commands[sys.argv[1]]()))


if __name__ == "__main__":
    main()
