"""Validation of a loaded model: PINE's rotation and attention must agree with the model's own."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from pine_engine.attention.forward import prefill_attention
from pine_engine.attention.kv_cache import KVCache
from pine_engine.attention.state import SequenceState, input_device, new_state
from pine_engine.errors import ModelError, PineError, is_out_of_memory, one_line
from pine_engine.methods.plan import build_plan
from pine_engine.methods.table import METHODS
from pine_engine.models.packed import DecodeWeight
from pine_engine.models.support import (
    ADVICE,
    PLACEMENT,
    PROBE_TOKENS,
    lengths_of_change,
    placement_problem,
    quantization_of,
    refusal,
)
from pine_engine.network import model_patching as patching
from pine_engine.network.batch_invariant_ops import OpCallerRecorder, patch_op_callers
from pine_engine.network.model_patching import PatchedModel
from pine_engine.network.registration import Attend, AttentionParams, run_pass
from pine_engine.network.rope import ALIGNED_DIMS, Rope, from_pairs, possible_ropes
from pine_engine.prompts.layout import TokenLayout

PREFIX_TOKENS, SUFFIX_TOKENS = 5, 7
DOCUMENT_TOKENS = PROBE_TOKENS - PREFIX_TOKENS - SUFFIX_TOKENS

TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Maximum relative deviation from the model's own results, far below errors of rotation, mask or scale. For
float64 models, the softmax of transformers is float32."""


def validate_model(
    model: PreTrainedModel, packed: Mapping[nn.Parameter, DecodeWeight]
) -> tuple[PatchedModel, ...]:
    """Validate a model, and return patched copies of it that share its weights.

    There is one copy, or one per range of prompt lengths if the frequencies change with the length
    (longrope), the shortest first. The model itself is neither run nor changed. The configuration is checked,
    the interaction of tokens outside attention, the rotation in every layer, and the logits of a short prompt
    against the model's own attention: vanilla, and PINE with one document, which equals vanilla
    (specification 3.5). `packed` are 4-bit weights for decode steps, by the weights that they replace.

    Raises:
        ModelError: The model is not supported; the message names the difference. The field is `placement` if
            the model may run as it is.
    """
    for reason, field in ((refusal(model.config), "model"), (placement_problem(model.config), PLACEMENT)):
        if reason:
            raise ModelError(f"{type(model).__name__}: {reason}", field=field)
    check_adapters(model)
    with errors_of_model(model):
        return tuple(
            _validate_range(model, packed, longest) for longest in (*lengths_of_change(model.config), None)
        )


@contextmanager
def errors_of_model(model: PreTrainedModel) -> Iterator[None]:
    """Raise errors of the model's code in the block as ModelError, except for a lack of memory."""
    try:
        yield
    except PineError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        reason = f"it cannot be run with PINE's attention function ({one_line(error)})"
        raise _unsupported(model, reason) from error


def _unsupported(model: PreTrainedModel, reason: str) -> ModelError:
    if method := quantization_of(model.config).get("quant_method"):
        advice, field = f"use weights without its {method} quantization, which can be the reason", "model"
    else:
        advice, field = ADVICE, PLACEMENT
    return ModelError(f"{type(model).__name__}: {reason}; {advice}", field=field)


@torch.no_grad()
def _validate_range(
    model: PreTrainedModel, packed: Mapping[nn.Parameter, DecodeWeight], longest: int | None
) -> PatchedModel:
    """Return the patched model for prompts of up to `longest` tokens; for longer ones if None."""
    vocab_size: int = model.config.get_text_config().vocab_size
    ids = torch.randint(vocab_size, (PROBE_TOKENS,), generator=torch.Generator().manual_seed(0))
    network = patching.clone_with_shared_weights(model)
    patching.freeze_rope_frequencies(network, longest or max(lengths_of_change(model.config), default=0) + 1)
    expected = network(input_ids=ids[None].to(input_device(network)), use_cache=False).logits[0]
    check_finite(network, expected)

    patching.patch_attention(network, packed)
    with OpCallerRecorder() as callers:
        _capture(network, ids, range(PROBE_TOKENS))
    _check_kernels(network, callers.modules)
    if input_device(network).type == "cpu":  # on a GPU, the functions are torch's own
        patch_op_callers(network, callers.modules)
    patched_model = _find_rotations(network, ids, longest)
    parts = ids.split([PREFIX_TOKENS, DOCUMENT_TOKENS, SUFFIX_TOKENS])
    prefix, document, suffix = (tuple(part.tolist()) for part in parts)
    layout = TokenLayout(prefix, (document,), suffix)
    for name in ("vanilla", "pine"):
        deviation = logit_deviation(_run(patched_model, layout, name), expected)
        if not deviation <= TOLERANCE[expected.dtype]:
            limit = f"{deviation:.1e}, more than {TOLERANCE[expected.dtype]:.0e}"
            raise _unsupported(model, f"PINE's attention ({name}) deviates from the model's own by {limit}")
    return patched_model


