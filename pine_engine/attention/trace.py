"""Trace of a run: document-level summaries, and token-level attention weights on request.

The records contain numpy arrays and need no torch. `recorder.py` fills them.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pine_engine.errors import InputError
from pine_engine.input_validation import as_int, as_tuple_of
from pine_engine.prompts.layout import TokenLayout
from pine_engine.reprs import short_repr


@dataclass(frozen=True)
class TokenRange:
    """Queries first .. stop - 1 of one layer and query head."""

    layer: int  # counted from 0
    head: int  # query head, counted from 0
    first: int  # first query, counted from the start of the prompt
    stop: int  # query after the last one

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
    """Configuration of a trace."""

    token_ranges: tuple[TokenRange, ...] = ()  # queries whose attention is recorded token by token
    alternatives: int = 5  # number of next token candidates recorded for each generated token

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

    Queries that were not fed to the model, such as tokens after the end of an answer, have NaN only.
    """

    asked: TokenRange  # range of the queries
    weights: NDArray[np.float32]  # (Q, K), keys in physical order, NaN where masked

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
    decoded tokens fed back to the model). If starts are equal in all layers and heads, A and H are 1. Starts
    are -1 where document a does not attend to document b, and for methods without positions. Importance is
    the sum of softmax weights over a's tokens, or of one suffix token, divided by b's length in tokens; None
    for methods without ranking.
    """

    method: str
    layout: TokenLayout
    document_starts: NDArray[np.int32]  # (A, H, D, D), position of b's first token as seen from a
    suffix_starts: NDArray[np.int32]  # (A, H, Q, D), position of b's first token as seen from suffix tokens
    document_importance: NDArray[np.float32] | None = None  # (A, H, D, D), NaN on the diagonal
    suffix_importance: NDArray[np.float32] | None = None  # (A, H, Q, D)
    # (A, H, Q, 1 + D + 1), of each suffix token to prefix, documents and suffix, sum 1; None if no layer ran.
    suffix_attention: NDArray[np.float32] | None = None
    token_weights: tuple[TokenWeights, ...] = ()  # of the requested token ranges
    alternatives: tuple[tuple[Alternative, ...], ...] = ()  # of each generated token, the most likely first

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
