"""Reasons why a model, or methods that place documents, cannot be used: errors, and checks of its config.

The checks need no weights; attention/model_validation.py checks properties that a config does not state.
"""

import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pine_engine.errors import ModelError, PineError, is_out_of_memory, one_line

if TYPE_CHECKING:  # torch and transformers take about 1.7 s to import
    from transformers import PretrainedConfig

_REASONS = tomllib.loads(Path(__file__).with_name("unsupported.toml").read_text(encoding="utf-8"))["reason"]

UNSUPPORTED: dict[str, str] = {kind: entry["text"] for entry in _REASONS for kind in entry["model_types"]}
"""Reason by model type, from unsupported.toml."""

KINDS_OF_ATTENTION = frozenset(("full_attention", "sliding_attention", "chunked_attention"))
"""Layer types in which a query attends to all keys, or to all within a window."""

PROBE_TOKENS = 35  # of the prompt by which a model is validated

EXTENDING_ROPE_TYPES = frozenset(("linear", "longrope", "yarn"))
"""Rope types whose factor multiplies the context of the training."""

CHANGING_ROPE_TYPE = "longrope"  # rope type with two sets of frequencies, the second for long prompts

PLACEMENT = "placement"
"""Need of a method that computes attention itself, and field of a ModelError for a model without that."""

BIDIRECTIONAL = ("bert-generation", "cpmant", "xlnet")
"""Model types whose tokens attend to later ones, besides those of masked language models."""

CONTEXT_NAMES = ("max_position_embeddings", "max_seq_len", "context_length")
"""Names of the context length in configs; the second is that of MPT, the third that of RWKV."""

ADVICE = "use a plain RoPE model such as Llama, Qwen2 or Mistral"

MAX_SIZES = (
    (re.compile("layers?$|depth"), 1_000),
    (re.compile("heads?$|experts"), 100_000),
    (re.compile("size|dim|embd|inner|d_model"), 10_000_000),
    (re.compile("position|context|ctx|length|window"), 1_000_000_000),
)
"""Maximum value of a config field by its name; the first pattern that matches counts."""


@contextmanager
def model_errors(label: str, advice: str, *, field: str = "model") -> Iterator[None]:
    """Raise errors of the block, of many types, as ModelError with label and advice."""
    try:
        yield
    except ModelError as error:
        if not label:
            raise
        raise ModelError(f"{label} cannot be used: {error}", field=error.field) from error
    except PineError:
        raise
    except Exception as error:
        message = f"{label or 'it'} cannot be used ({one_line(error)}); {advice}"
        if is_out_of_memory(error):
            field = "memory"
            message = f"not enough memory for {label or 'the model'} ({one_line(error)}); use a smaller model"
        elif isinstance(error, ImportError):
            field = "package"
            message = f"{label or 'it'} needs a package ({one_line(error)}); install it, or do not quantize"
        raise ModelError(message, field=field) from error


def check_sizes(content: Any, name: str = "") -> None:
    """Raise ModelError if a value of a config, in the field `name`, has a size that no model has.

    A model is built from these numbers before its weights are loaded, with all time and memory.
    """
    if isinstance(content, dict):
        for field, value in content.items():
            check_sizes(value, str(field))
    elif isinstance(content, list):
        for value in content:
            check_sizes(value, name)
    elif isinstance(content, int | float):
        limit = next((limit for pattern, limit in MAX_SIZES if pattern.search(name)), None)
        if limit is not None and content > limit:
            message = f"its config has a wrong {name}: got {content:g}, expected at most {limit:,}"
            raise ModelError(f"{message}; use the config of the weights", field="config")


def quantization_of(config: "PretrainedConfig") -> dict[str, Any]:
    """Return the quantization that a config states for the weights; empty for plain weights."""
    quantization: Any = getattr(config, "quantization_config", None) or {}
    fields: dict[str, Any] = quantization if isinstance(quantization, dict) else quantization.to_dict()
    return {name: getattr(value, "value", value) for name, value in fields.items()}


