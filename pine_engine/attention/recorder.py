"""Records for a trace what attention computes, and beside it what it does not, only where a trace asks."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pine_engine.attention.arithmetic import attention_weights, tail_mask
from pine_engine.attention.blocks import BlockLayout
from pine_engine.attention.kv_cache import heads_of
from pine_engine.attention.trace import Alternative, TokenRange, TokenWeights, Trace, TraceConfig
from pine_engine.methods.plan import AttentionPlan
from pine_engine.methods.positions import MASKED, who_sees_whom
from pine_engine.network.registration import AttentionParams


@dataclass(frozen=True)
class StoredKeys:
    """Which tokens the keys are that the suffix reads, in the order in which they are stored.

    index: (K,), physical index of each, with room for decoded tokens.
    """

    plan: AttentionPlan
    index: Tensor

    @cached_property
    def segments(self) -> Tensor:
        """One for the segment of each key, else zero: float32 (K, 1 + D + 1), prefix and suffix outside."""
        of_token = torch.from_numpy(self.plan.segments).to(self.index.device)
        # Tokens behind the prompt are suffix too.
        of_key = of_token[self.index.clamp(max=len(of_token) - 1)]
        return nn.functional.one_hot(of_key, self.plan.layout.num_documents + 2).float()


@dataclass
class DecodeOutput:
    """What follows the documents in one layer, whose attention is worked out once all of it is there.

    keys: (G, K, d), of all up to the last query. queries: (H, Q, d) each, of the suffix and of what follows.
    Both may have the heads of other rows beside them, of which `part` is told: number and count of rows.
    """

    scoring: AttentionParams
    stored: StoredKeys
    bias: Tensor | None
    keys: Tensor
    part: tuple[int, int]
    queries: list[tuple[Tensor, tuple[int, int]]]

    def shares(self) -> Tensor:
        """The share of attention on each segment, (H, Q, 1 + D + 1), documents in input order."""
        queries = torch.cat([_part(query, part) for query, part in self.queries], dim=1)
        keys = _part(self.keys, self.part)
        mask = tail_mask(queries, keys.shape[1], self.bias)
        weights = attention_weights(queries, keys, self.scoring, mask)
        return weights @ self.stored.segments[: weights.shape[-1]].to(weights.dtype)


def _part(vectors: Tensor, part: tuple[int, int]) -> Tensor:
    number, count = part
    return vectors[heads_of(number, len(vectors) // count)]


@dataclass(frozen=True)
class SuffixFound:
    """What the next Q tokens of the suffix have found in a layer, with the heads of other rows beside it.

    heads: those of this row. importance, starts: (..., Q, D). shares: of attention, (..., Q, 1 + D + 1). All
    with documents in the order of the blocks.
    """

    blocks: BlockLayout
    heads: slice
    importance: Tensor
    starts: Tensor
    shares: Tensor


class TraceRecorder:
    """Collects what the layers of one run report; documents arrive in block order."""

    def __init__(self, request: TraceConfig | None = None) -> None:
        self.request = request or TraceConfig()
        self.alternatives: list[tuple[Alternative, ...]] = []
        self._documents: dict[int, tuple[Tensor, Tensor]] = {}
        self._suffix: dict[int, list[SuffixFound]] = defaultdict(list)
        self._continued: dict[int, DecodeOutput] = {}
        self._tokens: dict[TokenRange, list[tuple[int, Tensor, Tensor]]] = defaultdict(list)

    def record_documents(self, layer: int, blocks: BlockLayout, importance: Tensor, starts: Tensor) -> None:
        """importance and starts: (D, H, D), query document first."""
        in_order = [blocks.to_input_order(values, 0, 2).transpose(0, 1) for values in (importance, starts)]
        in_order[0].diagonal(dim1=1, dim2=2).fill_(float("nan"))
        self._documents[layer] = (in_order[0], in_order[1])

    def record_suffix(self, layer: int, found: SuffixFound) -> None:
        """What the next tokens of the suffix have found; put in order once all is there."""
        self._suffix[layer].append(found)

    def record_continuation(
        self,
        layer: int,
        first: int,
        query: Tensor,
        keys: Tensor,
        scoring: AttentionParams,
        *,
        stored: StoredKeys,
        bias: Tensor | None,
        part: tuple[int, int],
    ) -> None:
        """Attention of queries (H, Q, d) from `first` on over the first K of the stored keys, (G, K, d): by
        document of those in the suffix, and token by token where it was asked for. part: see DecodeOutput."""
        if self.request.token_ranges:
            own_query, own_keys, index = _part(query, part), _part(keys, part), stored.index[: keys.shape[1]]
            self.record_asked(layer, first, own_query, own_keys, scoring, key_index=index, bias=bias)
        before = max(0, stored.plan.layout.documents_end - first)
        continued = self._continued.setdefault(layer, DecodeOutput(scoring, stored, bias, keys, part, []))
        continued.keys, continued.part = keys, part
        continued.queries.append((query[:, before:].clone() if before else query, part))

    def record_asked(
        self,
        layer: int,
        first: int,
        query: Tensor,
        keys: Tensor,
        scoring: AttentionParams,
        *,
        key_index: Tensor,
        bias: Tensor | None = None,
    ) -> None:
        """Token-level weights asked for, of queries (H, Q, d) from `first` on, the last of their keys.

        keys: (G, K, d) or (H, K, d). key_index: (K,), or (H, K) where heads lay keys out on their own.
        """
        for asked, rows in self._asked(layer, first, query.shape[1]):
            head = asked.head // (query.shape[0] // keys.shape[0])
            own = query[asked.head : asked.head + 1]
            mask = tail_mask(own, keys.shape[1], bias)
            weights = attention_weights(own, keys[head : head + 1], scoring, mask)[0, rows]
            index = key_index if key_index.dim() == 1 else key_index[head]
            self._tokens[asked].append((first + rows.start, weights, index))

    def record_weights(
        self, layer: int, first: int, weights: Tensor, heads: slice, key_index: Tensor
    ) -> None:
        """Token-level weights asked for, out of those (..., Q, K) that attention has computed.

        first: the first query. heads: those of this row. key_index: (K or more,), physical index of each key.
        """
        for asked, rows in self._asked(layer, first, weights.shape[1]):
            index = key_index[: weights.shape[-1]]
            self._tokens[asked].append((first + rows.start, weights[heads][asked.head, rows], index))

    def _asked(self, layer: int, first: int, count: int) -> Iterator[tuple[TokenRange, slice]]:
        """The ranges asked for that meet queries first .. first + count - 1, and which of these they are."""
        for asked in self.request.token_ranges:
            start, stop = max(asked.first, first), min(asked.stop, first + count)
            if asked.layer == layer and start < stop:
                yield asked, slice(start - first, stop - first)

    def record_alternatives(self, logprobs: Tensor) -> None:
        """logprobs: (V,), of the next generated token."""
        top = logprobs.topk(min(self.request.alternatives, len(logprobs)))
        pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        self.alternatives.append(tuple(Alternative(token, value) for token, value in pairs))

    def finish(self, plan: AttentionPlan, num_decoded: int) -> Trace:
        """The trace of a run in which num_decoded tokens were fed back after the prompt."""
        importance = suffix_importance = None
        starts: NDArray[Any]
        suffix_starts: NDArray[Any]
        if plan.document_starts is not None and plan.suffix_document_starts is not None:
            rows = plan.layout.suffix_length + num_decoded
            starts = plan.document_starts[None, None]
            suffix_starts = np.tile(plan.suffix_document_starts, (1, 1, rows, 1))
        else:
            importance, starts = _stack([self._documents[layer] for layer in sorted(self._documents)])
            suffix_importance, suffix_starts = _stack(
                [
                    (self._of_suffix(layer, "importance"), self._of_suffix(layer, "starts"))
                    for layer in sorted(self._suffix)
                ]
            )
        shares = {layer: self._of_suffix(layer, "shares", first=1) for layer in self._suffix}
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
                self._token_weights(asked, plan, num_decoded) for asked in self.request.token_ranges
            ),
            alternatives=tuple(self.alternatives),
        )

    def _of_suffix(
        self, layer: int, name: Literal["importance", "starts", "shares"], first: int = 0
    ) -> Tensor:
        """What all tokens of the suffix have found, documents in input order; first: see to_input_order."""
        found = self._suffix[layer]
        values = torch.cat([getattr(one, name)[one.heads] for one in found], dim=1)
        return found[0].blocks.to_input_order(values, 2, first=first)

    def _token_weights(self, asked: TokenRange, plan: AttentionPlan, num_decoded: int) -> TokenWeights:
        keys = np.arange(plan.layout.num_tokens + num_decoded)
        table = np.full((asked.stop - asked.first, len(keys)), np.nan, dtype=np.float32)
        for first, weights, key_index in self._tokens[asked]:
            queries = np.arange(first, first + len(weights))
            dense = torch.zeros(len(queries), len(keys))
            dense.index_add_(1, key_index.cpu(), weights.float().cpu())
            sees = who_sees_whom(plan, queries, keys)
            table[queries - asked.first] = np.where(sees, dense.numpy(), np.nan)
        return TokenWeights(asked, table)


def _stack(layers: Sequence[tuple[Tensor, Tensor]]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Importances and starts of every layer as one pair of arrays with the layer first."""
    importances, starts = zip(*layers, strict=True)
    stacked = torch.stack([part.cpu() for part in importances]).float()
    return stacked.numpy(), torch.stack([part.cpu() for part in starts]).numpy()
