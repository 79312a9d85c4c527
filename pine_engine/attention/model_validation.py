"""A model proves itself when it is loaded: its rotation and its attention, against ours."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from pine_engine.attention.kv_cache import KVCache
from pine_engine.attention.prefill import PrefillPass
from pine_engine.attention.state import SequenceState, input_device, new_state
from pine_engine.errors import ModelError, one_line
from pine_engine.methods.plan import build_plan
from pine_engine.methods.table import METHODS
from pine_engine.models.packed import PackedWeight
from pine_engine.models.support import ADVICE, lengths_of_change, refusal, sliding_window
from pine_engine.network.batch_invariant_ops import OpCallerRecorder, patch_op_callers
from pine_engine.network.model_patching import (
    PatchedModel,
    clone_with_shared_weights,
    freeze_rope_frequencies,
    patch_attention,
)
from pine_engine.network.registration import AttentionParams, ForwardPass, run_pass
from pine_engine.network.rope import LayerRopes, Rope, from_pairs, possible_ropes
from pine_engine.prompts.layout import TokenLayout

PREFIX_TOKENS, DOCUMENT_TOKENS, SUFFIX_TOKENS = 5, 23, 7
PROBE_TOKENS = PREFIX_TOKENS + DOCUMENT_TOKENS + SUFFIX_TOKENS

NOTHING_PACKED: Mapping[nn.Parameter, PackedWeight] = MappingProxyType({})

TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Largest relative deviation allowed of our arithmetic from the model's own, by dtype. Rounding stays
well below; a wrong rotation, mask or scale is above it by orders of magnitude. Transformers' own attention
takes its softmax in float32 for float64 models too."""


@dataclass
class _CapturePass:
    """Records queries and keys of every layer, and how it scores; the attention output is zero, so that no
    layer's input depends on positions."""

    seen: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    softcaps: set[float | None] = field(default_factory=set)

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: AttentionParams
    ) -> Tensor:
        """See forward.Pass."""
        self.seen.append((query[0], key[0]))
        self.softcaps.add(scoring.softcap)
        return torch.zeros_like(query)


def validate_model(
    model: PreTrainedModel, packed: Mapping[nn.Parameter, PackedWeight] = NOTHING_PACKED
) -> tuple[PatchedModel, ...]:
    """Networks over the model's weights that compute with our attention, after showing that this is the
    model's own: one, or one for each range of prompt lengths where the model's frequencies change (longrope),
    the shortest first. The model itself is neither run nor changed.

    packed: weights in 4 bits for decoding steps, by those they are made of.

    Asks the config first; checks that tokens meet in attention only; compares the rotation in every layer;
    then compares the logits of a short prompt, vanilla through our function, and PINE with one document,
    which is vanilla (specification 3.5), with the model's own attention.
    Raises ModelError with what differed.
    """
    reason = refusal(model.config)
    if reason:
        raise ModelError(f"{type(model).__name__}: {reason}")
    window = sliding_window(model.config) or PROBE_TOKENS
    if window < PROBE_TOKENS:
        raise ModelError(
            f"{type(model).__name__}: its sliding window is {window} tokens, which would cut even a prompt "
            f"of {PROBE_TOKENS}; {ADVICE}"
        )
    _refuse_adapters(model)
    return tuple(_prove_range(model, packed, longest) for longest in (*lengths_of_change(model.config), None))


