"""Checks of a model config: context length, and reasons why PINE cannot run the model.

They need no weights, so that a model is rejected before its download. attention/model_validation.py checks
properties that a config does not state.
"""

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # see checkpoint.py
    from transformers import PretrainedConfig

RECURRENT = frozenset(
    [
        *("falcon_h1", "falcon_mamba", "jamba", "lfm2", "lfm2_moe", "lfm3", "mamba", "mamba2"),
        *("nemotron_h", "recurrent_gemma", "rwkv", "xlstm", "zamba", "zamba2", "zaya"),
    ]
)
"""Model types with layers that mix tokens in a state or a convolution; not all say so in layer_types."""

SINKS = frozenset(("flint", "gpt_oss", "granite_swa", "granitemoe_swa", "mimo_v2_flash"))
"""Model types whose softmax has a term without a key."""

OWN_ROTATION = frozenset(("codegen", "gptj", "roformer"))
"""Model types with a table of rotations inside each attention layer."""

ROTATES_IN_WINDOWS = frozenset(("afmoe", "cohere2", "cohere2_moe", "exaone4", "exaone_moe"))
"""Model types that rotate only in layers with a sliding window, if they have such layers."""

KINDS_OF_ATTENTION = frozenset(("full_attention", "sliding_attention", "chunked_attention"))
"""Layer types in which a query attends to all keys, or to all within a window."""

DYNAMIC_ROPE_TYPE = "dynamic"
"""Rope type whose frequencies change with each length."""

CHANGING_ROPE_TYPE = "longrope"
"""Rope type with two sets of frequencies, the second for long prompts."""

SUPPORTED_ROPE_TYPES = "'default', 'linear', 'llama3', 'yarn' or 'longrope'"

ADVICE = "use a plain RoPE model such as Llama, Qwen2 or Mistral"


MAX_SIZES = (
    (re.compile("layers?$|depth"), 1_000),
    (re.compile("heads?$|experts"), 100_000),
    (re.compile("size|dim|embd|inner|d_model"), 10_000_000),
    (re.compile("position|context|ctx|length|window"), 1_000_000_000),
)
"""Maximum value of a config field by its name; the first pattern that matches counts."""


def impossible_size(stated: Any, name: str = "") -> str | None:
    """Return why a config, as its file states it, describes no model; None if its sizes are possible.

    A model is built from these numbers before its weights are read, so that a wrong one takes all time and
    memory.

    Args:
        stated: The config or a value in it, as JSON is read.
        name: Field that has the value.
    """
    if isinstance(stated, dict | list):
        fields = stated.items() if isinstance(stated, dict) else ((name, value) for value in stated)
        return next(filter(None, (impossible_size(value, str(field)) for field, value in fields)), None)
    if not isinstance(stated, int | float):
        return None
    limit = next((limit for pattern, limit in MAX_SIZES if pattern.search(name)), None)
    if limit is None or stated <= limit:
        return None
    return (
        f"its config has a wrong {name}: got {stated:g}, expected at most {limit:,}; use a config that "
        "belongs to the weights"
    )


def refusal(config: "PretrainedConfig") -> str | None:
    """Return why PINE cannot run a model, and what to use; None if the config allows it.

    The reason continues a sentence about the model: "its positions are ALiBi, ...; use ...".
    """
    config = config.get_text_config()
    found = _unsupported(config)
    if found is not None:
        return f"{found}; {ADVICE}"
    if any(parameters.get("rope_type") == DYNAMIC_ROPE_TYPE for parameters in _rope_parameters(config)):
        return (
            f"its rope type {DYNAMIC_ROPE_TYPE!r} (dynamic RoPE) changes the frequencies with every length, "
            f"so that positions are not comparable; use a model with rope type {SUPPORTED_ROPE_TYPES}"
        )
    return None


def lengths_of_change(config: "PretrainedConfig") -> list[int]:
    """Return the prompt lengths in tokens at which the frequencies change (longrope)."""
    config = config.get_text_config()
    return sorted(
        {
            int(parameters["original_max_position_embeddings"])
            for parameters in _rope_parameters(config)
            if parameters.get("rope_type") == CHANGING_ROPE_TYPE
        }
    )


