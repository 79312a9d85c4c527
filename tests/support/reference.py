"""Plain implementation of the definition: an independent reference for the engine.

One query at a time, explicit positions, transformers' own rotation, float64. Nothing here is shared with
`pine_engine.attention.arithmetic`.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from pine_engine.prompts.layout import TokenLayout


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


def reference_logits(model: LlamaForCausalLM, layout: TokenLayout, method: str) -> Tensor:
    """Return the logits (n, V) of the prompt under a method. Source: specification 1, 3."""
    return reference_pass(model, layout, method)[0]


def reference_pass(model: LlamaForCausalLM, layout: TokenLayout, method: str) -> tuple[Tensor, Tensor]:
    """Return logits (n, V) and attention weights (A, H, n, n), NaN where masked."""
    ids = torch.tensor(layout.ids)
    hidden = model.model.embed_tokens(ids)
    layers = []
    for layer in model.model.layers:
        attention = layer.self_attn
        normed = layer.input_layernorm(hidden)
        heads = [
            projection(normed).view(len(ids), -1, attention.head_dim).transpose(0, 1)
            for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
        ]
        mixed, weights = _attend(model, layout, method, *heads)
        layers.append(weights)
        hidden = hidden + attention.o_proj(mixed.transpose(0, 1).flatten(1))
        hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
    logits: Tensor = model.lm_head(model.model.norm(hidden))
    return logits, torch.stack(layers)


def _attend(
    model: LlamaForCausalLM, layout: TokenLayout, method: str, query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor]:
    head_dim = query.shape[-1]
    group = len(query) // len(key)
    output = torch.empty_like(query)
    weights_of = query.new_full((len(query), layout.num_tokens, layout.num_tokens), math.nan)
    for head in range(len(query)):
        keys, values = key[head // group], value[head // group]
        raw = query[head] @ keys.T / math.sqrt(head_dim)
        for index in range(layout.num_tokens):
            own, keys_at, weights = positions_seen(layout, method, index, raw)
            visible = sorted(keys_at)
            rotated_query = _rotate(model, query[head, index][None], [own])
            rotated_keys = _rotate(model, keys[visible], [keys_at[j] for j in visible])
            scores = (rotated_query @ rotated_keys.T)[0] / math.sqrt(head_dim)
            scores = scores + raw.new_tensor([math.log(weights.get(j, 1.0)) for j in visible])
            weights_of[head, index, visible] = scores.softmax(-1)
            output[head, index] = scores.softmax(-1) @ values[visible]
    return output, weights_of


def _rotate(model: LlamaForCausalLM, vectors: Tensor, positions: list[int]) -> Tensor:
    cos, sin = model.model.rotary_emb(vectors, torch.tensor(positions)[None])
    rotated, _ = apply_rotary_pos_emb(vectors[None, None], vectors[None, None], cos, sin)
    result: Tensor = rotated[0, 0]
    return result


def positions_seen(
    layout: TokenLayout, method: str, index: int, raw: Tensor
) -> tuple[int, dict[int, int], dict[int, float]]:
    """Return the position of a query, the positions of the keys it can attend to, and weights other than 1.

    raw: (n, n) unrotated scores of a head.
    """
    prefix, end = layout.prefix_length, layout.documents_end
    spans = [
        range(s, s + len(d)) for s, d in zip(layout.document_starts.tolist(), layout.documents, strict=True)
    ]
    count, longest = len(spans), max(map(len, spans))
    mine = next((d for d, span in enumerate(spans) if index in span), None)
    seen = {j: j for j in range(min(index + 1, prefix))}
    if index < prefix:
        return index, seen, {}
    if method == "vanilla":
        return index, {j: j for j in range(index + 1)}, {}

    input_starts = [span.start for span in spans]
    suffix_shift = 0
    weights: dict[int, float] = {}
    if method in ("nia", "mask_only"):
        starts = input_starts
    elif method.startswith(("pcw", "sp")):
        starts = [prefix] * count
        suffix_shift = prefix + longest - end
        if mine is None and method.endswith("_right"):
            starts = [prefix + longest - len(span) for span in spans]
        if mine is None and method.startswith("sp"):
            weights = {j: 1 / count for j in range(0 if method == "sp_prefix" else prefix, end)}
    elif method in ("pine_input_order", "pine_literal_order"):
        starts = list(input_starts)
        if mine is not None and method == "pine_input_order":
            for d in range(mine + 1, count):
                starts[d] -= len(spans[mine])
        if mine is not None:
            starts[mine] = end - len(spans[mine])
    else:
        importance = importance_seen(layout, index, raw, method)
        starts = _ranked_starts(layout, spans, mine, importance, reverse=method == "pine_reversed")

    for d, span in enumerate(spans):
        isolated = method.startswith(("nia", "pcw", "sp"))
        later_hidden = method == "reassignment_only"
        if mine is None or d == mine or not (isolated or (later_hidden and d > mine)):
            for offset, j in enumerate(span):
                if d != mine or j <= index:
                    seen[j] = starts[d] + offset
    if mine is None:
        seen |= {j: j + suffix_shift for j in range(end, index + 1)}
        return index + suffix_shift, seen, weights
    return starts[mine] + index - spans[mine].start, seen, weights


def importance_seen(layout: TokenLayout, index: int, raw: Tensor, method: str = "pine") -> dict[int, float]:
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
        weights = dict(zip(columns, raw[i, columns].softmax(-1).tolist(), strict=True))
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
    starts = [0] * len(spans)
    position = layout.documents_end
    for d in closest_first:
        position -= len(spans[d])
        starts[d] = position
    return starts
