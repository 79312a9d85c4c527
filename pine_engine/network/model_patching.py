"""A copy of a model over the same weights, wired to our attention and our arithmetic.

The model that somebody hands in is theirs: it answers as before with its own attention, whatever we do with
the copy and whoever is running it.
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
from pine_engine.models.packed import PackedWeight
from pine_engine.models.support import ADVICE, CHANGING_ROPE_TYPE
from pine_engine.network.batch_invariant_ops import patch_linear_layers
from pine_engine.network.parallel import reattach_hooks
from pine_engine.network.registration import NAME, run_fused_calls
from pine_engine.network.rope import FREQUENCIES, LayerRopes, rotary_modules
from pine_engine.network.thread_tuner import ThreadTuner

FAR = 2**20
"""A position beyond every length at which frequencies change."""


@dataclass(frozen=True, eq=False)
class PatchedModel:
    """A network of ours, and how its layers rotate.

    longest: of the prompts, in tokens, for which these frequencies hold; None for any. pace: of its steps.
    """

    network: PreTrainedModel
    ropes: LayerRopes
    longest: int | None
    pace: ThreadTuner = field(default_factory=ThreadTuner, repr=False, compare=False)


@torch.inference_mode(False)
def clone_with_shared_weights(model: PreTrainedModel) -> PreTrainedModel:
    """A copy of the modules and configurations in eval mode; weights, and accelerate's hooks, are shared.

    Frequencies, which some rotary modules write anew while they run, are copied. Raises ModelError if the
    modules hold something of their user's that cannot be copied.
    """
    shared: list[Any] = [*model.parameters(), getattr(model, "_mesh_manager", None)]
    shared += [buffer for name, buffer in model.named_buffers() if not name.endswith(FREQUENCIES)]
    for module in model.modules():
        shared += [vars(module)[name] for name in ("_hf_hook", "dynamo_ctx") if name in vars(module)]
        shared += [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
        # What a hook has computed, such as a pruned weight; torch copies leaves alone.
        shared += [one for one in vars(module).values() if isinstance(one, Tensor) and not one.is_leaf]
    try:
        copied = copy.deepcopy(model, {id(one): one for one in shared})
    except Exception as error:
        raise ModelError(
            f"{type(model).__name__}: its modules cannot be copied ({one_line(error)}); take attributes of "
            "your own off the modules, and put them back on afterwards"
        ) from error
    network = cast(PreTrainedModel, _without_compile(copied))
    network.eval()
    if not hasattr(network, "_hf_hook"):
        vars(network).pop("forward", None)  # somebody's own, which leads back to their model
    reattach_hooks(network, model)
    return network


def _without_compile(module: nn.Module) -> nn.Module:
    """Remove the wrappers that torch.compile puts around a module and around modules in it."""
    while "_orig_mod" in module._modules:
        module = cast(nn.Module, module._modules["_orig_mod"])
    for name, child in module._modules.items():
        if child is not None:
            module._modules[name] = _without_compile(child)
    return module


def generating_module(model: nn.Module) -> PreTrainedModel:
    """Return the module whose forward pass `model.generate` runs.

    This is the model, or the transformers model inside a wrapper such as a PeftModel or what torch.compile
    returns.
    """
    for module in model.modules():
        if isinstance(module, GenerationMixin):
            return cast(PreTrainedModel, module)
    raise ModelError(
        f"A {type(model).__name__} has no `generate` that can run under a method: expected a transformers "
        "model or a wrapper around one. Give the transformers model in it."
    )


def freeze_rope_frequencies(network: PreTrainedModel, length: int) -> None:
    """Frequencies that change with the length (longrope) are from now on those for `length` tokens.

    Raises ModelError if a rotary module goes on changing them.
    """
    for module in rotary_modules(network):
        kinds: Any = getattr(module, "rope_type", None)
        if kinds == CHANGING_ROPE_TYPE:
            _hold(module, length, {})
        elif isinstance(kinds, dict):
            for layer_type in [name for name, kind in kinds.items() if kind == CHANGING_ROPE_TYPE]:
                _hold(module, length, {"layer_type": layer_type})


@torch.no_grad()
def _hold(module: Any, length: int, options: dict[str, Any]) -> None:
    def cosines(*positions: int) -> Tensor:
        ids = torch.tensor([positions], device=device)
        return cast(Tensor, module(torch.zeros(1, device=device), ids, **options)[0])

    device = next(module.buffers()).device
    cosines(length - 1)  # writes the frequencies for that length
    layer_type = options.get("layer_type")
    module.rope_type = {**module.rope_type, layer_type: "default"} if layer_type else "default"
    if not torch.equal(cosines(1, FAR)[:, :1], cosines(1)):
        raise ModelError(
            f"{type(module).__name__} changes its rotation with the prompt's length in a way of its own, "
            f"which is not supported; {ADVICE}"
        )


def patch_attention(network: PreTrainedModel, packed: Mapping[nn.Parameter, PackedWeight]) -> None:
    """Has a copy compute with our attention function, and its linear layers row by row.

    packed: weights in 4 bits for decoding steps, by those they are made of.
    """
    for config in _configs(network):
        config._attn_implementation_internal = NAME
        if network.device.type in ("cpu", "meta"):  # meta: offloaded to the disk
            # The loop over experts, in which the tokens of each are one product.
            config._experts_implementation_internal = "eager"
    module: Any
    for module in network.modules():
        if _calls_fused_attention(module):
            module.config = copy.copy(module.config)
            module.config._attn_implementation_internal = "sdpa"
            module.forward = partial(run_fused_calls, module, module.forward)
    patch_linear_layers(network, packed)


def _calls_fused_attention(module: Any) -> bool:
    """Whether it is an attention layer that knows nothing of transformers' registry, as Falcon's do; such
    call torch's fused attention themselves."""
    named = type(module).__name__.endswith("Attention")
    is_attention = named and hasattr(module, "layer_idx") and hasattr(module, "config")
    return is_attention and not hasattr(sys.modules[type(module).__module__], "ALL_ATTENTION_FUNCTIONS")


def _configs(network: PreTrainedModel) -> list[PreTrainedConfig]:
    """Every configuration that a module of the network reads, once."""
    found = (getattr(module, "config", None) for module in network.modules())
    return list({id(one): one for one in found if isinstance(one, PreTrainedConfig)}.values())