def refusal(config: "PretrainedConfig") -> str | None:
    """Return why a model cannot run, and what to use; None if the config allows it."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    quantization = quantization_of(config)
    if quantization.get("load_in_8bit"):
        eight_bits = "its bitsandbytes quantization to 8 bits depends on the other tokens of the batch"
        return f"{eight_bits}; use 4 bits, or call `model.dequantize()`"
    if "Activation" in str(quantization.get("quant_type")):
        return "its torchao quantization includes activations; use a weight-only quantization"
    try:
        text_config = config.get_text_config()
    except ValueError:  # raised by transformers
        return f"it has several text models, and PINE needs one; {ADVICE}"
    is_bidirectional = text_config.model_type in {*MODEL_FOR_MASKED_LM_MAPPING_NAMES, *BIDIRECTIONAL}
    reason = None
    if text_config.is_encoder_decoder:
        reason = "it is an encoder-decoder model, and PINE places documents in the one stream of a decoder"
    elif is_bidirectional and not getattr(text_config, "is_decoder", False):
        reason = "its tokens attend to later ones, and PINE needs a decoder"
    return reason and f"{reason}; {ADVICE}"


def placement_problem(config: "PretrainedConfig") -> str | None:
    """Return why methods that place documents do not fit a model, and what to use; None if they may."""
    reason = _unsupported(config.get_text_config())
    return reason and f"{reason}; {ADVICE}"


def shared_value(config: "PretrainedConfig", name: str) -> Any:
    """Return a field of a config; None if it is missing, or differs between layers."""
    try:
        return getattr(config, name, None)
    except RuntimeError:  # raised by transformers for fields that differ
        return None


def _unsupported(config: "PretrainedConfig") -> str | None:
    kind: str = config.model_type
    layer_types = set(shared_value(config, "layer_types") or ())
    ropes = _rope_parameters(config)
    if kind in UNSUPPORTED:
        return UNSUPPORTED[kind]
    if shared_value(config, "alibi"):
        return UNSUPPORTED["bloom"]
    if isinstance(shared_value(config, "index_topk"), int):
        return "its queries attend to a few keys only, which an indexer selects (sparse attention)"
    if layer_types & {"linear_attention", "conv", "mamba", "recurrent"}:
        return UNSUPPORTED["mamba"]
    if sparse := sorted(layer_types - KINDS_OF_ATTENTION):
        return f"it has layers of type {sparse[0]!r}, and PINE needs attention to all keys or to a window"
    if not ropes and not hasattr(config, "rotary_dim"):  # which GPT-J has
        return "its positions are learned or fixed vectors added to the tokens, and PINE needs rotary ones"
    window = sliding_window(config)
    if window and window < PROBE_TOKENS:
        return f"its sliding window is {window} tokens, which would cut even a short prompt"
    if any(parameters.get("rope_type") == "dynamic" for parameters in ropes):
        return "its rope type 'dynamic' (dynamic RoPE) changes the frequencies with every length"
    return None


def _rope_parameters(config: "PretrainedConfig") -> list[dict[str, Any]]:
    """Return the rope parameters of a config, one set per type of layer."""
    ropes: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    nested = [parameters for parameters in ropes.values() if isinstance(parameters, dict)]
    return nested or ([ropes] if ropes else [])


def scaled_rope(config: "PretrainedConfig") -> str | None:
    """Return the rope type of a scaled RoPE, such as llama3; None for plain RoPE."""
    ropes = _rope_parameters(config.get_text_config())
    kinds = (str(parameters.get("rope_type", "default")) for parameters in ropes)
    return next((kind for kind in kinds if kind != "default"), None)


def lengths_of_change(config: "PretrainedConfig") -> list[int]:
    """Return the prompt lengths in tokens at which the frequencies change (longrope)."""
    ropes = _rope_parameters(config.get_text_config())
    changing = [parameters for parameters in ropes if parameters.get("rope_type") == CHANGING_ROPE_TYPE]
    return sorted({int(parameters["original_max_position_embeddings"]) for parameters in changing})


def context_limit(config: "PretrainedConfig") -> tuple[int, str] | None:
    """Return the maximum length of prompt and answer in tokens, and its reason in words; None if not stated.

    PINE has no window and no scale that grows with the position, and equals the model up to this length. A
    model that runs as it is has both.
    """
    runs_as_it_is = placement_problem(config) is not None
    config = config.get_text_config()
    lengths = (getattr(config, name, None) for name in CONTEXT_NAMES)
    length = next((one for one in lengths if isinstance(one, int) and one > 0), None)
    if length is None:
        return None
    length = _extended_context(config) or length
    limits = [(length, f"the context of the model is {length} tokens")]
    if runs_as_it_is:
        return limits[0]
    if window := sliding_window(config):
        words = f"the model's sliding window is {window} tokens, and no document may fall out of it"
        limits.append((window, words))
    scaled_from = [
        parameters["original_max_position_embeddings"]
        for parameters in _rope_parameters(config)
        if parameters.get("llama_4_scaling_beta")
    ]
    if getattr(config, "attn_temperature_tuning", False):  # Llama 4, in layers without RoPE
        scaled_from.append(config.floor_scale - 1)
    for first in scaled_from:
        limits.append((first, f"beyond {first} tokens the model scales its queries by their position"))
    return min(limits)


def _extended_context(config: "PretrainedConfig") -> int | None:
    """Return the context in tokens to which a scaled RoPE extends that of the training; None if unknown.

    Users switch scaling on by the rope parameters alone, as model cards describe it.
    """
    lengths = [
        int(parameters["factor"] * parameters["original_max_position_embeddings"])
        for parameters in _rope_parameters(config)
        if parameters.get("rope_type") in EXTENDING_ROPE_TYPES
        and parameters.get("factor")
        and parameters.get("original_max_position_embeddings")
    ]
    return min(lengths, default=None)


def sliding_window(config: "PretrainedConfig") -> int | None:
    """Return the smallest attention window of the layers in tokens; None without a window."""
    config = config.get_text_config()
    layer_types = shared_value(config, "layer_types") or ["sliding_attention"]
    names = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}
    windows = [getattr(config, name, None) for kind, name in names.items() if kind in layer_types]
    return min((window for window in windows if isinstance(window, int) and window > 0), default=None)
