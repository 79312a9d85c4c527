"""Survey of transformers' causal model types: what PINE makes of a tiny random model of each.

    python -m tools.survey_models                 # all types, or those given: gemma4_text smollm3

Models have float64 weights and small sizes; other options are the defaults of their config. Each accepted
model is compared with the reference of the tests under five methods, and shuffled in four orders. A model
that runs as it is is shuffled in two orders under its default methods. Prints the types of each outcome with
reasons, and exits with status 1 for a deviation, an unexpected exception or an answer that is not bitwise
identical.
"""

import os
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import torch
import transformers
import typer
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from pine_engine import METHODS, Engine, ModelError, TokenLayout
from pine_engine.engine.passes import PassOptions, prefill
from pine_engine.errors import one_line
from pine_engine.models.support import refusal
from tests.support.reference import reference_logits

LAYOUT = TokenLayout((5, 9, 60), ((11, 12, 13, 14), (21, 22), (31, 32, 33, 34, 35)), (51, 52, 53))

COMPARED = ["vanilla", "nia", "pcw", "pine", "rotor"]

TOLERANCE = 1e-5
"""Angles, norms and experts are float32 in float64 models too."""

SIZES: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 512,
    "sliding_window": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "num_local_experts": 2, "num_experts": 2, "n_routed_experts": 2, "num_experts_per_tok": 1,
    "moe_intermediate_size": 16, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
    "num_shared_experts": 1, "n_shared_experts": 1, "shared_expert_intermediate_size": 16,
    "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8,
    "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 97,
    "n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 512, "n_ctx": 512, "rotary_dim": 4,
    "d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 512, "rope_theta": 1e4, "kv_n_heads": 2,
    "ffn_hidden_size": 32, "expert_ffn_hidden_size": 16, "zero_expert_num": 2, "moe_topk": 2,
    "image_size": 32, "crop_size": 32, "mlp_dim": 32, "output_channels": 32, "num_blocks": 1,
    "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_ssm": 64, "mamba_num_heads": 8, "mamba_head_dim": 8,
    "mamba_d_state": 8, "state_size": 8, "ssm_state_size": 8, "n_mamba_heads": 1, "chunk_size": 16,
    "linear_num_key_heads": 4, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
    "linear_value_head_dim": 8, "linear_head_dim": 8, "linear_num_heads": 4,
    "ext_pw_out_channel": 32, "depthwise_separable_out_channel": 32, "nemo_conv_channels": 32,
}  # fmt: skip
"""Options by name, for the configs that have them."""

SHARED_LAYERS = {
    "num_hidden_layers": 4, "num_kv_shared_layers": 2,
    "layer_types": 2 * ["sliding_attention", "full_attention"],
}  # fmt: skip
"""Options of configs whose last layers can share the keys of earlier ones."""

PLAIN_ROPE = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}

ONE_GROUP = {"num_experts": 4, "num_experts_per_token": 1, "num_expert_group": 1, "topk_group": 1}

TWO_KINDS = {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2}

