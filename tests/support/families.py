"""Tiny models of many transformers families, and the definition of PINE applied to any of them.

The reference runs the family's own code with position ids of zero, so that queries and keys arrive
unrotated, and rotates every key for every query with the family's own functions: nothing here is shared
with `pine_engine.attention.arithmetic` or `pine_engine.network.rope`.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedModel,
)

from pine_engine.network.rope import Pairing
from pine_engine.prompts.layout import TokenLayout
from tests.support.reference import positions_seen

LAYOUT = TokenLayout((5, 9, 60), ((11, 12, 13, 14), (21, 22), (31, 32, 33, 34, 35)), (51, 52, 53))
"""Three documents of unequal length."""


@dataclass(frozen=True)
class Family:
    """A transformers model type, and config options that make one tiny model of it.

    pairing: how its head dimensions pair up, see pine_engine.network.rope.
    """

    kind: str
    pairing: Pairing = "half"
    options: dict[str, Any] = field(default_factory=dict)


def rope(rope_type: str, **options: Any) -> dict[str, Any]:
    """Return RoPE parameters of a scaled type, from 128 tokens to 512."""
    scaled = {"rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 128}
    return {"rope_parameters": {"rope_type": rope_type, **scaled, **options}}


def longrope(long_from: int, turning: int = 4, **options: Any) -> dict[str, Any]:
    """Return RoPE parameters with `turning` other frequencies for more than `long_from` tokens."""
    factors = {"short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [2.0, 3.0, 5.0, 8.0]}
    return {
        "original_max_position_embeddings": long_from,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 10_000.0,
            "original_max_position_embeddings": long_from,
            **{name: factor[:turning] for name, factor in factors.items()},
            **options,
        },
    }


def two_ropes(near: str) -> dict[str, Any]:
    """Return RoPE parameters of layers with a sliding window and of layers with full attention."""
    return {
        "head_dim": 8,
        "sliding_window": 64,
        "num_hidden_layers": 3,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_parameters": {
            "sliding_attention": {"rope_type": near, "rope_theta": 100.0},
            "full_attention": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0},
        },
    }


SIZES = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
"""Config options of each family, unless its row has others."""

QWEN_EYES = {"depth": 1, "embed_dim": 32, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 2}
EYES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
THREE_AXES = {
    "rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "mrope_section": [1, 1, 2]},
}


def vision(text: dict[str, Any], images: dict[str, Any]) -> dict[str, Any]:
    """Return the configs of the text part and of the vision part of a model."""
    return {"text_config": {**SIZES, "head_dim": 8, **text}, "vision_config": images}


FEW_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
LLAMA3 = rope("llama3", low_freq_factor=1.0, high_freq_factor=4.0)

FAMILIES = {
    # One of each family.
    "apertus": Family("apertus", options=LLAMA3),
    "arcee": Family("arcee"),
    "bitnet": Family("bitnet"),
    "cohere": Family("cohere", "interleaved"),
    "ernie4_5": Family("ernie4_5", "interleaved", {"head_dim": 8}),
    "exaone4": Family("exaone4"),
    "gemma": Family("gemma", options={"head_dim": 8}),
    "gemma2": Family("gemma2", options={"head_dim": 8, "attn_logit_softcapping": 2.0}),
    "glm": Family("glm", "interleaved", {"head_dim": 8}),
    "glm4": Family("glm4", "interleaved", {"head_dim": 8}),
    "gpt_neox": Family("gpt_neox"),
    "granite": Family("granite", options={"attention_multiplier": 0.2}),
    "granitemoe": Family("granitemoe", options={"num_local_experts": 4, "num_experts_per_tok": 2}),
    "helium": Family("helium", "interleaved", {"head_dim": 8}),
    "hyperclovax": Family("hyperclovax"),
    "jais2": Family("jais2"),
    "llama": Family("llama"),
    "ministral": Family("ministral", options={"head_dim": 8, "sliding_window": 64}),
    "ministral3": Family("ministral3", options={"head_dim": 8}),
    "mistral": Family("mistral"),
    "mixtral": Family("mixtral", options={"num_local_experts": 4}),
    "olmo": Family("olmo", options={"clip_qkv": 0.5}),
    "olmo2": Family("olmo2"),
    "olmoe": Family("olmoe", options=FEW_EXPERTS),
    "persimmon": Family("persimmon"),
    "phi": Family("phi"),
    "phi3": Family("phi3"),
    "phimoe": Family("phimoe", options={"num_local_experts": 4}),
    "qwen2": Family("qwen2"),
    "qwen2_moe": Family("qwen2_moe", options=FEW_EXPERTS | {"shared_expert_intermediate_size": 16}),
    "qwen3": Family("qwen3", options={"head_dim": 8}),
    "qwen3_moe": Family("qwen3_moe", options=FEW_EXPERTS | {"head_dim": 8}),
    "seed_oss": Family("seed_oss", options={"head_dim": 8}),
    "smollm3": Family("smollm3"),
    "starcoder2": Family("starcoder2"),
    "vaultgemma": Family("vaultgemma", options={"head_dim": 8, "attn_logit_softcapping": 2.0}),
    "falcon": Family("falcon", options={"new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon, one key head": Family("falcon", options={"multi_query": True, "parallel_attn": True}),
    "falcon, a key head for each query head": Family("falcon", options={"multi_query": False}),
    "gemma3_text": Family("gemma3_text", options=two_ropes("default")),
    "nanochat": Family("nanochat"),
    "nemotron": Family("nemotron"),
    "olmo3": Family("olmo3", options=two_ropes("default")),
    "stablelm": Family("stablelm"),
    # The text parts of vision models.
    "gemma3": Family("gemma3", options=vision(two_ropes("default"), EYES)),
    "mistral3": Family("mistral3", options=vision({}, EYES | {"head_dim": 16})),
    "qwen2_vl": Family("qwen2_vl", options=vision(THREE_AXES, QWEN_EYES)),
    "qwen2_5_vl": Family("qwen2_5_vl", options=vision(THREE_AXES, QWEN_EYES)),
    # Config options that change attention.
    "one key head": Family("llama", options={"num_key_value_heads": 1}),
    "a key head for each query head": Family("llama", options={"num_key_value_heads": 4}),
    "bias": Family("llama", options={"attention_bias": True}),
    "wide heads": Family("llama", options={"head_dim": 16}),
    "tied embeddings": Family("llama", options={"tie_word_embeddings": True}),
    "norm of queries and keys": Family("phi", options={"qk_layernorm": True}),
    "norm of queries and keys, interleaved": Family("cohere", "interleaved", {"use_qk_norm": True}),
    "a window longer than the prompt": Family("mistral", options={"sliding_window": 64}),
    "linear": Family("llama", options=rope("linear")),
    "llama3": Family("llama", options=LLAMA3),
    "yarn": Family("llama", options=rope("yarn")),
    "yarn, interleaved": Family("cohere", "interleaved", rope("yarn")),
    "yarn, partial": Family("phi", options=rope("yarn", partial_rotary_factor=0.5)),
    "yarn, partial and interleaved": Family(
        "glm4", "interleaved", {"head_dim": 8} | rope("yarn", partial_rotary_factor=0.5)
    ),
    "norm of queries and keys for each head": Family("stablelm", options={"qk_layernorm": True}),
    "longrope, a short prompt": Family("phi3", options=longrope(long_from=128)),
    "longrope, a long prompt": Family("phi3", options=longrope(long_from=12)),
    "longrope, partial": Family("phi3", options=longrope(long_from=12, turning=2, partial_rotary_factor=0.5)),
    "few rotary dimensions": Family(
        "gpt_neox",
        options={
            "rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.75}
        },
    ),
}
"""Models that PINE supports, by what is special about them."""

DAILY = {
    *("llama", "qwen3", "qwen2_5_vl", "gemma2", "gemma3_text", "glm4", "cohere", "gpt_neox", "falcon"),
    *("mixtral", "nemotron", "longrope, a long prompt"),
}
"""Families of the daily tier: attention is patched differently in each."""


def by_tier(names: Iterable[str]) -> list[pytest.ParameterSet]:
    """Return test parameters of which the families outside `DAILY` are marked slow."""
    return [pytest.param(name, marks=() if name in DAILY else pytest.mark.slow) for name in names]


def make(kind: str, dtype: torch.dtype = torch.float32, **options: Any) -> PreTrainedModel:
    """Return a model with constant random weights, large enough that positions have an effect."""
    has_vision = "vision_config" in options
    defaults = {} if has_vision else {**SIZES, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = AutoConfig.for_model(kind, **{**defaults, **options})
    config.initializer_range = config.get_text_config().initializer_range = 0.2
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        kind_of_model: Any = AutoModelForImageTextToText if has_vision else AutoModelForCausalLM
        model = kind_of_model.from_config(
            config,
            dtype=dtype,
            attn_implementation="eager",
            experts_implementation="eager",  # the fused one has no float64
        )
        for name, parameter in model.named_parameters():  # some families begin with biases of zero
            if name.endswith("bias"):
                parameter.data.normal_(std=0.2)
    made = model.eval().requires_grad_(False)
    assert isinstance(made, PreTrainedModel)
    return made


Mix = Callable[[nn.Module, Tensor, Tensor, Tensor, float, float | None], Tensor]
"""(attention module, query (H, n, d), key and value (G, n, d), scale, softcap) to the output (H, n, d)."""

REFERENCE = "reference_for_tests"

_mix: list[Mix] = []
"""Current attention of the reference; some families pass no arguments to their attention."""


def _reference_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    softcap: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    output = _mix[-1](module, query[0], key[0], value[0], scaling, softcap)
    return output[None].transpose(1, 2).contiguous(), None


AttentionInterface.register(REFERENCE, _reference_attention)
AttentionMaskInterface.register(REFERENCE, lambda *_, **__: None)


@contextmanager
def mixed_by(model: PreTrainedModel, mix: Mix) -> Iterator[None]:
    """Replace the attention of the model inside the block."""
    is_fused = model.config.model_type == "falcon"  # which uses no registry
    configs = [part.config for part in model.modules() if isinstance(part, PreTrainedModel)]
    before = [config._attn_implementation for config in configs]
    attention = next(part for part in model.modules() if type(part).__name__.endswith("Attention"))

    def fused(query: Tensor, key: Tensor, value: Tensor, **_: Any) -> Tensor:
        return mix(attention, query[0], key[0], value[0], query.shape[-1] ** -0.5, None)[None]

    _mix.append(mix)
    try:
        for config in configs:
            config._attn_implementation_internal = "sdpa" if is_fused else REFERENCE
        with patch("torch.nn.functional.scaled_dot_product_attention", fused):
            yield
    finally:
        for config, implementation in zip(configs, before, strict=True):
            config._attn_implementation_internal = implementation
        _mix.pop()


def defined_logits(
    model: PreTrainedModel,
    layout: TokenLayout,
    method: str,
    observe: Callable[[int, int, Tensor], None] = lambda *_: None,
) -> Tensor:
    """Return the logits (n, V) of the prompt under a method. Source: specification 1, 3.

    observe: called with layer, head and the unrotated scores (n, n).
    """
    text = getattr(getattr(model, "model", None), "language_model", model)
    rotary = next(module for module in text.modules() if "inv_freq" in " ".join(vars(module)["_buffers"]))
    ids = torch.tensor(layout.ids)[None]

    def mix(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, scaling: float, softcap: float | None
    ) -> Tensor:
        rotate = sys.modules[type(module).__module__].apply_rotary_pos_emb
        kinds = model.config.get_text_config().layer_types if isinstance(rotary.rope_type, dict) else None
        of_layer = [] if kinds is None else [kinds[module.layer_idx]]
        cos, sin = rotary(query, torch.arange(layout.num_tokens)[None], *of_layer)
        # At position 0 the model has already applied the factor of yarn in cos and sin to the rotated
        # dimensions.
        factor = torch.ones(query.shape[-1])
        factor[: cos.shape[-1]] = cos[0, 0, 0]
        query, key = query / factor, key / factor
        rotated_query, rotated_key = (_at_every_position(rotate, x, cos, sin) for x in (query, key))
        group = len(query) // len(key)
        output = torch.empty_like(query)
        for head in range(len(query)):
            raw = query[head] @ key[head // group].T * scaling
            observe(cast(int, module.layer_idx), head, raw)
            for index in range(layout.num_tokens):
                own, keys_at, weights = positions_seen(layout, method, index, raw)
                visible = sorted(keys_at)
                keys = rotated_key[visible, head // group, [keys_at[j] for j in visible]]
                scores = keys @ rotated_query[index, head, own] * scaling
                if softcap is not None:
                    scores = (scores / softcap).tanh() * softcap
                scores = scores + scores.new_tensor([weights.get(key, 1.0) for key in visible]).log()
                output[head, index] = scores.softmax(-1) @ value[head // group, visible]
        return output

    with mixed_by(model, mix), torch.inference_mode():
        output = model(input_ids=ids, position_ids=torch.zeros_like(ids), use_cache=False)
    logits: Tensor = output.logits[0]
    return logits


def _at_every_position(rotate: Any, vectors: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate vectors (heads, n, d) to each of P positions, (n, heads, P, d). cos, sin: (1, P, turning)."""
    turning = cos.shape[-1]
    spread = vectors.transpose(0, 1)[:, :, None].expand(-1, -1, cos.shape[1], -1)
    turned, _ = rotate(spread[..., :turning], spread[..., :turning], cos, sin)
    return torch.cat((turned, spread[..., turning:]), dim=-1)
