"""Definition of all methods, applied to models of any family: an independent reference for the engine.

The family's own code runs on one prompt at all positions: every token of sequence p has position p. Attention
takes each query and key from the sequence of its position. Nothing is shared with
`pine_engine.attention.arithmetic` or `pine_engine.network.rope`.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast
from unittest.mock import patch

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, LlamaForCausalLM, PreTrainedModel

from pine_engine import METHODS, TokenLayout


class ExactRotary(nn.Module):
    """Llama's rotary embedding with angles, sines and cosines in the dtype of the model, not in float32."""

    def __init__(self, model: LlamaForCausalLM) -> None:
        super().__init__()
        self.inv_freq = nn.Buffer(model.model.rotary_emb.inv_freq.clone())

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """x: only its dtype counts. position_ids: (B, n). Returns cos and sin, (B, n, d)."""
        angles = position_ids[..., None].to(x.dtype) * self.inv_freq
        both = torch.cat((angles, angles), dim=-1)
        return both.cos(), both.sin()


def exact_llama(tiny_llama: Callable[..., LlamaForCausalLM], **options: Any) -> LlamaForCausalLM:
    """Return a tiny Llama in float64, RoPE included. tiny_llama, options: see the fixture."""
    model = tiny_llama(dtype=torch.float64, attn_implementation="sdpa", **options)
    model.model.rotary_emb = ExactRotary(model)
    return model


Mix = Callable[[nn.Module, Tensor, Tensor, Tensor, float, float | None], Tensor]
"""(attention module, query (H, n, d), key and value (G, n, d), scale, softcap) to the output (H, n, d).

Several sequences have a first dimension for the batch.
"""

REFERENCE = "reference_for_tests"

PLANNED = [
    name
    for name, row in METHODS.items()
    if row.has_plan and not row.merge and row.key_weighting != "calibrated"
]
"""Methods that the reference defines: those of one pass."""

MSPOE_FIRST_LAYER = 2

APE_TEMPERATURE = APE_SCALE = 0.9

ROUNDING = 1e-10
"""Difference of equal queries in two sequences of a float64 batch."""

DOCUMENTS_TOGETHER = -1
"""Key under which `positions_seen` says that APE weights the documents together."""

_mix: list[Mix] = []
"""Current attention of the reference; some families pass no arguments to their attention."""


def _reference_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    softcap: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    output = _mix[-1](module, query.squeeze(0), key.squeeze(0), value.squeeze(0), scaling, softcap)
    return output.reshape(*query.shape[:-1], -1).transpose(1, 2).contiguous(), None


AttentionInterface.register(REFERENCE, _reference_attention)
AttentionMaskInterface.register(REFERENCE, lambda *_, **__: None)


@contextmanager
def mixed_by(model: PreTrainedModel, mix: Mix) -> Iterator[None]:
    """Replace the attention of the model inside the block."""
    is_fused = model.config.model_type == "falcon"  # which uses no registry
    configs = [part.config for part in model.modules() if isinstance(part, PreTrainedModel)]
    before = [config._attn_implementation for config in configs]
    attentions: list[Any] = [part for part in model.modules() if type(part).__name__.endswith("Attention")]

    def fused(query: Tensor, key: Tensor, value: Tensor, **_: Any) -> Tensor:
        shape = query.shape
        query, key, value = query.squeeze(0), key.squeeze(0), value.squeeze(0)
        return mix(attentions[0], query, key, value, query.shape[-1] ** -0.5, None).reshape(shape)

    def own(module: nn.Module, *vectors: Tensor) -> tuple[Tensor, None]:
        output, _ = _reference_attention(module, *vectors, scaling=vectors[0].shape[-1] ** -0.5)
        return output.transpose(1, 2), None

    _mix.append(mix)
    for part in attentions:
        if hasattr(part, "_attn"):  # GPT-J, which uses no registry either
            part._attn = partial(own, part)
    try:
        for config in configs:
            config._attn_implementation_internal = "sdpa" if is_fused else REFERENCE
        with patch("torch.nn.functional.scaled_dot_product_attention", fused):
            yield
    finally:
        for config, implementation in zip(configs, before, strict=True):
            config._attn_implementation_internal = implementation
        for part in attentions:
            vars(part).pop("_attn", None)
        _mix.pop()