@torch.no_grad()
def _prove_range(
    model: PreTrainedModel, packed: Mapping[nn.Parameter, PackedWeight], longest: int | None
) -> PatchedModel:
    """The network for prompts of up to `longest` tokens; for longer ones if None."""
    vocabulary: int = model.config.get_text_config().vocab_size
    ids = torch.randint(vocabulary, (PROBE_TOKENS,), generator=torch.Generator().manual_seed(0))
    network = clone_with_shared_weights(model)
    freeze_rope_frequencies(network, longest or max(lengths_of_change(model.config), default=0) + 1)
    own = network(input_ids=ids[None].to(input_device(network)), use_cache=False).logits[0]
    _refuse_numbers(network, own)

    patch_attention(network, packed)
    callers = OpCallerRecorder()
    with callers:
        _capture(network, ids, torch.arange(len(ids), device=input_device(network)))
    patch_op_callers(network, callers.modules)
    patched_model = PatchedModel(network, _find_rotation(network, ids), longest)
    parts = ids.split([PREFIX_TOKENS, DOCUMENT_TOKENS, SUFFIX_TOKENS])
    prefix, document, suffix = (tuple(part.tolist()) for part in parts)
    layout = TokenLayout(prefix, (document,), suffix)
    for name in ("vanilla", "pine"):
        deviation = _logit_deviation(_run(patched_model, layout, name), own)
        if not deviation <= TOLERANCE[own.dtype]:
            raise ModelError(
                f"{type(model).__name__}: attention through PINE's function ({name}, one document) deviates "
                f"from the model's own by {deviation:.1e}, more than {TOLERANCE[own.dtype]:.0e}; the model "
                f"does something in its attention that is not supported; {ADVICE}"
            )
    return patched_model


def _refuse_adapters(model: nn.Module) -> None:
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
                raise ModelError(
                    f"{type(model).__name__}: adapter {name!r} ({kind}) is not supported, because it adds "
                    "tokens or depends on other tokens of the prompt: expected an adapter that changes each "
                    "token on its own, such as LoRA. Give the base model or use another adapter."
                )


def _refuse_numbers(network: PreTrainedModel, logits: Tensor) -> None:
    """Raises ModelError if the logits (n, V) of the model's own attention are not all numbers."""
    if logits.isfinite().all():
        return
    broken = [name for name, weight in network.named_parameters() if not weight.isfinite().all()]
    found = "load it in bfloat16 or float32"
    if broken:
        found = (
            f"{len(broken)} of its weights hold NaN or infinity, the first is {broken[0]}; load whole ones"
        )
    raise ModelError(f"{type(network).__name__}: its own logits are not all numbers; {found}")


def _find_rotation(network: PreTrainedModel, ids: Tensor) -> LayerRopes:
    candidates = possible_ropes(network)
    positions = torch.arange(len(ids), device=input_device(network))
    rotated, logits = _capture(network, ids, positions)
    unrotated, _ = _capture(network, ids, torch.zeros_like(positions))
    _refuse_other_mixing(network, ids, logits)
    _refuse_hidden_softcap(network, rotated.softcaps)
    found: list[int] = []
    for layers in zip(unrotated.seen, rotated.seen, strict=True):
        worst = [_rotation_deviation(rope, layers) for rope in candidates]
        best = min(worst)
        if not best <= TOLERANCE[logits.dtype]:
            raise ModelError(
                f"{type(network).__name__}: its rotation by position deviates from plain RoPE by {best:.1e} "
                f"in layer {len(found)}, so PINE cannot place documents in it; {ADVICE}"
            )
        found.append(worst.index(best))
    kinds = list(dict.fromkeys(found))
    return LayerRopes(tuple(candidates[kind] for kind in kinds), tuple(map(kinds.index, found)))


def _capture(model: PreTrainedModel, ids: Tensor, positions: Tensor) -> tuple[_CapturePass, Tensor]:
    """Queries and keys of every layer, and the logits (n, V), with attention outputs of zero."""
    capture = _CapturePass()
    logits = _forward(model, ids, positions, capture)
    num_layers: int = model.config.get_text_config().num_hidden_layers
    if len(capture.seen) != num_layers:
        raise ModelError(
            f"{type(model).__name__}: {len(capture.seen)} of {num_layers} layers call an attention function "
            f"that can be replaced, and PINE needs all; {ADVICE}"
        )
    return capture, logits


