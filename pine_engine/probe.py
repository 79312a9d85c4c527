"""A model proves itself when it is loaded: its rotation and its attention, against ours."""

from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pine_engine.architecture import ADVICE, refusal, sliding_window
from pine_engine.attention import Scoring
from pine_engine.checkpoint import one_line
from pine_engine.errors import ModelError
from pine_engine.forward import NAME, Pass
from pine_engine.kv_cache import KVCache
from pine_engine.layout import TokenLayout
from pine_engine.methods import METHODS
from pine_engine.plan import build_plan
from pine_engine.prefill import PrefillPass
from pine_engine.rope import Pairing, Rope, find_rope, from_pairs
from pine_engine.state import Row, input_device, new_state

PREFIX_TOKENS, DOCUMENT_TOKENS, SUFFIX_TOKENS = 5, 23, 7

TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Largest relative deviation allowed of our arithmetic from the model's own, by dtype. Rounding stays
well below; a wrong rotation, mask or scale is above it by orders of magnitude. Transformers' own attention
takes its softmax in float32 for float64 models too."""

PAIRINGS: tuple[Pairing, ...] = ("half", "interleaved")


@dataclass
class _CapturePass:
    """Records queries and keys of every layer, and how it scores; the attention output is zero, so that no
    layer's input depends on positions."""

    seen: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    softcaps: set[float | None] = field(default_factory=set)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
        """See forward.Pass."""
        self.seen.append((query[0], key[0]))
        self.softcaps.add(scoring.softcap)
        return torch.zeros_like(query)


@torch.inference_mode()
def prove(model: PreTrainedModel) -> Rope:
    """The model's rope, after showing that our arithmetic is the model's own; ours is then registered.

    Asks the config first; checks that tokens meet in attention only; compares the rotation in every layer;
    then compares the logits of a short prompt, vanilla through our function, and PINE with one document,
    which is vanilla (specification 3.5), with the model's own attention.
    Raises ModelError with what differed.
    """
    reason = refusal(model.config)
    if reason:
        raise ModelError(f"{type(model).__name__}: {reason}")
    config = model.config.get_text_config()
    vocabulary: int = config.vocab_size
    generator = torch.Generator().manual_seed(0)
    count = PREFIX_TOKENS + DOCUMENT_TOKENS + SUFFIX_TOKENS
    window = sliding_window(config) or count
    if window < count:
        raise ModelError(
            f"{type(model).__name__}: its sliding window is {window} tokens, which would cut even a prompt "
            f"of {count}; {ADVICE}"
        )
    ids = torch.randint(vocabulary, (count,), generator=generator)
    if model.config._attn_implementation == NAME:  # wrapped before
        model.set_attn_implementation("eager")
    own = model(input_ids=ids[None].to(input_device(model)), use_cache=False).logits[0]

    model.set_attn_implementation(NAME)
    rope = _find_rotation(model, ids)
    parts = ids.split([PREFIX_TOKENS, DOCUMENT_TOKENS, SUFFIX_TOKENS])
    prefix, document, suffix = (tuple(part.tolist()) for part in parts)
    layout = TokenLayout(prefix, (document,), suffix)
    for name in ("vanilla", "pine"):
        deviation = _logit_deviation(_run(model, rope, layout, name), own)
        if not deviation <= TOLERANCE[own.dtype]:
            raise ModelError(
                f"{type(model).__name__}: attention through PINE's function ({name}, one document) deviates "
                f"from the model's own by {deviation:.1e}, more than {TOLERANCE[own.dtype]:.0e}; the model "
                f"does something in its attention that is not supported; {ADVICE}"
            )
    return rope


def _find_rotation(model: PreTrainedModel, ids: Tensor) -> Rope:
    candidates = [find_rope(model, pairing) for pairing in PAIRINGS]
    positions = torch.arange(len(ids), device=input_device(model))
    rotated, logits = _capture(model, ids, positions)
    unrotated, _ = _capture(model, ids, torch.zeros_like(positions))
    _refuse_other_mixing(model, ids, logits)
    _refuse_hidden_softcap(model, rotated.softcaps)
    worst: dict[Pairing, float] = {}
    for rope in candidates:
        worst[rope.pairing] = max(
            _rotation_deviation(rope, before, after)
            for layers in zip(unrotated.seen, rotated.seen, strict=True)
            for before, after in zip(*layers, strict=True)
        )
    best = min(candidates, key=lambda rope: worst[rope.pairing])
    if not worst[best.pairing] <= TOLERANCE[logits.dtype]:
        raise ModelError(
            f"{type(model).__name__}: its rotation by position deviates from plain RoPE by "
            f"{worst[best.pairing]:.1e} in some layer, so PINE cannot place documents in it; {ADVICE}"
        )
    return best


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


def _rotation_deviation(rope: Rope, before: Tensor, after: Tensor) -> float:
    """Deviation of our rotation of `before` (heads, n, d), unrotated, from the model's own, `after`."""
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


def _run(model: PreTrainedModel, rope: Rope, layout: TokenLayout, name: str) -> Tensor:
    state = new_state(build_plan(METHODS[name], layout), rope=rope, model=model, room=0, recorder=None)
    prefill = PrefillPass(Row(state, KVCache([])), room=0, on_layer=lambda _: None)
    return _forward(model, torch.tensor(layout.ids), state.position_ids(0, layout.num_tokens)[0], prefill)


def _forward(model: PreTrainedModel, ids: Tensor, positions: Tensor, pine_pass: Pass) -> Tensor:
    """Logits (n, V) of one pass through our attention function."""
    try:
        logits: Tensor = model(
            input_ids=ids[None].to(input_device(model)),
            position_ids=positions[None],
            use_cache=False,
            pine_pass=pine_pass,
        ).logits[0]
    except ModelError as error:  # what our function says that a layer asked of it
        raise ModelError(f"{type(model).__name__}: {error}; {ADVICE}") from error
    except Exception as error:  # what a family's own code raises when it gives or expects something else
        if isinstance(error, TypeError) and "pine_pass" in str(error):
            raise ModelError(
                f"{type(model).__name__}: its layers do not hand the arguments of `forward` on to attention, "
                f"so that it cannot be told who sees whom; {ADVICE}"
            ) from error
        raise ModelError(
            f"{type(model).__name__} cannot be run with PINE's attention function ({one_line(error)}); "
            f"{ADVICE}"
        ) from error
    return logits
