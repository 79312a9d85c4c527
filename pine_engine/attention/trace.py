"""What a run leaves for the pictures: document-level summaries, and tokens where they were asked for.

The records alone, of numpy arrays; `recorder.py` fills them.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pine_engine.errors import InputError
from pine_engine.input_validation import as_int, as_tuple_of
from pine_engine.prompts.layout import TokenLayout
from pine_engine.reprs import short_repr


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
            number = as_int(getattr(self, name), f"{name} of a token range")
            object.__setattr__(self, name, number)


@dataclass(frozen=True)
class TraceConfig:
    """What a trace holds beside its document-level summaries.

    token_ranges: where attention weights are kept token by token. alternatives: how many of the most
    likely tokens are kept for each generated one.
    """

    token_ranges: tuple[TokenRange, ...] = ()
    alternatives: int = 5

    def __post_init__(self) -> None:
        """A single range is made a tuple. Raises InputError for what are no ranges or is no number."""
        advice = "give TokenRange(layer, head, first, stop), one or several"
        ranges = as_tuple_of(self.token_ranges, TokenRange, "token range", advice, least=0)
        object.__setattr__(self, "token_ranges", ranges)
        object.__setattr__(self, "alternatives", as_int(self.alternatives, "number of alternatives"))

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
