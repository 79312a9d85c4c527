"""Answer with the texts, probabilities and attention of its tokens, and the comparison of two answers."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

import pine_engine as pine
from viz.drawing.identity import Segment
from viz.drawing.text import format_percent, shorten, visible_text
from viz.figures.frame import FloatArray, answer_queries, document_segments
from viz.figures.positions import IntArray, at_place

MAX_TOKEN_CHARACTERS = 24  # of a token in sentences and rows


@dataclass(frozen=True)
class HeadAttention:
    """View of one head on the documents, as entered, while it decodes each token of an answer.

    Attributes:
        layer: Layer, from 0.
        head: Query head, from 0.
        shares: float32 (tokens, D), attention on each document.
        starts: int32 (tokens, D), first position of each document; -1 for methods without positions.
        importance: float32 (tokens, D), importance of each document; None for methods that rank none.
    """

    layer: int
    head: int
    shares: FloatArray
    starts: IntArray
    importance: FloatArray | None = None


def head_attention(
    trace: "pine.Trace", num_tokens: int, order: Sequence[int], layer: int, head: int
) -> HeadAttention | None:
    """Return the view of a head on the documents; None if no attention was recorded.

    `order` has the document, as entered, in each slot.
    """
    if trace.suffix_attention is None:
        return None
    queries, slots = answer_queries(trace.layout, num_tokens), np.argsort(order)
    importance = trace.suffix_importance
    return HeadAttention(
        layer,
        head,
        shares=trace.suffix_attention[layer, head, queries, 1:-1][:, slots],
        starts=at_place(trace.suffix_starts, layer, head)[queries][:, slots],
        importance=None if importance is None else importance[layer, head, queries][:, slots],
    )


@dataclass(frozen=True)
class AnswerTokens:
    """Answer of one method, token by token."""

    label: str  # in figures, such as "PINE"
    text: str  # whole answer; a character may span tokens
    token_ids: tuple[int, ...]
    tokens: tuple[str, ...]
    logprobs: tuple[float, ...]  # in nats
    alternatives: tuple[tuple[tuple[str, float], ...], ...]  # most likely tokens of each step, in nats
    # float32 (tokens, 1 + D + 1), shares of prefix, documents and suffix, mean over layers and heads; NaN if
    # not recorded, as for a model that runs as it is
    attention: FloatArray
    documents: tuple[Segment, ...]  # D, in input order
    head: HeadAttention | None = None  # attention of the head that decides most; None if not recorded

    def __post_init__(self) -> None:
        assert len(self.token_ids) == len(self.tokens) == len(self.logprobs) == len(self.alternatives)
        assert self.attention.shape == (len(self.tokens), len(self.documents) + 2)

    @property
    def has_attention(self) -> bool:
        """True if attention was recorded."""
        return not np.isnan(self.attention).any()

    def probability(self, step: int) -> float:
        """Return the probability of the token at a step, from 0."""
        return math.exp(self.logprobs[step])

    def describe_step(self, step: int) -> str:
        """Describe the token at a step, from 0."""
        if step >= len(self.tokens):
            return f"{self.label}: answer already ended"
        return f"{self.label} {quoted(self.tokens[step])} ({format_percent(self.probability(step))})"


def answer_tokens(
    decode: Callable[[Sequence[int]], list[str]],
    result: "pine.RunResult",
    method: str,
    order: Sequence[int],
    label: str,
    head: tuple[int, int] = (0, 0),
) -> AnswerTokens:
    """Return one method's answer of a traced run.

    `order` has the document, as entered, in each slot. `head` is that of `AnswerTokens.head`.
    """
    answer, trace = result.answers[method], result.traces[method]
    attention: FloatArray = np.full((len(answer.token_ids), len(order) + 2), np.nan, dtype=np.float32)
    if trace.suffix_attention is not None:
        of_answer = trace.suffix_attention[:, :, answer_queries(result.layout, len(answer.token_ids))]
        attention = of_answer.mean(axis=(0, 1), dtype=np.float64).astype(np.float32)
    distinct = sorted({*answer.token_ids, *(other.token_id for step in trace.alternatives for other in step)})
    texts = dict(zip(distinct, decode(distinct), strict=True))
    return AnswerTokens(
        label=label,
        text=answer.text,
        token_ids=answer.token_ids,
        tokens=tuple(texts[token] for token in answer.token_ids),
        logprobs=answer.logprobs,
        alternatives=tuple(
            tuple((texts[other.token_id], other.logprob) for other in step) for step in trace.alternatives
        ),
        attention=attention,
        documents=document_segments(len(order), order),
        head=head_attention(trace, len(answer.token_ids), order, *head),
    )


def quoted(text: str) -> str:
    """Quote a token in a sentence: blanks made visible, shortened; not ASCII: isolated."""
    shown = shorten(visible_text(text), MAX_TOKEN_CHARACTERS)
    return f"\u201c{shown}\u201d" if text.isascii() else f"\u201c\u2068{shown}\u2069\u201d"


def is_reordered(answers: Sequence[AnswerTokens]) -> bool:
    """Check whether the answers had the documents in different orders."""
    return len({answer.documents for answer in answers}) > 1


def first_difference(left: AnswerTokens, right: AnswerTokens) -> int | None:
    """Return the first step, from 0, at which the tokens differ or one answer has ended; None if equal."""
    pairs = zip_longest(left.token_ids, right.token_ids)
    return next((step for step, (one, other) in enumerate(pairs) if one != other), None)


def probability_gaps(left: AnswerTokens, right: AnswerTokens) -> FloatArray:
    """Return the absolute differences of the log-probabilities of two equal answers, (tokens,), in nats."""
    assert left.token_ids == right.token_ids
    return np.abs(np.subtract(left.logprobs, right.logprobs)).astype(np.float32)


def comparison_step(left: AnswerTokens, right: AnswerTokens) -> int:
    """Return the first step, from 0, that differs; for equal answers that with the largest gap."""
    if (differs := first_difference(left, right)) is not None:
        return differs
    return int(probability_gaps(left, right).argmax()) if left.tokens else 0
