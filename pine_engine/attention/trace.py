"""Trace of a run: document-level summaries, and token-level attention weights on request.

The records contain numpy arrays and need no torch. `recorder.py` fills them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pine_engine.errors import InputError
from pine_engine.input_validation import as_int, as_tuple_of
from pine_engine.prompts.layout import TokenLayout
from pine_engine.reprs import short_repr


@dataclass(frozen=True)
class TokenRange:
    """Queries first .. stop - 1 of one layer and query head.

    Attributes:
        layer: Layer, counted from 0.
        head: Query head, counted from 0.
        first: First query, counted from the start of the prompt.
        stop: Query after the last one.
    """

    layer: int
    head: int
    first: int
    stop: int

    def __post_init__(self) -> None:
        """Convert integers of other libraries; raise InputError for other values."""
        for name in ("layer", "head", "first", "stop"):
            object.__setattr__(self, name, as_int(getattr(self, name), f"{name} of a token range"))

    def overlap(self, first: int, stop: int) -> slice | None:
        """Return the part of queries first .. stop - 1 in this range, counted from `first`; None if empty.

        Args:
            first: First query.
            stop: Query after the last one.
        """
        start, end = max(self.first, first), min(self.stop, stop)
        return slice(start - first, end - first) if start < end else None


@dataclass(frozen=True)
class TraceConfig:
    """Configuration of a trace.

    Attributes:
        token_ranges: Queries whose attention weights are recorded token by token.
        alternatives: Number of next token candidates recorded for each generated token.
    """

    token_ranges: tuple[TokenRange, ...] = ()
    alternatives: int = 5

    if TYPE_CHECKING:

        def __init__(
            self, token_ranges: TokenRange | Iterable[TokenRange] = (), alternatives: int = 5
        ) -> None: ...

    def __post_init__(self) -> None:
        """Convert a single range to a tuple; raise InputError for other values."""
        advice = "give TokenRange(layer, head, first, stop), one or several"
        ranges = as_tuple_of(self.token_ranges, TokenRange, "token range", advice, least=0)
        object.__setattr__(self, "token_ranges", ranges)
        object.__setattr__(self, "alternatives", as_int(self.alternatives, "number of alternatives"))

    def check(self, num_layers: int, num_heads: int, num_tokens: int) -> None:
        """Raise InputError if a range is outside the model or the tokens.

        Args:
            num_layers: Layers of the model.
            num_heads: Query heads of a layer.
            num_tokens: Maximum length of prompt and answer.
        """
        for one in self.token_ranges:
            if not 0 <= one.layer < num_layers or not 0 <= one.head < num_heads:
                limits = f"layers 0 to {num_layers - 1} and heads 0 to {num_heads - 1}"
                raise InputError(f"token range has layer {one.layer}, head {one.head}, expected {limits}")
            if not 0 <= one.first < one.stop <= num_tokens:
                queries = f"queries {one.first} to {one.stop - 1}"
                raise InputError(f"token range has {queries}, expected some of 0 to {num_tokens - 1}")
        if self.alternatives < 0:
            raise InputError(f"Invalid number of alternatives: got {self.alternatives}, expected 0 or more.")


@dataclass(frozen=True)
class TokenWeights:
    """Attention weights of a token range.

    Attributes:
        queries: Range of the queries.
        weights: float32 (Q, K), keys in physical order, NaN where masked. Queries that were not fed to the
            model, such as tokens after the end of an answer, have NaN only.
    """

    queries: TokenRange
    weights: NDArray[np.float32]

    __repr__ = short_repr


@dataclass(frozen=True)
class Alternative:
    """Candidate for the next token, with its log-probability in nats."""

    token_id: int
    logprob: float


@dataclass(frozen=True)
class Trace:
    """Positions, importance and attention of the documents in one run.

    Axes: A layers, H query heads, D documents in input order, Q suffix tokens (those of the prompt, then the
    decoded tokens fed back to the model). If starts are equal in all layers and heads, A and H are 1.

    Attributes:
        method: Name of the method.
        layout: Token layout of the prompt.
        document_starts: int32 (A, H, D, D), position of document b's first token as seen from document a; -1
            if a does not attend to b, and for methods without positions or with real-valued ones.
        suffix_starts: int32 (A, H, Q, D), position of each document's first token as seen from suffix tokens;
            -1 for methods without positions or with real-valued ones.
        document_importance: float32 (A, H, D, D), sum of softmax weights over a's tokens divided by b's
            length in tokens, NaN on the diagonal; None for methods without ranking.
        suffix_importance: float32 (A, H, Q, D), the same for each suffix token; None without ranking.
        suffix_attention: float32 (A, H, Q, 1 + D + 1), attention of each suffix token to the prefix, each
            document, and the suffix; sums to 1. None if no layer ran.
        token_weights: Attention weights of the requested token ranges.
        alternatives: Candidates for each generated token, the most likely first.
        document_weights: (D,), weight that a first pass gave to each document; they sum to 1. None without.
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
    document_weights: NDArray[np.float64] | None = None

    __repr__ = short_repr

    def in_order_of(self, layout: TokenLayout) -> "Trace":
        """Return the trace with the documents in the order of a prompt, of which this one is a reordering.

        Args:
            layout: Prompt with the same documents.
        """
        if layout == self.layout:
            return self
        remaining = list(enumerate(self.layout.documents))
        slots = []
        for ids in layout.documents:
            found = next(one for one in remaining if one[1] == ids)
            remaining.remove(found)
            slots.append(found[0])
        segments = [0, *(1 + slot for slot in slots), -1]
        attention = self.suffix_attention
        return replace(
            self,
            layout=layout,
            document_starts=self.document_starts[:, :, slots][:, :, :, slots],
            suffix_starts=self.suffix_starts[..., slots],
            suffix_attention=None if attention is None else attention[..., segments],
        )
