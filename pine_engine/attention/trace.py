"""What a run records for the pictures: document-level summaries, and tokens where they were asked for."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pine_engine.attention.blocks import BlockLayout
from pine_engine.errors import InputError
from pine_engine.given import one_or_more, whole_number
from pine_engine.methods.plan import MASKED, AttentionPlan, who_sees_whom
from pine_engine.prompts.layout import TokenLayout
from pine_engine.shown import short_repr


@dataclass(frozen=True)
class TokenRange:
    """Queries first .. stop - 1 of one layer and query head, counted from the start of the prompt."""

    layer: int
    head: int
    first: int
    stop: int

    def __post_init__(self) -> None:
        """Raises InputError for what is no whole number."""
        for name in ("layer", "head", "first", "stop"):
            number = whole_number(getattr(self, name), f"{name} of a token range")
            object.__setattr__(self, name, number)


@dataclass(frozen=True)
class TraceRequest:
    """What a trace holds beside its document-level summaries.

    token_ranges: where attention weights are kept token by token. alternatives: how many of the most
    likely tokens are kept for each generated one.
    """

    token_ranges: tuple[TokenRange, ...] = ()
    alternatives: int = 5

    def __post_init__(self) -> None:
        """A single range is made a tuple. Raises InputError for what are no ranges or is no number."""
        advice = "give TokenRange(layer, head, first, stop), one or several"
        ranges = one_or_more(self.token_ranges, TokenRange, "token range", advice, least=0)
        object.__setattr__(self, "token_ranges", ranges)
        object.__setattr__(self, "alternatives", whole_number(self.alternatives, "number of alternatives"))

    def check(self, num_layers: int, num_heads: int, num_tokens: int) -> None:
        """Raises InputError if a range lies outside the model or the prompt with its answer."""
        for asked in self.token_ranges:
            if not 0 <= asked.layer < num_layers or not 0 <= asked.head < num_heads:
                raise InputError(
                    f"weights were asked for layer {asked.layer}, head {asked.head}, but the model has "
                    f"{num_layers} layers and {num_heads} heads, counted from 0"
                )
            if not 0 <= asked.first < asked.stop <= num_tokens:
                raise InputError(
                    f"weights were asked for queries {asked.first} to {asked.stop - 1}, but prompt and "
                    f"answer have {num_tokens} tokens, counted from 0; give a range inside them"
                )
        if self.alternatives < 0:
            raise InputError(f"{self.alternatives} alternatives were asked for; give 0 or more")


@dataclass(frozen=True)
class TokenWeights:
    """Attention weights of the queries asked for: float32 (Q, K), keys in physical order, NaN where masked.

    Queries that were never fed to the model, such as those behind the end of an answer, are NaN rows.
    """

    asked: TokenRange
    weights: NDArray[np.float32]

    __repr__ = short_repr


@dataclass(frozen=True)
class Alternative:
    """A token that could have come next: its log-probability in nats."""

    token_id: int
    logprob: float


@dataclass(frozen=True)
class Trace:
    """Where every query of one run saw every document, how important it found it, and what it read.

    Axes: A layers, H query heads, D documents in input order, Q suffix tokens (the prompt's, then
    the decoded ones that were fed back). Methods whose starts do not depend on the layer or head
    have length 1 there.

    document_starts: int32 (A, H, D, D), position of document b's first token as seen from document
        a's tokens; -1 where document a does not see document b.
    suffix_starts: int32 (A, H, Q, D), the same as seen from each suffix token.
    document_importance: float32 (A, H, D, D), sums of softmax weights over a's tokens divided by b's
        length in tokens, the diagonal NaN; None for methods that do not rank.
    suffix_importance: float32 (A, H, Q, D), the same for each suffix token; None as above.
    suffix_attention: float32 (A, H, Q, 1 + D + 1), share of each suffix token's attention that goes to the
        prefix, to each document, and to the suffix; sums to 1. None if no layer was read.
    token_weights: what was asked for, in that order.
    alternatives: for each generated token the most likely ones, the most likely first.
    """

    method: str
    layout: TokenLayout
    document_starts: NDArray[np.int32]
    suffix_starts: NDArray[np.int32]
    document_importance: NDArray[np.float32] | None = None
    suffix_importance: NDArray[np.float32] | None = None
    suffix_attention: NDArray[np.float32] | None = None
    token_weights: tuple[TokenWeights, ...] = ()
    alternatives: tuple[tuple[Alternative, ...], ...] = ()

    __repr__ = short_repr


class TraceRecorder:
    """Collects what the layers of one run report; documents arrive in block order."""

    def __init__(self, request: TraceRequest | None = None) -> None:
        self.request = request or TraceRequest()
        self.alternatives: list[tuple[Alternative, ...]] = []
        self._documents: dict[int, tuple[Tensor, Tensor]] = {}
        self._suffix: dict[int, list[tuple[Tensor, Tensor]]] = defaultdict(list)
        self._attention: dict[int, list[Tensor]] = defaultdict(list)
        self._tokens: dict[TokenRange, list[tuple[int, Tensor, Tensor]]] = defaultdict(list)

    def record_documents(self, layer: int, blocks: BlockLayout, importance: Tensor, starts: Tensor) -> None:
        """importance and starts: (D, H, D), query document first."""
        in_order = [blocks.to_input_order(values, 0, 2).transpose(0, 1) for values in (importance, starts)]
        in_order[0].diagonal(dim1=1, dim2=2).fill_(float("nan"))
        self._documents[layer] = (in_order[0], in_order[1])

    def record_suffix(self, layer: int, blocks: BlockLayout, importance: Tensor, starts: Tensor) -> None:
        """importance and starts: (H, Q, D), the next Q suffix tokens."""
        self._suffix[layer].append((blocks.to_input_order(importance, 2), blocks.to_input_order(starts, 2)))

    def record_attention(self, layer: int, shares: Tensor) -> None:
        """shares: (H, Q, 1 + D + 1) of the next Q suffix tokens, documents in input order."""
        self._attention[layer].append(shares)

    def asked(self, layer: int, first: int, count: int) -> Iterator[tuple[TokenRange, slice]]:
        """The ranges asked for that meet queries first .. first + count - 1, and which of these they are."""
        for asked in self.request.token_ranges:
            start, stop = max(asked.first, first), min(asked.stop, first + count)
            if asked.layer == layer and start < stop:
                yield asked, slice(start - first, stop - first)

    def record_tokens(self, asked: TokenRange, first: int, weights: Tensor, key_index: Tensor) -> None:
        """weights: (Q, K) of queries from `first` on. key_index: (K,), physical index of each key."""
        self._tokens[asked].append((first, weights, key_index))

    def record_alternatives(self, logprobs: Tensor) -> None:
        """logprobs: (V,), of the next generated token."""
        top = logprobs.topk(min(self.request.alternatives, len(logprobs)))
        pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        self.alternatives.append(tuple(Alternative(token, value) for token, value in pairs))

    def finish(self, plan: AttentionPlan, num_decoded: int) -> Trace:
        """The trace of a run in which num_decoded tokens were fed back after the prompt."""
        importance: Tensor | None = None
        suffix_importance: Tensor | None = None
        if plan.document_starts is not None and plan.suffix_document_starts is not None:
            rows = plan.layout.suffix_length + num_decoded
            starts = plan.document_starts.where(plan.visible, MASKED)[None, None]
            suffix_starts = plan.suffix_document_starts.expand(1, 1, rows, -1)
        else:
            importance, starts = _stack([self._documents[layer] for layer in sorted(self._documents)])
            starts = starts.where(plan.visible.to(starts.device), MASKED)
            suffix_importance, suffix_starts = _stack(
                [
                    (torch.cat([part[0] for part in parts], 1), torch.cat([part[1] for part in parts], 1))
                    for _, parts in sorted(self._suffix.items())
                ]
            )
        attention = [torch.cat(parts, dim=1) for _, parts in sorted(self._attention.items())]
        return Trace(
            method=plan.method.name,
            layout=plan.layout,
            document_starts=_int32(starts),
            suffix_starts=_int32(suffix_starts),
            document_importance=None if importance is None else _float32(importance),
            suffix_importance=None if suffix_importance is None else _float32(suffix_importance),
            suffix_attention=_float32(torch.stack(_on_cpu(attention))) if attention else None,
            token_weights=tuple(
                self._token_weights(asked, plan, num_decoded) for asked in self.request.token_ranges
            ),
            alternatives=tuple(self.alternatives),
        )

    def _token_weights(self, asked: TokenRange, plan: AttentionPlan, num_decoded: int) -> TokenWeights:
        sees = who_sees_whom(plan, num_decoded)
        table = torch.full((asked.stop - asked.first, len(sees)), float("nan"))
        for first, weights, key_index in self._tokens[asked]:
            rows = slice(first - asked.first, first - asked.first + len(weights))
            dense = torch.zeros(len(weights), len(sees))
            dense.index_add_(1, key_index.cpu(), weights.float().cpu())
            table[rows] = dense.masked_fill_(~sees[first : first + len(weights)], float("nan"))
        return TokenWeights(asked, table.numpy())


def _stack(layers: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Pairs of every layer as one pair of tensors with the layer first."""
    left, right = zip(*layers, strict=True)
    return torch.stack(_on_cpu(left)), torch.stack(_on_cpu(right))


def _on_cpu(parts: Sequence[Tensor]) -> list[Tensor]:
    return [part.cpu() for part in parts]


def _int32(values: Tensor) -> NDArray[np.int32]:
    return values.to(torch.int32).cpu().numpy()


def _float32(values: Tensor) -> NDArray[np.float32]:
    return values.float().cpu().numpy()