def check_adapters(model: nn.Module) -> None:
    """Raise ModelError for an adapter of PEFT whose effect on a token depends on other tokens."""
    for module in model.modules():
        configs = getattr(module, "peft_config", None)
        for name, config in configs.items() if isinstance(configs, dict) else ():
            depends_on_others = (
                config.is_prompt_learning
                or config.is_adaption_prompt
                or getattr(config, "alora_invocation_tokens", None)
                or config.peft_type == "XLORA"
            )
            if depends_on_others:
                kind = type(config).__name__.removesuffix("Config")
                message = (
                    f"{type(model).__name__}: adapter {name!r} ({kind}) adds tokens, or depends on others"
                )
                raise ModelError(f"{message}; use one that changes each token on its own, such as LoRA")


def _check_kernels(network: PreTrainedModel, callers: Iterable[nn.Module]) -> None:
    """Raise ModelError on the CPU for a layer with packed weights whose kernel cannot be replaced."""
    types = {*map(type, callers)}
    for module in network.modules() if network.device.type == "cpu" else ():
        weight = getattr(module, "weight", None)
        is_dense = isinstance(weight, Tensor) and weight.is_floating_point()
        if hasattr(module, "in_features") and not is_dense and type(module) not in types:
            reason = f"its {type(module).__name__} layers have a kernel that can depend on the batch"
            raise _unsupported(network, reason)


def check_finite(network: PreTrainedModel, logits: Tensor) -> None:
    """Raise ModelError if the logits (n, V) of the model's own attention are not finite."""
    if logits.isfinite().all():
        return
    broken = [name for name, weight in network.named_parameters() if not weight.isfinite().all()]
    cause = "load it in bfloat16 or float32"
    if broken:
        cause = f"{len(broken)} of its weights contain NaN or infinity, the first is {broken[0]}; load others"
    raise ModelError(f"{type(network).__name__}: its own logits are not finite; {cause}")


def _find_rotations(network: PreTrainedModel, ids: Tensor, longest: int | None) -> PatchedModel:
    """Return the patched model with the rotation of each layer that reproduces the model's own."""
    ropes = possible_ropes(network)
    rotated, has_sinks, logits = _capture(network, ids, range(len(ids)))
    unrotated = _capture(network, ids, [0] * len(ids)).layers
    _check_mixing(network, ids, logits)
    selected: list[Rope] = []
    head_dims = tuple(query.shape[-1] for query, _ in rotated)
    by_head_dim = {head_dim: _placed(ropes, head_dim) for head_dim in head_dims}
    for head_dim, *layers in zip(head_dims, unrotated, rotated, strict=True):
        candidates = by_head_dim[head_dim]
        deviations = [_rotation_deviation(rope, *layers) for rope in candidates]
        smallest = min(deviations)
        if not smallest <= TOLERANCE[logits.dtype]:
            reason = f"its rotation deviates from plain RoPE by {smallest:.1e} in layer {len(selected)}"
            raise _unsupported(network, reason)
        selected.append(candidates[deviations.index(smallest)])
    return PatchedModel(network, tuple(selected), head_dims, has_sinks, longest)


def _placed(ropes: Sequence[Rope], head_dim: int) -> list[Rope]:
    """Return rotations of the first dimensions of a head, then of the last ones where these are others.

    The last dimensions of the model are before those that pad a head to `head_dim`, of an unknown number.
    """
    last = [
        replace(rope, start=start)
        for rope in ropes
        for start in range(head_dim - 2 * rope.inverse_frequencies.shape[-1], 0, -1)[:ALIGNED_DIMS]
        if not rope.is_identity
    ]
    return [*ropes, *last]


class _Captured(NamedTuple):
    """Input of the attention of a forward pass, and its result."""

    layers: list[tuple[Tensor, Tensor]]  # query (H, n, head_dim) and key (G, n, head_dim) of each layer
    has_sinks: bool  # in some layer
    logits: Tensor  # (n, V)