LEFT_OUT: tuple[tuple[str, ...], ...] = (
    (),
    ("head_dim",),
    ("sliding_window",),
    ("q_lora_rank", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"),
    ("num_key_value_heads",),
    ("num_hidden_layers", "num_layers"),
    ("mamba_head_dim", "n_mamba_heads", "mamba_d_state"),
)
"""Options that are left to the config, tried one after the other until a model can be built and run."""

OTHER_OPTIONS: dict[str, dict[str, Any]] = {
    "cohere_compass_text": {"rope_parameters": {"full_attention": PLAIN_ROPE}},
    "dbrx": {"attn_config": {"rope_theta": 1e4, "kv_n_heads": 2, "clip_qkv": 8.0}},
    "longcat_flash": {"head_dim": 4},
    "mamba2": {"hidden_size": 32, "num_heads": 8, "head_dim": 8, "n_groups": 2},
    "lfm2": TWO_KINDS,
    "lfm2_moe": TWO_KINDS | {"num_dense_layers": 1},
    "kimi_linear": ONE_GROUP
    | {"layer_types": ["linear_attention", "full_attention"], "num_hidden_layers": 2},
    "bailing_hybrid": ONE_GROUP,
}
"""Options of types whose default config states no RoPE, or builds no model."""

MAX_PARAMETERS, MAX_S = 1e8, 60


class TooSlowError(Exception):
    """A type took longer than MAX_S seconds."""


@contextmanager
def time_limit() -> Iterator[None]:
    """Raise TooSlowError in the block after MAX_S seconds."""

    def stop(*_: object) -> None:
        raise TooSlowError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(MAX_S)
    try:
        yield
    finally:
        signal.alarm(0)


def build(kind: str) -> PreTrainedModel:
    """Return a tiny model of a type that can run. Raises an exception of transformers or torch."""
    whole = AutoConfig.for_model(kind)
    problem: Exception = ValueError("no model")
    for names in LEFT_OUT:
        options = _options(whole, names)
        for part in [name for name in whole.sub_configs if getattr(whole, name, None)]:
            options[part] = _options(getattr(whole, part), names) | options.get(part, {})
        try:
            config = AutoConfig.for_model(kind, **(options | OTHER_OPTIONS.get(kind, {})))
            torch.manual_seed(0)
            model: PreTrainedModel = AutoModelForCausalLM.from_config(
                config, dtype=torch.float64, attn_implementation="eager", experts_implementation="eager"
            ).eval()
            if model.num_parameters() > MAX_PARAMETERS:
                raise ValueError("it cannot be made small by common options")
            with torch.inference_mode():
                model(torch.tensor([[5, 6, 7]]), use_cache=False)
        except TooSlowError:
            raise
        except Exception as error:
            problem = error
        else:
            return model
    raise problem


def _options(config: PretrainedConfig, left_out: tuple[str, ...]) -> dict[str, Any]:
    """Return the small options that a config or a part of it has."""
    fields = set(config.to_dict()) - set(left_out)
    options = {name: value for name, value in SIZES.items() if name in fields}
    if "num_kv_shared_layers" in fields:
        options |= SHARED_LAYERS
    if "kv_lora_rank" in fields:
        options["num_key_value_heads"] = SIZES["num_attention_heads"]
    return options


def deviation(engine: Engine, method: str) -> float:
    """Return the largest deviation of logits from the reference, relative to the largest logit."""
    expected = reference_logits(engine.model, LAYOUT, method)
    options = PassOptions(engine.patched_models, logits_to_keep=0)
    with torch.inference_mode():
        logits = prefill(LAYOUT, METHODS[method], options)[1]
    return ((logits - expected).abs().max() / expected.abs().max()).item()


def outcome(kind: str) -> tuple[str, str]:
    """Return what becomes of a type, and the reason."""
    try:
        if reason := refusal(AutoConfig.for_model(kind, **OTHER_OPTIONS.get(kind, {}))):
            return "refused", reason
        model = build(kind)
    except TooSlowError:
        raise
    except Exception as error:
        return "not built", one_line(error)
    try:
        engine = Engine(model)
    except ModelError as error:
        return "refused", str(error)
    problem = engine.placement_problem
    deviations = {} if problem else {method: deviation(engine, method) for method in COMPARED}
    if not max(deviations.values(), default=0.0) <= TOLERANCE:
        return "deviating", ", ".join(f"{method} {found:.1e}" for method, found in deviations.items())
    methods = None if problem else COMPARED
    count = 2 if problem else 4  # a pass can be slow without special kernels
    shuffled = engine.shuffle(LAYOUT, count=count, methods=methods, max_new_tokens=2, stop_at_eos=False)
    changed = [method for method, holds in shuffled.invariance_held.items() if holds is False]
    if changed:
        return "changed", ", ".join(changed)
    return ("passes alone", problem) if problem else ("accepted", "")


def main(kinds: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    """Print what PINE makes of model types."""
    transformers.logging.set_verbosity_error()
    found = defaultdict[str, list[str]](list)
    for kind in kinds or sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        try:
            with time_limit():
                name, reason = outcome(kind)
        except TooSlowError:
            name, reason = "stopped", f"it takes more than {MAX_S} s"
        except Exception as error:
            name, reason = "failed", one_line(error)
        found[name].append(f"{kind}: {reason}" if reason else kind)
    for name, lines in found.items():
        print(f"{name}: {len(lines)}", *lines, sep="\n  ")
    status = int(bool({"failed", "changed", "deviating"} & found.keys()))
    if "stopped" in found:  # its worker still computes: an interpreter that ends meanwhile aborts
        sys.stdout.flush()
        os._exit(status)
    raise typer.Exit(status)


if __name__ == "__main__":
    typer.run(main)
