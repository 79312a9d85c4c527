"""PINE in many families of transformers: vanilla equals the model, rotation included, PINE is invariant."""

import functools
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.cohere.modeling_cohere import (
    CohereRotaryEmbedding,
    apply_rotary_pos_emb as rotate_interleaved,
)
from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding
from transformers.models.llama.modeling_llama import (
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb as rotate_halves,
)

from pine_engine import Engine, ModelError
from pine_engine.attention import arithmetic
from pine_engine.network.rope import Pairing, Rope, as_pairs, from_pairs, possible_ropes
from tests.support.families import FAMILIES, LAYOUT, by_tier, make
from tests.support.forward import prefill_logits
from tests.support.reference import reference_logits

TOLERANCE = {torch.float64: 2e-5, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Relative to the largest logit. Norms, angles and experts are float32 in float64 models too."""

REORDERED = LAYOUT.reorder([2, 0, 1])

IN_HALF_PRECISION = ("llama", "qwen3", "olmo2", "gemma", "gemma2", "gpt_neox", "cohere", "glm4", "yarn")

DEFINED = (
    *("llama", "gemma2", "glm", "gpt_neox", "phi", "cohere", "qwen3"),
    *("falcon", "falcon, one key head", "gemma3_text", "nanochat", "nemotron", "olmo3", "stablelm"),
    *("gemma3", "mistral3", "qwen2_vl", "qwen2_5_vl"),
    *("yarn", "yarn, interleaved", "yarn, partial", "yarn, partial and interleaved"),
    *("longrope, a short prompt", "longrope, a long prompt", "longrope, partial"),
    *("gpt_oss", "minicpm3", "deepseek_v3", "deepseek_v3, yarn"),
    *("deepseek_v3, heads of 10 dimensions", "minicpm3, heads of 9 dimensions"),
    *("gemma4_text, shared keys", "gemma4_unified_text, shared keys"),
    *("gptj", "codegen", "gpt_neox_japanese", "diffllama", "hrm_text"),
    *("smollm3, a layer without RoPE", "cohere2, RoPE in windows only", "exaone4, RoPE in windows only"),
)
"""Families that differ in rotation, pairing, scale, softcap, or the call of attention."""


@functools.lru_cache(maxsize=1)  # tests of one family follow each other
def engine_of(name: str, dtype: torch.dtype = torch.float64) -> Engine:
    family = FAMILIES[name]
    return Engine(make(family.kind, dtype, **family.options))


@torch.inference_mode()
def expected_logits(engine: Engine) -> Tensor:
    logits: Tensor = engine.model(torch.tensor(LAYOUT.ids)[None]).logits[0]
    return logits


def difference(result: Tensor, expected: Tensor) -> float:
    return ((result - expected).abs().max() / expected.abs().max()).item()


@pytest.mark.parametrize("name", by_tier(FAMILIES))
def test_vanilla_equals_the_model_and_pine_is_invariant(name: str) -> None:
    engine, tolerance = engine_of(name), TOLERANCE[torch.float64]
    expected = expected_logits(engine)
    ropes = [rope for rope in engine.patched_models[0].ropes if not rope.is_identity]
    assert {rope.pairing for rope in ropes} == {FAMILIES[name].pairing}
    assert difference(prefill_logits(engine, LAYOUT, "vanilla"), expected) <= tolerance

    pine, shuffled = (prefill_logits(engine, layout, "pine")[-1] for layout in (LAYOUT, REORDERED))
    assert difference(shuffled, pine) <= tolerance
    # Controls: vanilla depends on the order, and PINE differs from vanilla.
    assert difference(prefill_logits(engine, REORDERED, "vanilla")[-1], expected[-1]) > 20 * tolerance
    assert difference(pine, expected[-1]) > 20 * tolerance


@pytest.mark.parametrize(("trace", "num_ranking_layers"), [(False, 1), (True, 2)])
def test_layer_without_rope_ranks_for_a_trace_only(
    monkeypatch: pytest.MonkeyPatch, trace: bool, num_ranking_layers: int
) -> None:
    engine, calls = engine_of("smollm3, a layer without RoPE", torch.float32), Counter[str]()
    for name in ("rank_for_documents", "rank_for_suffix"):
        compute = getattr(arithmetic, name)

        def counted(*args: Any, name: str = name, compute: Any = compute, **options: Any) -> Any:
            calls[name] += 1
            return compute(*args, **options)

        monkeypatch.setattr(arithmetic, name, counted)
    engine.run(LAYOUT, methods="pine", max_new_tokens=3, stop_at_eos=False, trace=trace)
    steps = 2  # the first token comes from the prefill
    assert calls == {
        "rank_for_documents": num_ranking_layers,
        "rank_for_suffix": num_ranking_layers * (1 + steps),
    }


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", by_tier(IN_HALF_PRECISION))
def test_half_precision_is_close_and_bitwise_invariant(name: str, dtype: torch.dtype) -> None:
    engine = engine_of(name, dtype)
    expected, vanilla = expected_logits(engine), prefill_logits(engine, LAYOUT, "vanilla")
    assert vanilla.dtype == dtype
    assert difference(vanilla, expected) <= TOLERANCE[dtype]
    assert difference(prefill_logits(engine, REORDERED, "vanilla")[-1], expected[-1]) > TOLERANCE[dtype]
    assert torch.equal(*(prefill_logits(engine, layout, "pine")[-1] for layout in (LAYOUT, REORDERED)))


@pytest.mark.parametrize("method", ["pine", "reassignment_only", "pcw_right", "vanilla"])
@pytest.mark.parametrize("name", by_tier(DEFINED))
def test_method_equals_its_definition(name: str, method: str) -> None:
    engine = engine_of(name)
    expected = reference_logits(engine.model, LAYOUT, method)
    assert difference(prefill_logits(engine, LAYOUT, method), expected) <= TOLERANCE[torch.float64]


HEAD_DIM = 16
ANGLE_ROUNDING = 1e-5
"""Both float32 angles of positions below 100 have errors of up to 4e-6."""


FREQUENCIES = 1 / 10_000 ** (torch.arange(0, HEAD_DIM, 2, dtype=torch.float64) / HEAD_DIM)


def random_vectors(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def rotated(rope: Rope, vectors: Tensor) -> Tensor:
    table = rope.table(vectors.shape[-2], vectors.shape[-1], vectors.dtype)
    return from_pairs(rope.to_pairs(vectors) * table)


def in_pair_layout(rope: Rope, vectors: Tensor) -> Tensor:
    return from_pairs(rope.to_pairs(vectors))


def find_rope(model: nn.Module, pairing: Pairing, sign: int = 1) -> Rope:
    (rope,) = (
        rope
        for rope in possible_ropes(model)
        if rope.pairing == pairing and sign * rope.inverse_frequencies[0] > 0
    )
    return rope


@pytest.mark.parametrize(
    ("kind", "pairing", "rotation"),
    [
        (LlamaRotaryEmbedding, "half", rotate_halves),
        (CohereRotaryEmbedding, "interleaved", rotate_interleaved),
    ],
)
@pytest.mark.parametrize("rope_type", ["default", "linear", "llama3", "yarn"])
def test_rotation_equals_reference(kind: Any, pairing: Pairing, rotation: Any, rope_type: str) -> None:
    parameters = {"rope_type": rope_type, "rope_theta": 10_000.0, "factor": 4.0}
    if rope_type in ("llama3", "yarn"):
        parameters["original_max_position_embeddings"] = 128
    if rope_type == "llama3":
        parameters |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    sizes: dict[str, Any] = {"hidden_size": 4 * HEAD_DIM, "num_attention_heads": 4, "head_dim": HEAD_DIM}
    config = LlamaConfig(max_position_embeddings=512, rope_parameters=parameters, **sizes)
    module = kind(config)
    rope = find_rope(module, pairing)
    assert (rope.scale > 1.1) == (rope_type == "yarn")
    assert torch.equal(rope.inverse_frequencies, module.inv_freq)
    assert torch.equal(find_rope(module, pairing, sign=-1).inverse_frequencies, -rope.inverse_frequencies)

    vectors = random_vectors(4, 60, HEAD_DIM)
    cos, sin = module(vectors, torch.arange(60)[None])
    expected, _ = rotation(vectors[None], vectors[None], cos, sin)
    result = rotated(rope, vectors) * rope.scale
    torch.testing.assert_close(result, in_pair_layout(rope, expected[0]), rtol=0, atol=ANGLE_ROUNDING)
    assert torch.equal(rope.to_vectors(rope.to_pairs(vectors)), vectors)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("rotary_dim", [4, 10, HEAD_DIM])
def test_pair_layout_is_a_permutation(pairing: Pairing, rotary_dim: int) -> None:
    rope = Rope(FREQUENCIES[: rotary_dim // 2], pairing, 1.0)
    vector = torch.arange(HEAD_DIM, dtype=torch.float64)
    pairs = rope.to_pairs(vector)
    assert torch.equal(rope.to_vectors(pairs), vector)
    assert torch.equal(as_pairs(from_pairs(pairs)), pairs)
    layout, half = from_pairs(pairs), rotary_dim // 2
    assert sorted(layout.tolist()) == vector.tolist()
    expected = [[i, i + half] if pairing == "half" else [2 * i, 2 * i + 1] for i in range(half)]
    assert layout[:rotary_dim].view(-1, 2).tolist() == expected


def test_layers_of_one_model_can_rotate_differently() -> None:
    config: Any = make("gemma3_text", **FAMILIES["gemma3_text"].options).config
    ropes = possible_ropes(Gemma3RotaryEmbedding(config))
    assert {rope.inverse_frequencies[0].item() for rope in ropes} == {1.0, -1.0, 0.25, -0.25, 0.0}
    with pytest.raises(ModelError, match="no rotary position embedding"):
        possible_ropes(nn.Linear(2, 2))
