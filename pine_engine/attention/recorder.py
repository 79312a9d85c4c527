"""Recorder of a trace: collects results of attention, and computes more only if the trace requests it."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pine_engine.attention.arithmetic import Ranking, attention_weights, tail_mask
from pine_engine.attention.blocks import BlockLayout
from pine_engine.attention.kv_cache import heads_of
from pine_engine.attention.trace import Alternative, TokenRange, TokenWeights, Trace, TraceConfig
from pine_engine.methods.plan import MASKED, AttentionPlan
from pine_engine.network.batched_gemm import batched_gemm
from pine_engine.network.registration import AttentionParams, LayerInput


@dataclass(frozen=True)
class StoredKeys:
    """Keys in the order of storage, reserved tokens included."""

    plan: AttentionPlan
    index: Tensor  # (K,), physical index of each key
    bias: Tensor | None = None  # (K,), added to the scores of each key; None if all are 0

    def shares(self, weights: Tensor) -> Tensor:
        """Sum weights (H, Q, K or less) by segment, (H, Q, 1 + D + 1): prefix, documents, suffix."""
        segments = self._segments[: weights.shape[-1]].to(weights.dtype)
        shares: Tensor = batched_gemm(weights.flatten(0, 1), segments).unflatten(0, weights.shape[:2])
        return shares

    @cached_property
    def _segments(self) -> Tensor:
        of_token = torch.from_numpy(self.plan.segments).to(self.index.device)
        # Tokens after the prompt belong to the suffix.
        of_key = of_token[self.index.clamp(max=len(of_token) - 1)]
        return nn.functional.one_hot(of_key, self.plan.layout.num_documents + 2).float()


HeadsOfBatch = tuple[Tensor, int, int]
"""Arguments of `heads_of`, which is called at the end of the run, so that decode steps take less time."""


@dataclass
class DecodeOutput:
    """Suffix and decoded tokens of one layer; their attention is computed at the end of the run."""

    scoring: AttentionParams
    stored: StoredKeys
    keys: HeadsOfBatch  # (G, K, head_dim), up to the last query
    queries: list[HeadsOfBatch] = field(default_factory=list)  # each (H, Q, head_dim)

    def shares(self) -> Tensor:
        """Return the attention on each segment, (H, Q, 1 + D + 1), documents in input order."""
        queries = torch.cat([heads_of(*query) for query in self.queries], dim=1)
        keys = heads_of(*self.keys)
        mask = tail_mask(queries, keys.shape[1], self.stored.bias)
        return self.stored.shares(attention_weights(queries, keys, self.scoring, mask))


class TraceRecorder:
    """Collector of the data of one run's trace."""

    def __init__(self, request: TraceConfig | None = None) -> None:
        self.request = request or TraceConfig()
        self.alternatives: list[tuple[Alternative, ...]] = []
        # Of each stream with a document, in the order of token ids; the trace is then their mean.
        self.streams: list[tuple[TraceRecorder, AttentionPlan]] = []
        # Of each layer, attention of the question's best copy, (H, question, 1 + D + 1); mostly empty.
        self.question: list[Tensor] = []
        self.log_weights: tuple[float, ...] | None = None  # of documents, from a first pass
        self._documents: dict[int, tuple[BlockLayout, Ranking]] = {}
        self._suffix: dict[int, list[tuple[Tensor, Tensor, Tensor]]] = defaultdict(list)
        self._continued: dict[int, DecodeOutput] = {}
        self._tokens: dict[TokenRange, list[tuple[int, Tensor, Tensor]]] = defaultdict(list)

    def record_documents(self, layer: int, blocks: BlockLayout, ranking: Ranking) -> None:
        """Record the ranking by documents, in block order."""
        self._documents[layer] = (blocks, ranking)

    def record_documents_of(self, other: "TraceRecorder") -> None:
        """Record the rankings by documents that another prompt with these documents has recorded."""
        self._documents |= other._documents

    def record_suffix(
        self, layer: int, first: int, ranking: Ranking, weights: Tensor, stored: StoredKeys
    ) -> None:
        """Record ranking and attention weights (H, Q, K) of suffix tokens from `first` on."""
        self._suffix[layer].append((ranking.importance, ranking.starts, stored.shares(weights)))
        for token_range, part in self._requested(layer, first, weights.shape[1]):
            index = stored.index[: weights.shape[-1]]
            self._tokens[token_range].append((first + part.start, weights[token_range.head, part], index))

    def record_continuation(
        self,
        inputs: LayerInput,
        first: int,
        keys: Tensor,
        stored: StoredKeys,
        place: tuple[int, int] = (0, 1),
    ) -> None:
        """Record the attention of tokens from `first` on to the first K stored keys (G, K, head_dim).

        Heads of inputs and keys are those of a batch of sequences. `place` is the index of the sequence to
        record, and the batch size.
        """
        if self.request.token_ranges:
            query, own_keys = (heads_of(part, *place) for part in (inputs.query, keys))
            key_index = stored.index[: keys.shape[1]]
            self.record_tokens(replace(inputs, query=query), first, own_keys, key_index, stored.bias)
        of_batch = keys, *place
        if not (continued := self._continued.get(inputs.layer)):
            continued = self._continued[inputs.layer] = DecodeOutput(inputs.scoring, stored, of_batch)
        continued.scoring, continued.keys = inputs.scoring, of_batch
        num_skipped = max(0, stored.plan.layout.documents_end - first)
        query = inputs.query[:, num_skipped:].clone() if num_skipped else inputs.query
        continued.queries.append((query, *place))

    def record_tokens(
        self,
        inputs: LayerInput,
        first: int,
        keys: Tensor,
        key_index: Tensor,
        bias: Tensor | None = None,
        first_head: int = 0,
    ) -> None:
        """Compute and record requested attention weights of tokens from `first` on, the last of the keys.

        The heads are those of the model from `first_head` on.

        Shape:
            keys: (G, K, head_dim) or (H, K, head_dim).
            key_index: (K,), or (H, K) if each head has its own order of keys. Physical indices.
        """
        query = inputs.query
        for token_range, part in self._requested(inputs.layer, first, query.shape[1]):
            own = token_range.head - first_head
            if not 0 <= own < len(query):
                continue
            head, of_head = own // (query.shape[0] // keys.shape[0]), query[own : own + 1]
            mask = tail_mask(of_head, keys.shape[1], bias)
            scoring = inputs.scoring.of_heads(slice(token_range.head, token_range.head + 1))
            weights = attention_weights(of_head, keys[head : head + 1], scoring, mask)[0, part]
            index = key_index if key_index.dim() == 1 else key_index[head]
            self._tokens[token_range].append((first + part.start, weights, index))

    def records_tokens(self, layer: int) -> bool:
        """Check whether attention weights of single tokens are requested of a layer."""
        return any(token_range.layer == layer for token_range in self.request.token_ranges)

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
        if self.streams:
            return self._mean_of_streams(plan, num_decoded)
        importance = suffix_importance = None
        starts: NDArray[Any]
        suffix_starts: NDArray[Any]
        shares = {layer: continued.shares() for layer, continued in self._continued.items()}
        if plan.document_starts is not None and plan.suffix_document_starts is not None:
            num_suffix = plan.prompt.suffix_length + num_decoded
            starts = plan.document_starts[None, None]
            suffix_starts = np.tile(plan.suffix_document_starts, (1, 1, num_suffix, 1))
        else:
            of_documents, of_suffix = [], []
            for layer, (blocks, ranking) in sorted(self._documents.items()):
                ranked = ranking.importance, ranking.starts.expand_as(ranking.importance)
                of_documents.append([blocks.to_input_order(part, 0, 2).transpose(0, 1) for part in ranked])
                parts = zip(*self._suffix[layer], strict=True)
                *by_suffix, shares[layer] = (torch.cat(part, dim=1) for part in parts)
                of_suffix.append([blocks.to_input_order(part, 2) for part in by_suffix])
            importance, starts = _stack(of_documents)
            importance[..., np.eye(plan.layout.num_documents, dtype=bool)] = np.nan
            suffix_importance, suffix_starts = _stack(of_suffix)
        if not plan.method.has_starts:
            starts, suffix_starts = np.full_like(starts, MASKED), np.full_like(suffix_starts, MASKED)
        attention = [shares[layer].cpu() for layer in sorted(shares)]
        if self.question:
            pairs = zip(self.question, attention, strict=True)
            attention = [torch.cat((question.cpu(), task), dim=1) for question, task in pairs]
        return Trace(
            method=plan.method.name,
            layout=plan.prompt,
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
            document_weights=self._document_weights(),
        )

    def _document_weights(self) -> NDArray[np.float64] | None:
        if self.log_weights is None:
            return None
        weights = np.exp(self.log_weights)
        return np.asarray(weights / weights.sum())

    def _mean_of_streams(self, plan: AttentionPlan, num_decoded: int) -> Trace:
        """Return a trace with the mean attention of the streams, which have one document each, or all."""
        documents, count = plan.layout.documents, len(plan.layout.documents)
        by_ids = sorted(range(count), key=documents.__getitem__)
        starts, suffix_starts = plan.document_starts, plan.suffix_document_starts
        assert starts is not None and suffix_starts is not None
        mean: NDArray[np.float32] = np.zeros(0, dtype=np.float32)
        for index, (recorder, of_stream) in enumerate(self.streams):
            attention = recorder.finish(of_stream, num_decoded).suffix_attention
            assert attention is not None
            read = by_ids[index : index + 1] if plan.method.splits_documents else range(count)
            segments = [0, *(1 + document for document in read), -1]
            share = np.zeros((*attention.shape[:-1], count + 2), dtype=np.float32)
            share[..., segments] = attention / len(self.streams)
            mean = share if mean.size == 0 else mean + share
        return Trace(
            method=plan.method.name,
            layout=plan.layout,
            document_starts=np.where(plan.visible, starts, MASKED).astype(np.int32)[None, None],
            suffix_starts=np.tile(suffix_starts, (1, 1, mean.shape[2], 1)).astype(np.int32),
            suffix_attention=mean,
            alternatives=tuple(self.alternatives),
        )

    def _token_weights(self, token_range: TokenRange, plan: AttentionPlan, num_decoded: int) -> TokenWeights:
        keys = np.arange(plan.layout.num_tokens + num_decoded)
        table = np.full((token_range.stop - token_range.first, len(keys)), np.nan, dtype=np.float32)
        for first, weights, key_index in self._tokens[token_range]:
            queries = np.arange(first, first + len(weights))
            dense = torch.zeros(len(queries), len(keys))
            dense.index_add_(1, key_index.cpu(), weights.float().cpu())
            mask = plan.attention_mask(queries, keys)
            table[queries - token_range.first] = np.where(mask, dense.numpy(), np.nan)
        return TokenWeights(token_range, table)


def _stack(layers: Sequence[Sequence[Tensor]]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return importances and starts of all layers, layer first."""
    importances, starts = zip(*layers, strict=True)
    stacked = torch.stack([part.cpu() for part in importances]).float()
    return stacked.numpy(), torch.stack([part.cpu() for part in starts]).numpy()
