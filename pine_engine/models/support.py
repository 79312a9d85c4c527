"""What a model's config alone says: how long a prompt may be, and why PINE cannot run the model.

No weight is read for it, so that a model is refused before it is downloaded, and listed without loading it.
What a config does not say, the probe finds.
"""

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # imported late elsewhere, for the reason that checkpoint.py gives
    from transformers import PretrainedConfig

RECURRENT = frozenset(
    [
        *("falcon_h1", "falcon_mamba", "jamba", "lfm2", "lfm2_moe", "lfm3", "mamba", "mamba2"),
        *("nemotron_h", "recurrent_gemma", "rwkv", "xlstm", "zamba", "zamba2", "zaya"),
    ]
)
"""Model types with layers that mix tokens in a state or a convolution; not all say so in layer_types."""

SINKS = frozenset(("flint", "gpt_oss", "granite_swa", "granitemoe_swa", "mimo_v2_flash"))
"""Model types whose softmax has one more term than there are keys."""

OWN_ROTATION = frozenset(("codegen", "gptj", "roformer"))
"""Model types that rotate by a table of their own, inside each attention layer."""

ROTATES_IN_WINDOWS = frozenset(("afmoe", "cohere2", "cohere2_moe", "exaone4", "exaone_moe"))
"""Model types that, where some layers have a sliding window, rotate in those only."""

KINDS_OF_ATTENTION = frozenset(("full_attention", "sliding_attention", "chunked_attention"))
"""Layer types in which a query sees every key, or every one within a window."""

DYNAMIC_ROPE_TYPE = "dynamic"
"""The rope type whose frequencies change with every length."""

CHANGING_ROPE_TYPE = "longrope"
"""The rope type that has two sets of frequencies, the second for prompts longer than some length."""

SUPPORTED_ROPE_TYPES = "'default', 'linear', 'llama3', 'yarn' or 'longrope'"

ADVICE = "use a plain RoPE model such as Llama, Qwen2 or Mistral"


MAX_SIZES = (
    (re.compile("layers?$|depth"), 1_000),
    (re.compile("heads?$|experts"), 100_000),
    (re.compile("size|dim|embd|inner|d_model"), 10_000_000),
    (re.compile("position|context|ctx|length|window"), 1_000_000_000),
)
"""Largest number that a config may state, by the name of its field; the first that fits counts."""


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
    """Why PINE cannot run a model of this config, and what would work; None if the config allows it.

    The answer continues a sentence that names the model: "its positions are ALiBi, ...; use ...".
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
    """Lengths of prompts, in tokens, behind which the model rotates by other frequencies (longrope)."""
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
            "it has recurrent, state-space or convolution layers, in which a document cannot be read apart "
            "from what stands before it"
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
    """The config's rope parameters, one set for each kind of layer that has its own."""
    stated: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    nested = [parameters for parameters in stated.values() if isinstance(parameters, dict)]
    return nested or ([stated] if stated else [])


def stated_context(config: "PretrainedConfig") -> int | None:
    """Longest prompt and answer together that can be read, in tokens; None if the config does not say."""
    limits = _limits(config.get_text_config())
    return min(limits)[0] if limits else None


def context_in_words(config: "PretrainedConfig") -> str:
    """What limits the context: "the model reads 8192 in all", or what it does farther on."""
    limits = _limits(config.get_text_config())
    return min(limits)[1] if limits else "the model does not say how many tokens it reads"


def _limits(config: "PretrainedConfig") -> list[tuple[int, str]]:
    """Each number of tokens that prompt and answer must not pass, and what it is; empty if not stated.

    The attention function here has no window and no factor that grows with the position; up to their length
    it is the same.
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
    """How many tokens back the layers see that see least, in tokens; None where all see everything."""
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
