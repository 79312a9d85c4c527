"""Stock model: a model that runs as it is, with its own attention and cache, one prompt at a time.

Methods that need forward passes alone fit it. Each pass has one sequence, so that equal tokens give equal
logits.
"""

import inspect
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from pine_engine.network.model_patching import PatchedModel, clone_with_shared_weights
from pine_engine.network.thread_tuner import OnLayer

CACHE_NAMES = ("past_key_values", "cache_params", "state")
"""Names of the cache in arguments and outputs of `forward`: attention, Mamba and xLSTM, RWKV."""

_ON_LAYER: ContextVar[OnLayer | None] = ContextVar("on_layer", default=None)


@dataclass(frozen=True, eq=False)
class StockModel(PatchedModel):
    """Copy of a model, of which no attention is replaced.

    Attributes:
        reason: Why methods that place documents do not fit, in a sentence without its end.
        cache_name: Name of the cache, see CACHE_NAMES; None if each pass computes the whole sequence.
    """

    reason: str = ""
    cache_name: str | None = None


def stock_model(model: PreTrainedModel, reason: str) -> StockModel:
    """Return a copy of a model that shares its weights and reports the layers of a pass."""
    network = clone_with_shared_weights(model)
    for index, layer in enumerate(_layers(network)):
        layer.register_forward_pre_hook(partial(_begin_layer, index))
    parameters = inspect.signature(network.forward).parameters
    cache_name = next((name for name in CACHE_NAMES if name in parameters), None)
    return StockModel(network, (), (), False, None, reason=reason, cache_name=cache_name)


def _layers(network: PreTrainedModel) -> nn.ModuleList | tuple[()]:
    """Return the list of the decoder layers; empty if modules have another structure."""
    count = network.config.get_text_config().num_hidden_layers
    lists = (one for one in network.modules() if isinstance(one, nn.ModuleList) and len(one) == count)
    return next(lists, ())


def _begin_layer(index: int, *_: Any) -> None:
    if on_layer := _ON_LAYER.get():
        on_layer(index)


def run_stock(
    model: StockModel,
    ids: Tensor,
    cache: Any = None,
    *,
    logits_to_keep: int = 0,
    on_layer: Callable[[float], None] | None = None,
) -> tuple[Tensor, Any]:
    """Run the model's own forward pass for one sequence, or for tokens that follow a cached one.

    Args:
        model: Model that runs.
        ids: int64 (1, n), on the device of the model.
        cache: Cache of the tokens before, which the pass may change in place. None at the start.
        logits_to_keep: Number of last tokens whose logits are returned. 0 keeps all.
        on_layer: Called before each layer. May raise an exception, which stops the pass.

    Returns:
        Logits (n or logits_to_keep, V), and the cache; None for a model without one.
    """
    network, name = model.network, model.cache_name
    options: dict[str, Any] = {}
    parameters = inspect.signature(network.forward).parameters
    if "logits_to_keep" in parameters:
        options["logits_to_keep"] = logits_to_keep
    if "use_cache" in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        options["use_cache"] = name is not None
    if name and cache is not None:
        options[name] = cache

    def forward() -> Any:
        _ON_LAYER.set(on_layer)
        return network(input_ids=ids, **options)

    output = copy_context().run(forward)
    return output.logits[0, -logits_to_keep:], getattr(output, name, None) if name else None


def num_bytes(cache: Any) -> int:
    """Return the memory of the tensors of a cache in bytes."""
    if isinstance(cache, Tensor):
        return cache.nbytes
    if isinstance(cache, dict):
        return sum(map(num_bytes, cache.values()))
    if isinstance(cache, list | tuple):
        return sum(map(num_bytes, cache))
    is_record = hasattr(cache, "__dict__") and not isinstance(cache, type | torch.device)
    return num_bytes(vars(cache)) if is_record else 0
