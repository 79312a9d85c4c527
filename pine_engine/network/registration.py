"""One pass of a transformers model through our attention function, registered under one name.

The model is run with position ids of our choice: the real positions for methods whose keys stand at
one position for all queries, zeros where every query has its own. Rotation by zero is the identity, so
queries and keys then arrive unrotated and are rotated here. What a pass needs is known to the thread that
runs it, for as long as it runs: some families do not hand arguments of `forward` on to their attention.
Nothing is stored on modules.
"""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from pine_engine.errors import ModelError
from pine_engine.network.batch_invariant_ops import IN_DECODE_STEP, SINGLE_ROW_PASS
from pine_engine.network.rope import aligned_head_dim

NAME = "pine_engine"
"""Name of our attention function in transformers' registry."""


@dataclass(frozen=True)
class AttentionParams:
    """How a layer scores: <query, key> times scale; with softcap c then c tanh(score / c) (Gemma 2)."""

    scale: float
    softcap: float | None = None


class ForwardPass(Protocol):
    """What the registered attention function calls in every layer."""

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: AttentionParams
    ) -> Tensor:
        """query (B, H, n, d), key and value (B, G, n, d) to the attention output (B, H, n, d)."""


_RUNNING: ContextVar[ForwardPass] = ContextVar("running_pass")
"""The pass that this thread is in."""


def run_pass(
    network: PreTrainedModel,
    attend: ForwardPass,
    ids: Tensor,
    position_ids: Tensor,
    *,
    is_step: bool = False,
    **options: Any,
) -> Tensor:
    """Logits (B, n or as options say, V) of tokens ids (B, n) at position_ids (B, n), through our attention.

    network: a model wired to it, see wiring.py. is_step: packed weights are used where there are any.
    options: of its forward.
    """
    running, one_row, step = (
        _RUNNING.set(attend),
        SINGLE_ROW_PASS.set(ids.numel() == 1),
        IN_DECODE_STEP.set(is_step),
    )
    try:
        logits: Tensor = network(input_ids=ids, position_ids=position_ids, use_cache=False, **options).logits
    finally:
        _RUNNING.reset(running)
        SINGLE_ROW_PASS.reset(one_row)
        IN_DECODE_STEP.reset(step)
    return logits


def running_pass() -> ForwardPass:
    """The pass that this thread is in. Raises ModelError outside of all."""
    try:
        return _RUNNING.get()
    except LookupError:
        raise ModelError(
            f"attention {NAME!r} works inside an Engine alone; give the model an attention of its own again "
            "with model.set_attn_implementation('sdpa')"
        ) from None


def _attention_function(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    if s_aux is not None:
        raise ModelError("its attention has sinks (learned scores without a key), which are not supported")
    if attention_mask is not None:  # not ours, which is None
        raise ModelError("its attention masks or biases keys in a way of its own, which is not supported")
    head_dim = query.shape[-1]
    if head_dim % 2:
        raise ModelError(f"its heads have {head_dim} dimensions, and PINE rotates pairs of them")
    scoring = AttentionParams(head_dim**-0.5 if scaling is None else scaling, softcap)
    with torch._C.DisableTorchFunction():  # a module that is computed row by row may hold this one
        layer = cast(int, module.layer_idx)
        output = running_pass().attend(layer, _align(query), _align(key), _align(value), scoring)
        return output[..., : value.shape[-1]].transpose(1, 2).contiguous(), None


def _align(vectors: Tensor) -> Tensor:
    """Pad the last dimension with zeros, which change no score and no sum; see aligned_head_dim."""
    missing = aligned_head_dim(vectors.shape[-1]) - vectors.shape[-1]
    return functional.pad(vectors, (0, missing)) if missing else vectors


def _no_mask(*_: Any, **__: Any) -> None:
    """The attention function knows who sees whom; without this transformers would build masks."""


AttentionInterface.register(NAME, _attention_function)
AttentionMaskInterface.register(NAME, _no_mask)


def run_fused_calls(module: nn.Module, forward: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """forward of an attention layer that calls torch's fused attention, with ours in its place."""
    with _FusedCalls(module):
        return forward(*args, **options)


class _FusedCalls(TorchFunctionMode):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._module = module

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """See TorchFunctionMode."""
        options = kwargs or {}
        if func is not functional.scaled_dot_product_attention:
            return func(*args, **options)
        query, key, value = args
        mask, scale = options.get("attn_mask"), options.get("scale")
        return _attention_function(self._module, query, key, value, mask, scale)[0].transpose(1, 2)