def _refuse_hidden_softcap(model: PreTrainedModel, softcaps: set[float | None]) -> None:
    """Raises ModelError if the config limits attention scores, but our function was not told.

    The probe's scores hardly reach a limit, so that logits would not show it in bfloat16.
    """
    stated = getattr(model.config.get_text_config(), "attn_logit_softcapping", None)
    if softcaps != {stated}:
        told = ", ".join(map(str, softcaps))
        raise ModelError(
            f"{type(model).__name__}: its config limits attention scores (soft-capping) to {stated}, but its "
            f"layers ask for {told}; {ADVICE}"
        )


def _refuse_other_mixing(model: PreTrainedModel, ids: Tensor, logits: Tensor) -> None:
    """Raises ModelError if tokens meet outside attention: with attention outputs of zero, every second token
    is changed, and the logits of those between must stay."""
    changed = ids.clone()
    changed[::2] = (changed[::2] + 1) % model.config.get_text_config().vocab_size
    _, others = _capture(model, changed, torch.arange(len(ids), device=input_device(model)))
    if not _logit_deviation(others[1::2], logits[1::2]) <= TOLERANCE[logits.dtype]:
        raise ModelError(
            f"{type(model).__name__}: its tokens meet outside attention too, such as in a convolution or a "
            f"recurrent layer, where documents cannot be kept apart; {ADVICE}"
        )


def _rotation_deviation(rope: Rope, layers: tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]) -> float:
    """Largest deviation of our rotation of a layer's queries and keys from the model's own.

    layers: both unrotated, then both as the model rotates them, each (heads, n, d).
    """
    unrotated, rotated = layers
    return max(_deviation_of(rope, *pair) for pair in zip(unrotated, rotated, strict=True))


def _deviation_of(rope: Rope, before: Tensor, after: Tensor) -> float:
    if 2 * rope.inverse_frequencies.shape[-1] > before.shape[-1]:  # of other heads, such as those that see
        return math.inf
    dtype = torch.promote_types(before.dtype, torch.float32)
    table = rope.table(before.shape[1], before.shape[2], dtype)
    before, after = (vectors.to(table.device, dtype) for vectors in (before, after))
    ours = rope.to_pairs(before) * table
    return _relative_deviation(from_pairs(ours), from_pairs(rope.to_pairs(after)))


def _relative_deviation(ours: Tensor, own: Tensor) -> float:
    return ((ours.double() - own.double()).abs().max() / own.double().abs().max().clamp_min(1e-30)).item()


def _logit_deviation(ours: Tensor, own: Tensor) -> float:
    """Deviation of logits (n, V), relative to the largest: that of the worst token, in half precision of the
    median one, because there rounding may send single tokens of a mixture of experts to other experts."""
    by_token = (ours.double() - own.double()).abs().amax(-1)
    deviation = by_token.median() if own.dtype.itemsize == 2 else by_token.max()
    return (deviation / own.double().abs().max().clamp_min(1e-30)).item()


def _run(patched_model: PatchedModel, layout: TokenLayout, name: str) -> Tensor:
    state = new_state(build_plan(METHODS[name], layout), patched_model=patched_model, room=0, recorder=None)
    prefill = PrefillPass(SequenceState(state, KVCache([])), room=0, on_layer=lambda _: None)
    ids, position_ids = torch.tensor(layout.ids), state.position_ids(0, layout.num_tokens)[0]
    return _forward(patched_model.network, ids, position_ids, prefill)


def _forward(model: PreTrainedModel, ids: Tensor, positions: Tensor, attend: ForwardPass) -> Tensor:
    """Logits (n, V) of one pass through our attention function."""
    try:
        return run_pass(model, attend, ids[None].to(input_device(model)), positions[None])[0]
    except ModelError as error:  # what our function says that a layer asked of it
        raise ModelError(f"{type(model).__name__}: {error}; {ADVICE}") from error
    except Exception as error:  # what a family's own code raises when it gives or expects something else
        raise ModelError(
            f"{type(model).__name__} cannot be run with PINE's attention function ({one_line(error)}); "
            f"{ADVICE}"
        ) from error
