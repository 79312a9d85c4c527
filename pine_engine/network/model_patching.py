"""Patched copy of a model: the same weights, with PINE's attention and batch-invariant operations.

The original model is not changed and keeps its own attention, also while the copy runs.
"""

import copy
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedConfig, PreTrainedModel

from pine_engine.errors import ModelError, one_line
from pine_engine.models.checkpoint import quiet_transformers
from pine_engine.models.packed import DecodeWeight
from pine_engine.models.support import ADVICE, CHANGING_ROPE_TYPE, PLACEMENT
from pine_engine.network.batch_invariant_ops import patch_linear_layers
from pine_engine.network.parallel import reattach_hooks
from pine_engine.network.registration import NAME, run_fused_calls, run_own_attention
from pine_engine.network.rope import FREQUENCIES, Rope, rotary_modules
from pine_engine.network.thread_tuner import ThreadTuner


@dataclass(frozen=True, eq=False)
class PatchedModel:
    """Patched model with the rotary embeddings of its layers."""

    network: PreTrainedModel
    ropes: tuple[Rope, ...]  # of each layer
    head_dims: tuple[int, ...]  # of queries and keys of each layer
    has_sinks: bool  # in the softmax of some layer
    max_prompt_length: int | None  # in tokens, for which the frequencies are valid; None for any
    content_free: tuple[int, ...] = ()  # token ids of a question without content
    thread_tuner: ThreadTuner = field(default_factory=ThreadTuner, repr=False, compare=False)


@torch.inference_mode(False)
def clone_with_shared_weights(model: PreTrainedModel) -> PreTrainedModel:
    """Copy modules and configurations, in eval mode; share weights and hooks of accelerate.

    Frequencies are copied, because some rotary modules change them during a forward pass.
    """
    shared: list[Any] = [*model.parameters(), getattr(model, "_mesh_manager", None)]
    shared += [buffer for name, buffer in model.named_buffers() if not name.endswith(FREQUENCIES)]
    for module in model.modules():
        shared += [vars(module)[name] for name in ("_hf_hook", "dynamo_ctx") if name in vars(module)]
        shared += [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
        # Results of hooks, such as a pruned weight: torch can copy leaf tensors only.
        shared += [one for one in vars(module).values() if isinstance(one, Tensor) and not one.is_leaf]
    try:
        copied = copy.deepcopy(model, {id(one): one for one in shared})
    except Exception as error:
        message = f"modules of {type(model).__name__} cannot be copied ({one_line(error)})"
        raise ModelError(f"{message}; remove your attributes from them, and restore them later") from error
    network = cast(PreTrainedModel, _without_compile(copied))
    network.eval()
    if not hasattr(network, "_hf_hook"):
        vars(network).pop("forward", None)  # set by the user; calls the original model
    reattach_hooks(network, model)
    if getattr(network, "quantization_method", None) == "bitsandbytes" and network.device.type == "cpu":
        _dequantize(network)
    return network


def _dequantize(network: PreTrainedModel) -> None:
    """Replace the 4-bit layers of bitsandbytes, whose kernel can depend on the batch, by dense ones."""
    states = [getattr(weight, "quant_state", None) for weight in network.parameters()]
    if any(getattr(state, "packing_format_for_cpu", False) for state in states):
        problem = "has run, and bitsandbytes has packed its weights for this processor"
        raise ModelError(f"{type(network).__name__} {problem}; load it again, and create the engine first")
    with quiet_transformers(warns=False):
        network.dequantize(network.dtype)


def _without_compile(module: nn.Module) -> nn.Module:
    """Remove the wrappers that torch.compile puts around a module and around modules in it."""
    while "_orig_mod" in module._modules:
        module = cast(nn.Module, module._modules["_orig_mod"])
    for name, child in module._modules.items():
        if child is not None:
            module._modules[name] = _without_compile(child)
    return module


def generating_module(model: nn.Module) -> PreTrainedModel:
    """Return the module whose forward pass `model.generate` runs: the model, or the one in a wrapper."""
    for module in model.modules():
        if isinstance(module, GenerationMixin):
            return cast(PreTrainedModel, module)
    message = f"a {type(model).__name__} has no `generate` that can run under a method"
    raise ModelError(f"{message}; give the transformers model in it")


def freeze_rope_frequencies(network: PreTrainedModel, length: int) -> None:
    """Freeze frequencies that change with the prompt length (longrope) to those for `length` tokens."""
    for module in rotary_modules(network):
        kinds: Any = getattr(module, "rope_type", None)
        by_layer_type = kinds if isinstance(kinds, dict) else {None: kinds}
        for layer_type in [name for name, kind in by_layer_type.items() if kind == CHANGING_ROPE_TYPE]:
            _freeze(module, length, layer_type)


@torch.no_grad()
def _freeze(module: Any, length: int, layer_type: str | None) -> None:
    device = next(module.buffers()).device
    options = {"layer_type": layer_type} if layer_type else {}

    def cosines(*positions: int) -> Tensor:
        ids = torch.tensor([positions], device=device)
        return cast(Tensor, module(torch.zeros(1, device=device), ids, **options)[0])

    cosines(length - 1)  # sets the frequencies for that length
    module.rope_type = {**module.rope_type, layer_type: "default"} if layer_type else "default"
    if not torch.equal(cosines(1, 2**20)[:, :1], cosines(1)):  # beyond every length of a change
        problem = "changes its rotation with the prompt length by itself, which is not supported"
        raise ModelError(f"{type(module).__name__} {problem}; {ADVICE}", field=PLACEMENT)


def patch_attention(network: PreTrainedModel, packed: Mapping[nn.Parameter, DecodeWeight]) -> None:
    """Replace the attention of a copied model, and make its linear layers batch-invariant."""
    configs = (getattr(module, "config", None) for module in network.modules())
    for config in {id(one): one for one in configs if isinstance(one, PreTrainedConfig)}.values():
        config._attn_implementation_internal = NAME
        if network.device.type in ("cpu", "meta"):  # meta: offloaded to disk
            # Loop over experts, one GEMM for the tokens of each.
            config._experts_implementation_internal = "eager"
    module: Any
    for module in network.modules():
        if hasattr(module, "_attn"):  # GPT-J, CodeGen, GPT-NeoX Japanese
            module._attn = partial(run_own_attention, module)
        elif _calls_fused_attention(module):
            module.config = copy.copy(module.config)
            module.config._attn_implementation_internal = "sdpa"
            module.forward = partial(run_fused_calls, module, module.forward)
    patch_linear_layers(network, packed)


def _calls_fused_attention(module: Any) -> bool:
    """Check for an attention layer that calls torch's fused attention directly, as in Falcon."""
    has_name = type(module).__name__.endswith("Attention")
    is_attention = has_name and hasattr(module, "layer_idx") and hasattr(module, "config")
    return is_attention and not hasattr(sys.modules[type(module).__module__], "ALL_ATTENTION_FUNCTIONS")
