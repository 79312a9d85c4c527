"""A model proves itself when it is loaded: its rotation and its attention, against ours."""

from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pine_engine.errors import ModelError
from pine_engine.forward import NAME, PrefillPass, Row, new_state
from pine_engine.kv_cache import KVCache
from pine_engine.layout import TokenLayout
from pine_engine.methods import METHODS
from pine_engine.plan import build_plan
from pine_engine.rope import Pairing, Rope, find_rope, from_pairs

PREFIX_TOKENS, DOCUMENT_TOKENS, SUFFIX_TOKENS = 5, 23, 7

TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Largest relative deviation allowed of our arithmetic from the model's own, by dtype. Rounding stays
well below; a wrong rotation, mask or scale is above it by orders of magnitude. Transformers' own attention
takes its softmax in float32 for float64 models too."""

PAIRINGS: tuple[Pairing, ...] = ("half", "interleaved")


@dataclass
class _CapturePass:
    """Records queries and keys of every layer; the attention output is zero, so that no layer's input
    depends on positions."""

    seen: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        """See forward.Pass."""
        self.seen.append((query[0], key[0]))
        return torch.zeros_like(query)


@torch.inference_mode()
def prove(model: PreTrainedModel) -> Rope:
    """The model's rope, after showing that our arithmetic is the model's own; ours is then registered.

    Compares the rotation in every layer, then the logits of a short prompt: vanilla through our
    function, and PINE with one document, which is vanilla (specification 3.5), against the model's attention.
    Raises ModelError with what differed.
    """
    vocabulary: int = model.config.get_text_config().vocab_size
    generator = torch.Generator().manual_seed(0)
    count = PREFIX_TOKENS + DOCUMENT_TOKENS + SUFFIX_TOKENS
    ids = torch.randint(vocabulary, (count,), generator=generator)
    if model.config._attn_implementation == NAME:  # wrapped before
        model.set_attn_implementation("eager")
    own = model(input_ids=ids[None].to(model.device), use_cache=False).logits[0]

    model.set_attn_implementation(NAME)
    rope = _find_rotation(model, ids)
    parts = ids.split([PREFIX_TOKENS, DOCUMENT_TOKENS, SUFFIX_TOKENS])
    prefix, document, suffix = (tuple(part.tolist()) for part in parts)
    layout = TokenLayout(prefix, (document,), suffix)
    for name in ("vanilla", "pine"):
        deviation = _relative_deviation(_run(model, rope, layout, name), own)
        if not deviation <= TOLERANCE[own.dtype]:
            raise ModelError(
                f"{type(model).__name__}: attention through PINE's function ({name}, one document) deviates "
                f"from the model's own by {deviation:.1e}, more than {TOLERANCE[own.dtype]:.0e}; the model "
                "does something in its attention that is not supported, such as a sliding window, "
                "soft-capping or sinks. Use a plain RoPE model such as Llama, Qwen2 or Mistral"
            )
    return rope


def _find_rotation(model: PreTrainedModel, ids: Tensor) -> Rope:
    rotated, unrotated = _CapturePass(), _CapturePass()
    positions = torch.arange(len(ids), device=model.device)
    for capture, position_ids in ((rotated, positions), (unrotated, torch.zeros_like(positions))):
        model(
            input_ids=ids[None].to(model.device),
            position_ids=position_ids[None],
            use_cache=False,
            pine_pass=capture,
        )
    worst: dict[Pairing, float] = {}
    for pairing in PAIRINGS:
        rope = find_rope(model, pairing)
        worst[pairing] = max(
            _rotation_deviation(rope, before, after)
            for layers in zip(unrotated.seen, rotated.seen, strict=True)
            for before, after in zip(*layers, strict=True)
        )
    best = min(worst, key=lambda pairing: worst[pairing])
    if not worst[best] <= TOLERANCE[rotated.seen[0][0].dtype]:
        raise ModelError(
            f"{type(model).__name__}: its rotation by position deviates from plain RoPE by {worst[best]:.1e} "
            "in some layer, so PINE cannot place documents in it; use a plain RoPE model such as Llama"
        )
    return find_rope(model, best)


def _rotation_deviation(rope: Rope, before: Tensor, after: Tensor) -> float:
    """Deviation of our rotation of `before` (heads, n, d), unrotated, from the model's own, `after`."""
    dtype = torch.promote_types(before.dtype, torch.float32)
    table = rope.table(before.shape[1], before.shape[2], dtype)
    ours = rope.to_pairs(before.to(dtype)) * table
    return _relative_deviation(from_pairs(ours), from_pairs(rope.to_pairs(after.to(dtype))))


def _relative_deviation(ours: Tensor, own: Tensor) -> float:
    return ((ours.double() - own.double()).abs().max() / own.double().abs().max().clamp_min(1e-30)).item()


def _run(model: PreTrainedModel, rope: Rope, layout: TokenLayout, name: str) -> Tensor:
    state = new_state(build_plan(METHODS[name], layout), rope=rope, model=model, room=0, recorder=None)
    prefill = PrefillPass(Row(state, KVCache([])), room=0, on_layer=lambda _: None)
    logits: Tensor = model(
        input_ids=torch.tensor(layout.ids, device=model.device)[None],
        position_ids=state.position_ids(0, layout.num_tokens),
        use_cache=False,
        pine_pass=prefill,
    ).logits[0]
    return logits
