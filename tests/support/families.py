"""Tiny models of many transformers families."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedModel

from pine_engine import TokenLayout

TinyLlama = Callable[..., Any]
"""Fixture `tiny_llama`, which returns a LlamaForCausalLM; its methods take more than their annotations."""

LAYOUT = TokenLayout(
    (5, 9, 60), ((11, 12, 13, 14), (21, 22), (31, 32, 33, 34, 35)), (51, 52, 53), scores=(0.5, 2.0, 0.5)
)


INTERLEAVED = frozenset(
    {"cohere", "cohere2", "ernie4_5", "glm", "glm4", "helium", "llama4_text", "deepseek_v2"}
    | {"codegen", "gptj"}
)
"""Model types whose dimensions 2i and 2i + 1 rotate together."""


@dataclass(frozen=True)
class Family:
    """A transformers model type, and config options that make one tiny model of it."""

    kind: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def pairing(self) -> str:
        """Pairs of head dimensions, see pine_engine.network.rope."""
        return "interleaved" if self.kind in INTERLEAVED else "half"


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
    "vocab_size": 97, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
}  # fmt: skip
"""Config options of each family, unless its row has others."""

QWEN_VISION = {"depth": 1, "embed_dim": 32, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 2}
VISION = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
PLAIN_ROPE = {"rope_type": "default", "rope_theta": 100.0}
THREE_AXES = {"rope_parameters": PLAIN_ROPE | {"mrope_section": [1, 1, 2]}}


def vision(text: dict[str, Any], images: dict[str, Any]) -> dict[str, Any]:
    return {"text_config": {**SIZES, "head_dim": 8, **text}, "vision_config": images}


EXPERTS = {"num_local_experts": 4}
FEW_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
LLAMA3 = rope("llama3", low_freq_factor=1.0, high_freq_factor=4.0)
HEADS = {"head_dim": 8}
SINKS = HEADS | EXPERTS | {"num_experts_per_tok": 2, "sliding_window": 64}
LATENT = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8}
LATENT_EXPERTS = LATENT | {
    "num_key_value_heads": 4, "n_routed_experts": 2, "num_experts_per_tok": 1, "n_group": 1, "topk_group": 1,
    "moe_intermediate_size": 16, "first_k_dense_replace": 1,
}  # fmt: skip
GEMMA_4 = HEADS | {
    "global_head_dim": 16, "sliding_window": 64, "num_kv_shared_layers": 0,
    "layer_types": ["sliding_attention", "full_attention"],
}  # fmt: skip
PER_LAYER = {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 97}
SHARED_KEYS = {
    "num_hidden_layers": 4, "num_kv_shared_layers": 2,
    "layer_types": 2 * ["sliding_attention", "full_attention"],
}  # fmt: skip
WINDOW_THEN_ALL = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 64}
SOFTCAP = HEADS | {"attn_logit_softcapping": 2.0}
PARTIAL_YARN = rope("yarn", partial_rotary_factor=0.5)

_WITHOUT_OPTIONS = (
    *("arcee", "bitnet", "cohere", "exaone4", "gpt_neox", "hyperclovax", "jais2", "llama", "mistral"),
    *("nanochat", "nemotron", "olmo2", "persimmon", "phi", "phi3", "qwen2", "smollm3", "stablelm"),
    "starcoder2",
)
_WITH_HEAD_DIM = ("ernie4_5", "gemma", "glm", "glm4", "helium", "ministral3", "qwen3", "seed_oss")

FAMILIES = {
    **{kind: Family(kind) for kind in _WITHOUT_OPTIONS},
    **{kind: Family(kind, HEADS) for kind in _WITH_HEAD_DIM},
    "apertus": Family("apertus", LLAMA3),
    "gemma2": Family("gemma2", SOFTCAP),
    "granite": Family("granite", {"attention_multiplier": 0.2}),
    "granitemoe": Family("granitemoe", EXPERTS | {"num_experts_per_tok": 2}),
    "ministral": Family("ministral", HEADS | {"sliding_window": 64}),
    "mixtral": Family("mixtral", EXPERTS),
    "olmo": Family("olmo", {"clip_qkv": 0.5}),
    "olmoe": Family("olmoe", FEW_EXPERTS),
    "phimoe": Family("phimoe", EXPERTS),
    "qwen2_moe": Family("qwen2_moe", FEW_EXPERTS | {"shared_expert_intermediate_size": 16}),
    "qwen3_moe": Family("qwen3_moe", FEW_EXPERTS | HEADS),
    "vaultgemma": Family("vaultgemma", SOFTCAP),
    "falcon": Family("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon, one key head": Family("falcon", {"multi_query": True, "parallel_attn": True}),
    "falcon, a key head for each query head": Family("falcon", {"multi_query": False}),
    "gemma3_text": Family("gemma3_text", two_ropes("default")),
    "olmo3": Family("olmo3", two_ropes("default")),
    # The text parts of vision models.
    "gemma3": Family("gemma3", vision(two_ropes("default"), VISION)),
    "mistral3": Family("mistral3", vision({}, VISION | {"head_dim": 16})),
    "qwen2_vl": Family("qwen2_vl", vision(THREE_AXES, QWEN_VISION)),
    "qwen2_5_vl": Family("qwen2_5_vl", vision(THREE_AXES, QWEN_VISION)),
    # Config options that change attention.
    "one key head": Family("llama", {"num_key_value_heads": 1}),
    "a key head for each query head": Family("llama", {"num_key_value_heads": 4}),
    "bias": Family("llama", {"attention_bias": True}),
    "wide heads": Family("llama", {"head_dim": 16}),
    "tied embeddings": Family("llama", {"tie_word_embeddings": True}),
    "norm of queries and keys": Family("phi", {"qk_layernorm": True}),
    "norm of queries and keys, interleaved": Family("cohere", {"use_qk_norm": True}),
    "a window longer than the prompt": Family("mistral", {"sliding_window": 64}),
    "linear": Family("llama", rope("linear")),
    "llama3": Family("llama", LLAMA3),
    "yarn": Family("llama", rope("yarn")),
    "yarn, interleaved": Family("cohere", rope("yarn")),
    "yarn, partial": Family("phi", PARTIAL_YARN),
    "yarn, partial and interleaved": Family("glm4", HEADS | PARTIAL_YARN),
    "norm of queries and keys for each head": Family("stablelm", {"qk_layernorm": True}),
    "longrope, a short prompt": Family("phi3", longrope(long_from=128)),
    "longrope, a long prompt": Family("phi3", longrope(long_from=12)),
    "longrope, partial": Family("phi3", longrope(long_from=12, turning=2, partial_rotary_factor=0.5)),
    "few rotary dimensions": Family(
        "gpt_neox", {"rope_parameters": PLAIN_ROPE | {"partial_rotary_factor": 0.75}}
    ),
    "heads of 9 dimensions": Family("gpt_neox", {"hidden_size": 36, "rotary_pct": 0.5}),
    # Latent attention, whose last dimensions rotate and whose values have other dimensions than keys.
    "minicpm3": Family("minicpm3", LATENT | {"num_key_value_heads": 4}),
    "deepseek_v2": Family("deepseek_v2", LATENT_EXPERTS),
    "deepseek_v3": Family("deepseek_v3", LATENT_EXPERTS),
    "deepseek_v3, heads of 10 dimensions": Family("deepseek_v3", LATENT_EXPERTS | {"qk_nope_head_dim": 6}),
    "minicpm3, heads of 9 dimensions": Family(
        "minicpm3", LATENT | {"num_key_value_heads": 4, "qk_nope_head_dim": 5}
    ),
    "deepseek_v3, yarn": Family("deepseek_v3", LATENT_EXPERTS | rope("yarn", mscale=1.0, mscale_all_dim=0.8)),
    # Attention as a method of the layer, and in two of them rotation by a table.
    "gptj": Family("gptj", {"rotary_dim": 8}),
    "codegen": Family("codegen", {"rotary_dim": 8}),
    "gpt_neox_japanese": Family("gpt_neox_japanese"),
    # Several calls of attention for each layer.
    "diffllama": Family("diffllama"),
    "hrm_text": Family("hrm_text", HEADS | {"num_key_value_heads": 4}),
    # Sinks: a learned score of each head without a key.
    "gpt_oss": Family("gpt_oss", SINKS),
    # Heads whose dimension differs between layers.
    "gemma4_text": Family("gemma4_text", GEMMA_4 | PER_LAYER),
    # Layers that attend with their own queries to keys of earlier layers.
    "gemma4_text, shared keys": Family("gemma4_text", GEMMA_4 | PER_LAYER | SHARED_KEYS),
    "gemma4_unified_text, shared keys": Family("gemma4_unified_text", GEMMA_4 | SHARED_KEYS),
    # Layers without RoPE.
    "smollm3, a layer without RoPE": Family("smollm3", {"no_rope_layers": [1, 0]}),
    "cohere2, RoPE in windows only": Family("cohere2", WINDOW_THEN_ALL),
    "exaone4, RoPE in windows only": Family("exaone4", WINDOW_THEN_ALL),
    "llama4_text": Family(
        "llama4_text",
        HEADS
        | {"no_rope_layers": [1, 0], "attention_chunk_size": 64, "num_local_experts": 2}
        | {"intermediate_size_mlp": 64},
    ),
}
"""Models that PINE supports, by the property that distinguishes them."""

DAILY = {
    *("llama", "qwen3", "qwen2_5_vl", "gemma2", "gemma3_text", "glm4", "cohere", "gpt_neox", "falcon"),
    *(
        "mixtral", "nemotron", "longrope, a long prompt", "smollm3, a layer without RoPE", "deepseek_v3",
        "deepseek_v3, heads of 10 dimensions", "gemma4_text, shared keys", "gpt_oss",
    ),
}  # fmt: skip
"""Families of the daily tier: attention is patched differently in each."""


def by_tier(names: Iterable[str]) -> list[pytest.ParameterSet]:
    """Return test parameters of which the families outside `DAILY` are marked slow."""
    return [pytest.param(name, marks=() if name in DAILY else pytest.mark.slow) for name in names]


def make(kind: str, dtype: torch.dtype = torch.float32, **options: Any) -> PreTrainedModel:
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
            if name.endswith(("bias", "sinks")):
                parameter.data.normal_(std=0.2)
    made = model.eval().requires_grad_(False)
    assert isinstance(made, PreTrainedModel)
    return made
