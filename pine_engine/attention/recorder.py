"""Recorder of a trace: collects what attention computes, and computes more only where the trace requests
it."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pine_engine.attention.arithmetic import Ranking, attention_weights, tail_mask
from pine_engine.attention.blocks import BlockLayout
from pine_engine.attention.kv_cache import heads_of
from pine_engine.attention.trace import Alternative, TokenRange, TokenWeights, Trace, TraceConfig
from pine_engine.methods.plan import AttentionPlan
from pine_engine.methods.positions import MASKED, attention_mask
from pine_engine.network.registration import AttentionParams, LayerInput


@dataclass(frozen=True)
class StoredKeys:
    """Physical index (K,) of each key in the order of storage, reserved tokens included."""

    plan: AttentionPlan
    index: Tensor

    @cached_property
    def segments(self) -> Tensor:
        """One-hot segment of each key, float32 (K, 1 + D + 1): prefix, documents, suffix."""
        of_token = torch.from_numpy(self.plan.segments).to(self.index.device)
        # Tokens after the prompt belong to the suffix.
        of_key = of_token[self.index.clamp(max=len(of_token) - 1)]
        return nn.functional.one_hot(of_key, self.plan.layout.num_documents + 2).float()


@dataclass(frozen=True)
class BatchMember:
    """One sequence of a batch whose heads are concatenated."""

    index: int
    batch_size: int

    def heads(self, vectors: Tensor) -> Tensor:
        """Return the heads of this sequence, a view of (batch size * heads, ...)."""
        return vectors[heads_of(self.index, len(vectors) // self.batch_size)]


@dataclass
class DecodeOutput:
    """Suffix and decoded tokens of one layer; their attention is computed at the end of the run.

    `keys` (G, K, head_dim) are those up to the last query, and `queries` (H, Q, head_dim) each.
    """

    scoring: AttentionParams
    stored: StoredKeys
    bias: Tensor | None
    keys: Tensor
    member: BatchMember
    queries: list[tuple[Tensor, BatchMember]] = field(default_factory=list)

    def shares(self) -> Tensor:
        """Return the attention on each segment, (H, Q, 1 + D + 1), documents in input order."""
        queries = torch.cat([member.heads(query) for query, member in self.queries], dim=1)
        keys = self.member.heads(self.keys)
        mask = tail_mask(queries, keys.shape[1], self.bias)
        weights = attention_weights(queries, keys, self.scoring, mask)
        return weights @ self.stored.segments[: weights.shape[-1]].to(weights.dtype)


@dataclass(frozen=True)
class SuffixRanking:
    """Ranking by the next Q suffix tokens of a layer, documents in block order.

    `heads` are those of this sequence. `shares` (..., Q, 1 + D + 1) is the attention on each segment.
    """

    blocks: BlockLayout
    heads: slice
    ranking: Ranking
    shares: Tensor


class TraceRecorder:
    """Collector of the data of one run's trace."""

    def __init__(self, request: TraceConfig | None = None) -> None:
        self.request = request or TraceConfig()
        self.alternatives: list[tuple[Alternative, ...]] = []
        self._documents: dict[int, tuple[Tensor, Tensor]] = {}
        self._suffix: dict[int, list[SuffixRanking]] = defaultdict(list)
        self._continued: dict[int, DecodeOutput] = {}
        self._tokens: dict[TokenRange, list[tuple[int, Tensor, Tensor]]] = defaultdict(list)

    def record_documents(self, layer: int, blocks: BlockLayout, ranking: Ranking) -> None:
        """Record the ranking by documents, (D, H, D) in block order, query document first."""
        starts = ranking.starts.expand_as(ranking.importance)
        importance, starts = (
            blocks.to_input_order(values, 0, 2).transpose(0, 1) for values in (ranking.importance, starts)
        )
        importance.diagonal(dim1=1, dim2=2).fill_(float("nan"))
        self._documents[layer] = (importance, starts)

    def record_suffix(self, layer: int, found: SuffixRanking) -> None:
        """Record the ranking by the next suffix tokens."""
        self._suffix[layer].append(found)

    def record_continuation(
        self,
        inputs: LayerInput,
        first: int,
        keys: Tensor,
        stored: StoredKeys,
        bias: Tensor | None,
        member: BatchMember,
    ) -> None:
        """Record the attention of tokens from `first` on to the first K stored keys (G, K, head_dim)."""
        if self.request.token_ranges:
            local = replace(inputs, query=member.heads(inputs.query))
            self.record_tokens(local, first, member.heads(keys), stored.index[: keys.shape[1]], bias)
        num_skipped = max(0, stored.plan.layout.documents_end - first)
        continued = self._continued.setdefault(
            inputs.layer, DecodeOutput(inputs.scoring, stored, bias, keys, member)
        )
        continued.keys, continued.member = keys, member
        query = inputs.query[:, num_skipped:].clone() if num_skipped else inputs.query
        continued.queries.append((query, member))

    def record_tokens(
        self, inputs: LayerInput, first: int, keys: Tensor, key_index: Tensor, bias: Tensor | None = None
    ) -> None:
        """Compute and record requested attention weights of tokens from `first` on, the last of the keys.

        Shape:
            keys: (G, K, head_dim) or (H, K, head_dim).
            key_index: (K,), or (H, K) if each head has its own order of keys. Physical indices.
        """
        query = inputs.query
        for token_range, part in self._requested(inputs.layer, first, query.shape[1]):
            head = token_range.head // (query.shape[0] // keys.shape[0])
            of_head = query[token_range.head : token_range.head + 1]
            mask = tail_mask(of_head, keys.shape[1], bias)
            weights = attention_weights(of_head, keys[head : head + 1], inputs.scoring, mask)[0, part]
            index = key_index if key_index.dim() == 1 else key_index[head]
            self._tokens[token_range].append((first + part.start, weights, index))

    def record_weights(
        self, layer: int, first: int, weights: Tensor, heads: slice, key_index: Tensor
    ) -> None:
        """Record requested weights from the attention weights (..., Q, K) of tokens from `first` on.

        `heads` are those of this sequence. `key_index` (K or more,) has the physical index of each key.
        """
        for token_range, part in self._requested(layer, first, weights.shape[1]):
            index = key_index[: weights.shape[-1]]
            self._tokens[token_range].append(
                (first + part.start, weights[heads][token_range.head, part], index)
            )

    def _requested(self, layer: int, first: int, count: int) -> Iterator[tuple[TokenRange, slice]]:
        """Yield the requested ranges that overlap queries first .. first + count - 1, and their overlap."""
        for token_range in self.request.token_ranges:
            part = token_range.overlap(first, first + count)
            if token_range.layer == layer and part:
                yield token_range, part

    def record_alternatives(self, logprobs: Tensor) -> None:
        """Record the most likely next tokens by their log-probabilities (V,)."""
        top = logprobs.topk(min(self.request.alternatives, len(logprobs)))
        pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        self.alternatives.append(tuple(Alternative(token, value) for token, value in pairs))

    def finish(self, plan: AttentionPlan, num_decoded: int) -> Trace:
        """Return the trace of a run that fed `num_decoded` tokens back to the model."""
        importance = suffix_importance = None
        starts: NDArray[Any]
        suffix_starts: NDArray[Any]
        if plan.document_starts is not None and plan.suffix_document_starts is not None:
            num_suffix = plan.layout.suffix_length + num_decoded
            starts = plan.document_starts[None, None]
            suffix_starts = np.tile(plan.suffix_document_starts, (1, 1, num_suffix, 1))
        else:
            importance, starts = _stack([self._documents[layer] for layer in sorted(self._documents)])
            suffix_importance, suffix_starts = _stack(
                [
                    (self._of_suffix(layer, "importance"), self._of_suffix(layer, "starts"))
                    for layer in sorted(self._suffix)
                ]
            )
        shares = {layer: self._of_suffix(layer, "shares") for layer in self._suffix}
        shares |= {layer: continued.shares() for layer, continued in self._continued.items()}
        attention = [shares[layer].cpu() for layer in sorted(shares)]
        return Trace(
            method=plan.method.name,
            layout=plan.layout,
            document_starts=np.where(plan.visible, starts, MASKED).astype(np.int32),
            suffix_starts=suffix_starts.astype(np.int32),
            document_importance=importance,
            suffix_importance=suffix_importance,
            suffix_attention=torch.stack(attention).float().numpy() if attention else None,
            token_weights=tuple(
                self._token_weights(token_range, plan, num_decoded)
                for token_range in self.request.token_ranges
            ),
            alternatives=tuple(self.alternatives),
        )

    def _of_suffix(self, layer: int, name: Literal["importance", "starts", "shares"]) -> Tensor:
        """Return values of all suffix tokens, documents in input order."""
        found = self._suffix[layer]
        has_prefix = name == "shares"
        values = [getattr(one if has_prefix else one.ranking, name)[one.heads] for one in found]
        return found[0].blocks.to_input_order(torch.cat(values, dim=1), 2, first=int(has_prefix))

    def _token_weights(self, token_range: TokenRange, plan: AttentionPlan, num_decoded: int) -> TokenWeights:
        keys = np.arange(plan.layout.num_tokens + num_decoded)
        table = np.full((token_range.stop - token_range.first, len(keys)), np.nan, dtype=np.float32)
        for first, weights, key_index in self._tokens[token_range]:
            queries = np.arange(first, first + len(weights))
            dense = torch.zeros(len(queries), len(keys))
            dense.index_add_(1, key_index.cpu(), weights.float().cpu())
            mask = attention_mask(plan, queries, keys)
            table[queries - token_range.first] = np.where(mask, dense.numpy(), np.nan)
        return TokenWeights(token_range, table)


def _stack(layers: Sequence[tuple[Tensor, Tensor]]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """BatchedKVCache importances and starts of all layers, layer first."""
    importances, starts = zip(*layers, strict=True)
    stacked = torch.stack([part.cpu() for part in importances]).float()
    return stacked.numpy(), torch.stack([part.cpu() for part in starts]).numpy()
