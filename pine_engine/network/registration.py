"""Attention function registered with transformers, and the forward pass that runs through it.

The model runs with real position ids for methods in which a key has one position for all queries, and else
with zeros: queries and keys then arrive unrotated, and are rotated by PINE. The current pass is a context
variable, because some families do not pass arguments of `forward` on to their attention.
"""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode, _get_current_function_mode, _pop_mode_temporarily
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from pine_engine.errors import ModelError
from pine_engine.network.batch_invariant_ops import IN_DECODE_STEP, SINGLE_ROW_PASS, uses_blocks
from pine_engine.network.layer_progress import LAYER_PROGRESS
from pine_engine.network.rope import aligned_head_dim

NAME = "pine_engine"  # name of the attention function in the registry of transformers


@dataclass(frozen=True)
class AdaptiveWeighting:
    """Weighting of the keys first .. end - 1 together, by APE (Yang et al. 2025)."""

    first: int
    end: int
    temperature: float  # divides their scores
    scale: float  # (temperature * scale - 1) * logsumexp of the divided scores is added to them


@dataclass(frozen=True)
class CalibratedWeighting:
    """Weighting of documents by their shares of the weight that they get together (Hsieh et al. 2024)."""

    bounds: tuple[int, ...]  # first key of each document, then the end of the last
    log_shares: tuple[float, ...]


@dataclass(frozen=True)
class AttentionParams:
    """Parameters of attention: scale * <query, key>, then softcap * tanh(score / softcap).

    `sinks` (H,) are scores of each head without a key: a constant in the denominator of its softmax.
    """

    scale: float
    softcap: float | None = None  # Gemma 2
    adaptive: AdaptiveWeighting | None = None
    calibrated: CalibratedWeighting | None = None
    sinks: Tensor | None = field(default=None, compare=False)  # gpt-oss

    def of_heads(self, heads: slice) -> "AttentionParams":
        """Return the parameters of some query heads."""
        return self if self.sinks is None else replace(self, sinks=self.sinks[heads])


@dataclass(frozen=True)
class LayerInput:
    """Input of one layer's attention for one sequence."""

    layer: int
    query: Tensor  # (H, n, head_dim)
    key: Tensor  # (G, n, head_dim), as value
    value: Tensor
    scoring: AttentionParams

    def tokens(self, start: int, stop: int | None = None) -> "LayerInput":
        """Return the input of tokens start .. stop - 1."""
        part = slice(start, stop)
        return replace(self, query=self.query[:, part], key=self.key[:, part], value=self.value[:, part])


Attend = Callable[[int, Tensor, Tensor, Tensor, AttentionParams], Tensor]
"""Attention of one layer in a forward pass, in place of the model's own.

Arguments: layer (number of the call in this pass), query (B, H, n, head_dim), key and value
(B, G, n, head_dim), and parameters of the scores.
Returns: output, as the query.
"""

_RUNNING: ContextVar[tuple[Attend, Iterator[int]] | None] = ContextVar("running_pass", default=None)
"""Attention of the current pass, and the number of its next call: a model may call a layer several times."""


def run_pass(
    network: PreTrainedModel,
    attend: Attend,
    ids: Tensor,
    position_ids: Tensor,
    *,
    is_step: bool = False,
    **options: Any,
) -> Tensor:
    """Run a patched model with this attention, and return its logits (B, n or logits_to_keep, V).

    `ids` and `position_ids` are (B, n). A decode step uses packed weights where the model has them. `options`
    are those of the model's `forward`, such as `logits_to_keep`.
    """

    num_kept = options.get("logits_to_keep")
    if num_kept and getattr(network.config.get_text_config(), "num_kv_shared_layers", 0):
        # With a number, layers that share keys (Gemma 4) compute no other tokens, and PINE needs all.
        first = max(0, ids.shape[1] - num_kept)
        options["logits_to_keep"] = torch.arange(first, ids.shape[1], device=ids.device)

    def forward() -> Tensor:
        _RUNNING.set((attend, itertools.count()))
        SINGLE_ROW_PASS.set(ids.numel() == 1 and not uses_blocks(network.dtype, ids.device))
        IN_DECODE_STEP.set(is_step)
        LAYER_PROGRESS.set(None)
        logits: Tensor = network(input_ids=ids, position_ids=position_ids, use_cache=False, **options).logits
        return logits

    return copy_context().run(forward)


@contextmanager
def outside_modules() -> Iterator[None]:
    """Compute inside `attend` as outside of every module: with torch functions, and without their modes."""
    with torch._C._EnableTorchFunction(), ExitStack() as stack:
        while _get_current_function_mode() is not None:
            stack.enter_context(_pop_mode_temporarily())
        yield


def _attention_function(
    _: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **__: Any,
) -> tuple[Tensor, None]:
    if attention_mask is not None:  # the registered mask function returns None
        raise ModelError("its attention masks or biases keys by itself, which is not supported")
    head_dim = query.shape[-1]
    if value.shape[-1] > head_dim:
        raise ModelError("its values have more dimensions than its keys, which is not supported")
    running = _RUNNING.get()
    if running is None:
        message = f"attention {NAME!r} runs inside an Engine only: call model.set_attn_implementation('sdpa')"
        raise ModelError(message)
    scoring = AttentionParams(head_dim**-0.5 if scaling is None else scaling, softcap, sinks=s_aux)
    with torch._C.DisableTorchFunction():  # a parent module may be in batch-invariant mode
        attend, layers = running
        # Values of latent attention have fewer dimensions than keys.
        value_of_keys = functional.pad(value, (0, head_dim - value.shape[-1]))
        output = attend(next(layers), _align(query), _align(key), _align(value_of_keys), scoring)
        return output[..., : value.shape[-1]].transpose(1, 2).contiguous(), None


def _align(vectors: Tensor) -> Tensor:
    """Pad the last dimension to aligned_head_dim with zeros, which change neither scores nor sums."""
    missing = aligned_head_dim(vectors.shape[-1]) - vectors.shape[-1]
    return functional.pad(vectors, (0, missing)) if missing else vectors


def _no_mask(*_: Any, **__: Any) -> None:
    """Return no mask, because the attention function masks; without it, transformers builds masks."""


AttentionInterface.register(NAME, _attention_function)
AttentionMaskInterface.register(NAME, _no_mask)


def run_own_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, None]:
    """Run PINE's attention in place of a layer's own method `_attn`, which returns (B, H, n, head_dim)."""
    query, key = query.to(value.dtype), key.to(value.dtype)  # float32 in GPT-J
    output, weights = _attention_function(module, query, key, value, mask)
    return output.transpose(1, 2), weights


def run_fused_calls(module: nn.Module, forward: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Run an attention layer that calls torch's fused attention with PINE's attention instead."""
    with _FusedCalls(module):
        return forward(*args, **options)


class _FusedCalls(TorchFunctionMode):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._module = module

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        if func is not functional.scaled_dot_product_attention:
            return func(*args, **options)
        query, key, value = args
        mask, scale = options.get("attn_mask"), options.get("scale")
        return _attention_function(self._module, query, key, value, mask, scale)[0].transpose(1, 2)