def _capture(model: PreTrainedModel, ids: Tensor, positions: Sequence[int]) -> _Captured:
    """Run a forward pass in which attention outputs are zero."""
    layers: list[tuple[Tensor, Tensor]] = []
    softcaps: set[float | None] = set()
    have_sinks: set[bool] = set()

    def attend(_layer: int, query: Tensor, key: Tensor, _value: Tensor, scoring: AttentionParams) -> Tensor:
        layers.append((query[0], key[0]))
        softcaps.add(scoring.softcap)
        have_sinks.add(scoring.sinks is not None)
        return torch.zeros_like(query)  # so that no layer's input depends on positions

    logits = _forward(model, ids, torch.tensor(positions, device=input_device(model)), attend)
    num_layers: int = model.config.get_text_config().num_hidden_layers
    if len(layers) < num_layers:
        count = f"{len(layers)} of {num_layers} layers"
        raise _unsupported(model, f"{count} call an attention function that can be replaced; PINE needs all")
    _check_softcap(model, softcaps)
    return _Captured(layers, True in have_sinks, logits)


def _check_softcap(model: PreTrainedModel, softcaps: set[float | None]) -> None:
    """Raise ModelError if layers do not pass the configured softcap to the attention function.

    In bfloat16 the logits do not show it, because scores of a short prompt are far below the softcap.
    """
    expected = getattr(model.config.get_text_config(), "attn_logit_softcapping", None)
    if softcaps != {expected}:
        passed = ", ".join(map(str, softcaps))
        reason = f"its config limits attention scores (soft-capping) to {expected}, its layers pass {passed}"
        raise _unsupported(model, reason)


def _check_mixing(model: PreTrainedModel, ids: Tensor, logits: Tensor) -> None:
    """Raise ModelError if other tokens change a token's logits when attention outputs are zero."""
    changed = ids.clone()
    changed[::2] = (changed[::2] + 1) % model.config.get_text_config().vocab_size
    changed_logits = _capture(model, changed, range(len(ids))).logits
    if not logit_deviation(changed_logits[1::2], logits[1::2]) <= TOLERANCE[logits.dtype]:
        reason = "its tokens interact outside attention too, such as in a convolution or a recurrent layer"
        raise _unsupported(model, reason)


def _rotation_deviation(rope: Rope, unrotated: Sequence[Tensor], rotated: Sequence[Tensor]) -> float:
    """Return the largest deviation of queries and keys rotated by PINE from those rotated by the model."""
    deviations = []
    for vectors, expected in zip(unrotated, rotated, strict=True):  # (heads, n, d)
        if 2 * rope.inverse_frequencies.shape[-1] > vectors.shape[-1]:
            return math.inf  # rotates other heads, such as vision heads
        dtype = torch.promote_types(vectors.dtype, torch.float32)
        table = rope.table(vectors.shape[1], vectors.shape[2], dtype)
        pairs, expected_pairs = (rope.to_pairs(one.to(table.device, dtype)) for one in (vectors, expected))
        deviation = from_pairs(pairs * table).double() - from_pairs(expected_pairs).double()
        deviations.append(_relative_to_largest(deviation.abs().max(), from_pairs(expected_pairs)))
    return max(deviations)


def logit_deviation(result: Tensor, expected: Tensor) -> float:
    """Return the deviation of logits (n, V) of the worst token, relative to the largest logit."""
    by_token = (result.double() - expected.double()).abs().amax(-1)
    # The median token in half precision, where rounding may route single tokens to other experts.
    is_half = expected.dtype.itemsize == 2
    return _relative_to_largest(by_token.median() if is_half else by_token.max(), expected)


def _relative_to_largest(deviation: Tensor, expected: Tensor) -> float:
    """Return the deviation, infinite instead of NaN, so that the largest and smallest are defined."""
    relative = deviation / expected.double().abs().max().clamp_min(1e-30)
    return relative.nan_to_num(math.inf, math.inf).item()


def _run(patched_model: PatchedModel, layout: TokenLayout, name: str) -> Tensor:
    plan = build_plan(METHODS[name], layout)
    state = new_state(plan, patched_model=patched_model, reserved_tokens=0, recorder=None)
    attend = prefill_attention([SequenceState(state, KVCache([]))], on_layer=lambda _: None)
    ids, position_ids = torch.tensor(layout.ids), state.position_ids(0, layout.num_tokens)[0]
    return _forward(patched_model.network, ids, position_ids, attend)


def _forward(model: PreTrainedModel, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
    """Return the logits (n, V) of one forward pass through PINE's attention function."""
    try:
        return run_pass(model, attend, ids[None].to(input_device(model)), positions[None])[0]
    except ModelError as error:  # raised by the attention function
        raise _unsupported(model, str(error)) from error