def reference_logits(
    model: PreTrainedModel, layout: TokenLayout, method: str, num_decoded: int = 0
) -> Tensor:
    """Return the logits (n, V) of the prompt under a method, and of answer tokens at its end."""
    return reference_pass(model, layout, method, num_decoded)[0]


def reference_pass(
    model: PreTrainedModel, layout: TokenLayout, method: str, num_decoded: int = 0
) -> tuple[Tensor, Tensor]:
    """Return logits (n, V) and weights (A, H, n, n), NaN where masked. Source: specification 1, 3."""
    last = layout.num_tokens - num_decoded - 1  # token of the prompt that chooses the ratios of Ms-PoE
    config = model.config.get_text_config()
    count = layout.num_tokens
    layers: list[Tensor] = []
    positions = torch.arange(count)
    of_ratios = {1.0: slice(0, count)}  # sequences of the batch
    if method == "mspoe":
        num_heads = config.num_key_value_heads
        ratios_of_places = [1.2 + 0.6 * place / num_heads for place in range(num_heads)]
        for ratio in ratios_of_places:
            of_ratios[ratio] = slice(len(positions), len(positions) + count)
            positions = torch.cat((positions, torch.arange(count, dtype=torch.float64) / ratio))

    def mix(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, scaling: float, softcap: float | None
    ) -> Tensor:
        layer = cast(int, module.layer_idx)
        weights_of = query.new_full((query.shape[1], count, count), math.nan)
        layers.append(weights_of)
        group, sinks = query.shape[1] // key.shape[1], getattr(module, "sinks", None)
        plain_query, plain_key = (_unrotated(one[:count], model, layer) for one in (query, key))
        raws = [plain_query[head] @ plain_key[head // group].T * scaling for head in range(query.shape[1])]
        ratios = [1.0] * key.shape[1]
        if method == "mspoe" and layer >= MSPOE_FIRST_LAYER:
            rows = [raw[last, : last + 1] for raw in raws]
            places = mspoe_places(
                rows if softcap is None else [(r / softcap).tanh() * softcap for r in rows], group
            )
            ratios = [ratios_of_places[place] for place in places]
        output = value.new_empty(query.shape[1], count, value.shape[-1])
        for head, raw in enumerate(raws):
            sequences = of_ratios[ratios[head // group]]
            queries_at, keys_at = (
                query[sequences, head],
                key[sequences, head // group],
            )  # (position, token, d)
            for index in range(count):
                own, positions_of, factors = positions_seen(
                    layout, method, index, raw, None if sinks is None else sinks[head]
                )
                visible = sorted(positions_of)
                keys = keys_at[[positions_of[j] for j in visible], visible]
                scores = keys @ queries_at[own, index] * scaling
                temperature = APE_TEMPERATURE if factors.get(DOCUMENTS_TOGETHER) else 1.0
                of_documents = torch.tensor(
                    [layout.prefix_length <= j < layout.documents_end for j in visible]
                )
                scores[of_documents] /= temperature
                if softcap is not None:
                    scores = (scores / softcap).tanh() * softcap
                if factors.get(DOCUMENTS_TOGETHER):
                    both = APE_TEMPERATURE * APE_SCALE * scores[of_documents].logsumexp(0)
                    share = (both - scores[~of_documents].logsumexp(0)).sigmoid()
                    weights = torch.empty_like(scores)
                    weights[of_documents] = share * scores[of_documents].softmax(0)
                    weights[~of_documents] = (1 - share) * scores[~of_documents].softmax(0)
                    scores = weights.log()
                scores = scores + scores.new_tensor([factors.get(key, 1.0) for key in visible]).log()
                if sinks is not None:
                    scores = torch.cat((scores, sinks[head, None].to(scores)))
                weights = scores.softmax(-1)[: len(visible)]
                weights_of[head, index, visible] = weights
                output[head, index] = weights @ value[0, head // group, visible]
        return output.expand(len(positions), -1, -1, -1)

    ids = torch.tensor([layout.ids]).expand(len(positions), -1)
    position_ids = positions[:, None].repeat(1, count)
    with mixed_by(model, mix), torch.inference_mode():
        output = model(input_ids=ids, position_ids=position_ids, use_cache=False)
    return output.logits[0], torch.stack(layers)


def _unrotated(vectors: Tensor, model: PreTrainedModel, layer: int) -> Tensor:
    """Return queries or keys (heads, n, d) without rotation, from (n, heads, n, d) at all positions.

    Scaled RoPE (yarn, longrope) also multiplies the dimensions that rotate by a factor.
    """
    text = getattr(getattr(model, "model", None), "language_model", model)
    names = ["attention_scaling"]
    if kinds := getattr(model.config.get_text_config(), "layer_types", None):
        names.insert(0, f"{kinds[layer]}_attention_scaling")
    factors = [getattr(module, name) for name in names for module in text.modules() if hasattr(module, name)]
    rotates = (vectors - vectors[0]).abs().flatten(end_dim=-2).amax(0) > ROUNDING
    factor = factors[0] if factors else 1.0
    return vectors[0] / torch.where(rotates, vectors.new_tensor(factor), 1.0)


def mspoe_places(rows: list[Tensor], group: int) -> list[int]:
    """Return the place of each key head among the ratios, from unrotated scores of the last token."""
    counts = [sum(weight > 3 / len(row) for weight in row.softmax(0).tolist()) for row in rows]
    of_key_heads = [sum(counts[first : first + group]) for first in range(0, len(rows), group)]
    return sorted(range(len(of_key_heads)), key=lambda head: -of_key_heads[head])


def positions_seen(
    layout: TokenLayout, method: str, index: int, raw: Tensor, sink: Tensor | None = None
) -> tuple[int, dict[int, int], dict[int, float]]:
    """Return the position of a query, the positions of the keys it can attend to, and weights other than 1.

    raw: (n, n) unrotated scores of a head. sink: its score without a key.
    """
    prefix, end = layout.prefix_length, layout.documents_end
    spans = [
        range(s, s + len(d)) for s, d in zip(layout.document_starts.tolist(), layout.documents, strict=True)
    ]
    count, longest = len(spans), max(map(len, spans))
    mine = next((d for d, span in enumerate(spans) if index in span), None)
    seen = {j: j for j in range(min(index + 1, prefix))}
    if method.startswith("no_positions"):
        _, seen, _ = positions_seen(layout, {"no_positions": "vanilla"}.get(method, "nia"), index, raw)
        return 0, dict.fromkeys(seen, 0), {}
    if index < prefix:
        return index, seen, {}
    if method in ("vanilla", "mspoe"):
        return index, {j: j for j in range(index + 1)}, {}

    if method == "kv_reuse" and mine is not None:  # read after the first token of the prefix alone
        alone = min(1, prefix)
        own = {j: alone + j - spans[mine].start for j in range(spans[mine].start, index + 1)}
        return own[index], {j: j for j in range(alone)} | own, {}
    input_starts = [span.start for span in spans]
    suffix_shift = 0
    weights: dict[int, float] = {}
    if method in ("nia", "mask_only", "kv_reuse"):
        starts = input_starts
    elif method.startswith("rotor"):
        # One order by contents, rotated so that the document of the query comes first.
        tokens = [*layout.prefix[:1], *(token for ids in layout.documents for token in ids)]
        counted = tokens if method == "rotor_frequency" else []
        rarity = [[1 / counted.count(token) for token in ids if counted] for ids in layout.documents]
        closest_first = sorted(range(count), key=lambda d: (rarity[d], layout.documents[d]))
        if mine is not None:
            place = closest_first.index(mine)
            closest_first = closest_first[place:] + closest_first[:place]
        starts = _starts_of(layout, spans, closest_first)
    elif method.startswith(("pcw", "sp", "ape")):
        starts = [prefix] * count
        suffix_shift = prefix + longest - end
        if mine is None and method.endswith("_right"):
            starts = [prefix + longest - len(span) for span in spans]
        if mine is None and method.startswith("sp"):
            weights = {j: 1 / count for j in range(0 if method == "sp_prefix" else prefix, end)}
        if mine is None and method == "ape":
            weights = {DOCUMENTS_TOGETHER: 1.0}
    elif method in ("pine_input_order", "pine_literal_order"):
        starts = list(input_starts)
        if mine is not None and method == "pine_input_order":
            for d in range(mine + 1, count):
                starts[d] -= len(spans[mine])
        if mine is not None:
            starts[mine] = end - len(spans[mine])
    else:
        importance = importance_seen(layout, index, raw, method, sink)
        starts = _ranked_starts(layout, spans, mine, importance, reverse=method == "pine_reversed")

    for d, span in enumerate(spans):
        isolated = method.startswith(("nia", "pcw", "sp", "ape"))
        later_hidden = method == "reassignment_only"
        if mine is None or d == mine or not (isolated or (later_hidden and d > mine)):
            for offset, j in enumerate(span):
                if d != mine or j <= index:
                    seen[j] = starts[d] + offset
    if mine is None:
        seen |= {j: j + suffix_shift for j in range(end, index + 1)}
        return index + suffix_shift, seen, weights
    return starts[mine] + index - spans[mine].start, seen, weights


def importance_seen(
    layout: TokenLayout, index: int, raw: Tensor, method: str = "pine", sink: Tensor | None = None
) -> dict[int, float]:
    """PINE's importance of each document but its own for a query. Source: specification 3.5, 3.9.

    raw: (n, n) unrotated scores of a head.
    """
    spans = [layout.document_slice(d) for d in range(layout.num_documents)]
    mine = next((d for d, span in enumerate(spans) if span.start <= index < span.stop), None)
    queries = [index] if mine is None else range(spans[mine].start, spans[mine].stop)
    tokens = {d: range(span.start, span.stop) for d, span in enumerate(spans) if d != mine}
    columns = [j for each in tokens.values() for j in each]
    importance = dict.fromkeys(tokens, 0.0)
    for i in queries:
        scores = raw[i, columns] if sink is None else torch.cat((raw[i, columns], sink[None].to(raw)))
        weights = dict(zip(columns, scores.softmax(-1).tolist(), strict=False))
        for d, each in tokens.items():
            taken = [weights[j] for j in each]
            mean = sum(taken) / len(each)
            importance[d] += {"pine_sum": sum(taken), "pine_max": max(taken)}.get(method, mean)
    return importance


def _ranked_starts(
    layout: TokenLayout, spans: list[range], mine: int | None, importance: dict[int, float], *, reverse: bool
) -> list[int]:
    """PINE's start of each document as seen by a query. Source: specification 3.5."""
    closest_first = sorted(importance, key=lambda d: importance[d] if reverse else -importance[d])
    if mine is not None:
        closest_first.insert(0, mine)
    return _starts_of(layout, spans, closest_first)


def _starts_of(layout: TokenLayout, spans: list[range], closest_first: list[int]) -> list[int]:
    """Return the start of each document if these fill the positions before the suffix, the first closest."""
    starts = [0] * len(spans)
    position = layout.documents_end
    for d in closest_first:
        position -= len(spans[d])
        starts[d] = position
    return starts
