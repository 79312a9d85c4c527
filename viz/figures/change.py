"""Two answers compared, token by token and word by word; change_answers.py and change_bars.py draw it."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from viz.drawing.identity import PREFIX, SUFFIX, Segment, document_segment
from viz.drawing.numbers import format_percent
from viz.drawing.tokens import shorten, visible_text

if TYPE_CHECKING:
    from pine_engine.engine.events import RunResult

FloatArray = NDArray[np.float32]

TOKEN_WIDTH = 24
"""Longest token, in characters, that is written in full."""

# A word or a sign, with the blanks behind it. Chinese and Japanese put no blanks between words: sign by sign.
_WORD = re.compile(r"(?:[^\W\u2e80-\u9fff]+|\S)\s*|^\s+")


@dataclass(frozen=True)
class AnswerTokens:
    """One answer, token by token.

    label: whose answer it is, such as "PINE". text: all of it; a character may span tokens. token_ids,
    tokens, logprobs: each generated token, its text and its log-probability in nats. alternatives: for each
    of them the most likely ones with their log-probabilities, the most likely first. attention: float32
    (tokens, 1 + D + 1), share of the attention paid to the prefix, each document and the suffix while the
    token was written, mean over layers and heads. documents: D segments in the order of the input.
    """

    label: str
    text: str
    token_ids: tuple[int, ...]
    tokens: tuple[str, ...]
    logprobs: tuple[float, ...]
    alternatives: tuple[tuple[tuple[str, float], ...], ...]
    attention: FloatArray
    documents: tuple[Segment, ...]

    def __post_init__(self) -> None:
        assert len(self.token_ids) == len(self.tokens) == len(self.logprobs) == len(self.alternatives)
        assert self.attention.shape == (len(self.tokens), len(self.documents) + 2)

    def probability(self, step: int) -> float:
        """Probability of one token, from 0, when it was written."""
        return math.exp(self.logprobs[step])

    def written(self, step: int) -> str:
        """What the answer has at a step, from 0, in words."""
        if step >= len(self.tokens):
            return f"{self.label} had ended"
        return f"{self.label} writes {quoted(self.tokens[step])} ({format_percent(self.probability(step))})"


@dataclass(frozen=True)
class WordRun:
    """Neighbouring words of an answer, each with the blanks behind it.

    changed: the other answer does not have them here.
    """

    words: tuple[str, ...]
    changed: bool


def answer_tokens(
    decode: Callable[[Sequence[int]], list[str]],
    result: "RunResult",
    method: str,
    order: Sequence[int],
    label: str,
) -> AnswerTokens:
    """Return one method's answer, token by token.

    Args:
        decode: Text of each token, `Engine.decode_tokens`.
        result: Result of a run with `trace=True`.
        method: Name of the method.
        order: Document, as entered, in each slot.
        label: Name of the answer in figures.

    Returns:
        The answer as `plot_next_token_candidates` and `plot_answer_attention` take it.
    """
    answer, trace = result.answers[method], result.traces[method]
    assert trace.suffix_attention is not None
    # The query that writes a token is the token before it; for the first one the last of the prompt.
    first = result.layout.suffix_length - 1
    written = trace.suffix_attention[:, :, first : first + len(answer.token_ids)]
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
        attention=written.mean(axis=(0, 1), dtype=np.float64).astype(np.float32),
        documents=tuple(document_segment(identity, slot) for slot, identity in enumerate(order)),
    )


def quoted(text: str) -> str:
    """A token in a sentence: blanks made visible, cut if it is long."""
    return f"\u201c{shorten(visible_text(text), TOKEN_WIDTH)}\u201d"


def is_reordered(answers: Sequence[AnswerTokens]) -> bool:
    """True if the answers had the documents in different orders."""
    return len({answer.documents for answer in answers}) > 1


def word_diff(left: str, right: str) -> tuple[tuple[WordRun, ...], tuple[WordRun, ...]]:
    """Both texts as runs of words that they share and words that only one has; blanks do not count."""
    ours, theirs = _WORD.findall(left), _WORD.findall(right)
    matcher = SequenceMatcher(
        None, [word.strip() for word in ours], [word.strip() for word in theirs], autojunk=False
    )
    runs: tuple[list[WordRun], list[WordRun]] = ([], [])
    for kind, first, stop, other_first, other_stop in matcher.get_opcodes():
        for side, words in zip(runs, (ours[first:stop], theirs[other_first:other_stop]), strict=True):
            if words:
                side.append(WordRun(tuple(words), kind != "equal"))
    return tuple(runs[0]), tuple(runs[1])


def first_difference(left: AnswerTokens, right: AnswerTokens) -> int | None:
    """The first token, from 0, in which the answers differ, one may have ended there; None if in none."""
    if left.token_ids == right.token_ids:
        return None
    pairs = enumerate(zip(left.token_ids, right.token_ids, strict=False))
    shorter = min(len(left.token_ids), len(right.token_ids))
    return next((index for index, (ours, theirs) in pairs if ours != theirs), shorter)


def probability_gaps(left: AnswerTokens, right: AnswerTokens) -> FloatArray:
    """|Difference| of the log-probabilities of two equal answers, float32 (tokens,), in nats."""
    assert left.token_ids == right.token_ids
    return np.abs(np.subtract(left.logprobs, right.logprobs)).astype(np.float32)


def telling_step(left: AnswerTokens, right: AnswerTokens) -> int:
    """The first token, from 0, in which the answers differ; of equal ones the one that differs most in its
    probability."""
    differs = first_difference(left, right)
    if differs is not None:
        return differs
    return int(probability_gaps(left, right).argmax()) if left.tokens else 0


def shares(attention: FloatArray, *, with_prefix: bool) -> FloatArray:
    """Attention (..., 1 + D + 1) as it is, or without its first column as shares of what remains.

    Returns float32 (..., 1 + D + 1) or (..., D + 1); a row with nothing but the prefix becomes zeros.
    """
    if with_prefix:
        return attention
    rest = attention[..., 1:]
    sums = rest.sum(axis=-1, keepdims=True, dtype=np.float64)
    return np.asarray(rest / np.where(sums == 0, 1, sums), dtype=np.float32)


def attention_by_part(
    answer: AnswerTokens, step: int | None = None, *, with_prefix: bool
) -> dict[Segment, float]:
    """Share of attention of each part of the prompt while a token, from 0, was written; None for their mean.

    Parts are without their slots. {} if the answer has no such token.
    """
    rows = answer.attention[slice(None) if step is None else slice(step, step + 1)]
    if not len(rows):
        return {}
    values = shares(rows, with_prefix=with_prefix).mean(axis=0, dtype=np.float64).astype(np.float32)
    return dict(zip(parts_of(answer, with_prefix=with_prefix), values.tolist(), strict=True))


def parts_of(answer: AnswerTokens, *, with_prefix: bool) -> list[Segment]:
    """The parts of the prompt in the order of the input, without their slots, which differ between orders."""
    documents = [Segment(part.role, part.document) for part in answer.documents]
    return [*([PREFIX] if with_prefix else []), *documents, SUFFIX]


def likely_tokens(answer: AnswerTokens, step: int) -> dict[str, float]:
    """Log-probabilities of the token written at a step, from 0, and of its alternatives; {} after the end.

    Tokens of the same text, such as parts of a character, count as the likelier one.
    """
    if step >= len(answer.tokens):
        return {}
    tokens = {answer.tokens[step]: answer.logprobs[step]}
    for text, logprob in answer.alternatives[step]:
        tokens.setdefault(text, logprob)
    return tokens