def _unsupported(config: "PretrainedConfig") -> str | None:
    kind = config.model_type
    layer_types = set(getattr(config, "layer_types", None) or ())
    ropes = _rope_parameters(config)
    if config.is_encoder_decoder:
        return "it is an encoder-decoder model, and PINE places documents in the one stream of a decoder"
    if kind in ("bloom", "mpt") or getattr(config, "alibi", False):
        return "its positions are ALiBi, a penalty on distance, and PINE moves documents by rotation"
    if isinstance(getattr(config, "kv_lora_rank", None), int):
        return (
            "it has multi-head latent attention (MLA), where only a part of each key is rotated and the rest "
            "is compressed, which is not supported"
        )
    if kind in RECURRENT or layer_types & {"linear_attention", "conv", "mamba", "recurrent"}:
        return (
            "it has recurrent, state-space or convolution layers, in which a document cannot be separated "
            "from the text before it"
        )
    sparse = sorted(layer_types - KINDS_OF_ATTENTION)
    if sparse:
        return (
            f"it has layers of type {sparse[0]!r}, and PINE knows only layers that read all keys or a window"
        )
    if kind in OWN_ROTATION:
        return "it rotates by a table inside each attention layer, which cannot be replaced"
    if not ropes:
        return (
            "its positions are learned or fixed vectors added to the tokens, not rotary, so a document "
            "cannot be moved after it was read"
        )
    if kind == "diffllama":
        return "its attention is a difference of two softmaxes (differential attention), not supported here"
    if hasattr(config, "H_cycles"):
        return "it runs the same layers several times in cycles, and PINE knows only layers that run once"
    if kind in SINKS:
        return "its attention has sinks (learned scores without a key), which are not supported"
    rotates = getattr(config, "no_rope_layers", None) or [1]  # the name's opposite: 0 is a layer without
    windows = "sliding_attention" in layer_types
    if not all(rotates) or (kind in ROTATES_IN_WINDOWS and windows and "full_attention" in layer_types):
        return "some of its layers have no rotary positions (NoPE), which is not supported"
    return None


def _rope_parameters(config: "PretrainedConfig") -> list[dict[str, Any]]:
    """Return the rope parameters of a config, one set per type of layer."""
    stated: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    nested = [parameters for parameters in stated.values() if isinstance(parameters, dict)]
    return nested or ([stated] if stated else [])


def stated_context(config: "PretrainedConfig") -> int | None:
    """Return the maximum length of prompt and answer in tokens; None if the config does not state it."""
    limits = _limits(config.get_text_config())
    return min(limits)[0] if limits else None


def context_in_words(config: "PretrainedConfig") -> str:
    """Return the limit of the context as text, such as "the model reads 8192 in all"."""
    limits = _limits(config.get_text_config())
    return min(limits)[1] if limits else "the model does not say how many tokens it reads"


def _limits(config: "PretrainedConfig") -> list[tuple[int, str]]:
    """Return the limits of prompt and answer in tokens with their descriptions; empty if not stated.

    PINE's attention function has no window and no scale that grows with the position, and equals those of the
    model up to these lengths.
    """
    stated = getattr(config, "max_position_embeddings", None)
    if not isinstance(stated, int) or stated < 1:
        return []
    limits = [(stated, f"the model reads {stated} in all")]
    window = sliding_window(config)
    if window:
        words = f"the model's sliding window is {window} tokens, and no document may fall out of it"
        limits.append((window, words))
    for parameters in _rope_parameters(config):
        if parameters.get("llama_4_scaling_beta"):
            first = parameters["original_max_position_embeddings"]
            limits.append((first, f"beyond {first} tokens the model scales its queries by their position"))
    return limits


def sliding_window(config: "PretrainedConfig") -> int | None:
    """Return the smallest attention window of the layers in tokens; None without a window."""
    config = config.get_text_config()
    layer_types = getattr(config, "layer_types", None) or ["sliding_attention"]
    windows = [
        getattr(config, name, None)
        for kind, name in (
            ("sliding_attention", "sliding_window"),
            ("chunked_attention", "attention_chunk_size"),
        )
        if kind in layer_types
    ]
    return min((window for window in windows if isinstance(window, int) and window > 0), default=None)
