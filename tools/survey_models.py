"""Survey of transformers' causal model types: what PINE makes of a tiny random model of each.

    python -m tools.survey_models                 # all types, or those given: gemma4_text smollm3

Models have float64 weights and small sizes; other options are the defaults of their config. Accepted models
equal their own attention under vanilla, which loading checks, and are shuffled in four orders. Prints the
types of each outcome with reasons, and exits with status 1 for an unexpected exception or a changed bit.
"""

import signal
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import torch
import transformers
import typer
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from pine_engine import Engine, ModelError, TokenLayout
from pine_engine.errors import one_line
from pine_engine.models.support import refusal

LAYOUT = TokenLayout((5, 9, 60), ((11, 12, 13, 14), (21, 22), (31, 32, 33, 34, 35)), (51, 52, 53))

METHODS = ["vanilla", "nia", "pcw", "pine", "rotor"]

SIZES: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 512,
    "sliding_window": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "num_local_experts": 2, "num_experts": 2, "n_routed_experts": 2, "num_experts_per_tok": 1,
    "moe_intermediate_size": 16, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
    "num_shared_experts": 1, "n_shared_experts": 1, "shared_expert_intermediate_size": 16,
    "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8,
    "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 97, "num_kv_shared_layers": 0,
}  # fmt: skip
"""Options by name, for the configs that have them."""

LEFT_OUT: tuple[tuple[str, ...], ...] = (
    (),
    ("head_dim",),
    ("sliding_window",),
    ("q_lora_rank", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"),
    ("num_key_value_heads",),
)
"""Options that are left to the config, tried one after the other until a model can be built and run."""

MAX_PARAMETERS, MAX_S = 3e7, 40


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
    fields = set(whole.get_text_config().to_dict())
    options = {name: value for name, value in SIZES.items() if name in fields}
    has_parts = "text_config" in whole.to_dict()
    if "kv_lora_rank" in fields:
        options["num_key_value_heads"] = SIZES["num_attention_heads"]
    problem: Exception = ValueError("no model")
    for names in LEFT_OUT:
        kept = {name: value for name, value in options.items() if name not in names}
        try:
            config = AutoConfig.for_model(kind, **({"text_config": kept} if has_parts else kept))
            torch.manual_seed(0)
            model: PreTrainedModel = AutoModelForCausalLM.from_config(
                config, dtype=torch.float64, attn_implementation="eager", experts_implementation="eager"
            ).eval()
            if model.num_parameters() > MAX_PARAMETERS:
                raise ValueError("it cannot be made small by common options")
            with torch.inference_mode():
                model(torch.tensor([[5, 6, 7]]))
        except TooSlowError:
            raise
        except Exception as error:
            problem = error
        else:
            return model
    raise problem


def outcome(kind: str) -> tuple[str, str]:
    """Return what becomes of a type, and the reason."""
    try:
        if reason := refusal(AutoConfig.for_model(kind)):
            return "refused", reason
        model = build(kind)
    except TooSlowError:
        return "not built", f"it takes more than {MAX_S} s"
    except Exception as error:
        return "not built", one_line(error)
    try:
        engine = Engine(model)
    except ModelError as error:
        return "refused", str(error)
    shuffled = engine.shuffle(LAYOUT, count=4, methods=METHODS, max_new_tokens=2, stop_at_eos=False)
    changed = [method for method, holds in shuffled.invariance_held.items() if holds is False]
    return ("changed", ", ".join(changed)) if changed else ("accepted", "")


def main(kinds: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    """Print what PINE makes of model types."""
    transformers.logging.set_verbosity_error()
    found = defaultdict[str, list[str]](list)
    for kind in kinds or sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        try:
            with time_limit():
                name, reason = outcome(kind)
        except Exception as error:
            name, reason = "failed", one_line(error)
        found[name].append(f"{kind}: {reason}" if reason else kind)
    for name, lines in found.items():
        print(f"{name}: {len(lines)}", *lines, sep="\n  ")
    raise typer.Exit(bool(found["failed"] or found["changed"]))


if __name__ == "__main__":
    typer.run(main)
