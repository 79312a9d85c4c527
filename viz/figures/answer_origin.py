"""Decisive word of an answer, and the attention of one head on each document while it is decoded."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Annotated

import numpy as np
from pydantic import FailFast

import pine_engine as pine
from pine_engine.prompts.answer_words import fold
from pine_engine.prompts.attribution import contains_word, content_words
from viz.figures.answer_tokens import AnswerTokens
from viz.figures.frame import answer_queries

MIN_SHARE = 0.5
"""Share of attention on one document from which a word comes from it."""

_WORD = re.compile(r"\w(?:\S*\w)?")
_BYTE = re.compile(rb"\\x([0-9a-f]{2})")  # of a token that is a part of a character


@dataclass(frozen=True)
class AnswerOrigin:
    """Decisive word of an answer, and the attention of one head while its decisive token is decoded.

    The decisive word is the first content word that some documents have, but not all of them. Its
    decisive token is the first one with which the word is no longer the beginning of a word of each
    document, such as "9" of "1913" if another document has "1660". Without such a word, the decisive token
    is that with the largest share of attention on one document. The head is a given one if this share is at
    least MIN_SHARE there, else the one with the largest share.

    Attributes:
        token: Text of the decisive token.
        step: Its index in the answer, from 0.
        start: First character (code point) of the word in the text of the answer.
        stop: Character after its last one.
        document: Document, as entered, with the largest share.
        shares: Attention on each document, as entered, with four digits. The rest, up to 1, is on prefix and
            suffix.
        layer: Layer, from 0.
        head: Query head, from 0.
    """

    token: str
    step: int
    start: int
    stop: int
    document: int
    shares: Annotated[tuple[float, ...], FailFast()]  # also read from links
    layer: int
    head: int


def answer_origin(
    answer: AnswerTokens,
    trace: "pine.Trace",
    *,
    order: Sequence[int],
    head: tuple[int, int],
    question: str,
    documents: Sequence[str],
) -> AnswerOrigin | None:
    """Return the decisive word of an answer; None without attention or without a word.

    `order` has the document, as entered, in each slot. `head`, a layer and a query head, is preferred.
    """
    if trace.suffix_attention is None:
        return None
    queries = answer_queries(trace.layout, len(answer.tokens))
    shares = trace.suffix_attention[:, :, queries, 1:-1]
    spans = _token_spans(answer.text, answer.tokens)[: shares.shape[2]]
    word_of_step = _telling_token(answer.text, spans, question, documents) or _tokens_of_words(
        spans, [match.span() for match in _WORD.finditer(answer.text)]
    )
    if not word_of_step:
        return None
    steps = list(word_of_step)
    largest = shares[:, :, steps].max(axis=-1)  # (A, H, steps)
    layer, query_head, place = map(int, np.unravel_index(int(largest.argmax()), largest.shape))
    if largest[head].max() >= MIN_SHARE:
        (layer, query_head), place = head, int(largest[head].argmax())
    step = steps[place]
    start, stop = word_of_step[step]
    by_document = dict(zip(order, shares[layer, query_head, step].tolist(), strict=True))
    return AnswerOrigin(
        token=answer.tokens[step],
        step=step,
        start=start,
        stop=stop,
        document=max(by_document, key=by_document.__getitem__),
        shares=tuple(round(by_document[document], 4) for document in sorted(by_document)),
        layer=layer,
        head=query_head,
    )


def _telling_token(
    text: str, spans: Sequence[tuple[int, int]], question: str, documents: Sequence[str]
) -> dict[int, tuple[int, int]]:
    """Return the step of the first token that tells documents apart with its word; empty without one."""
    for start, stop in content_words(text, question, documents):
        if not 0 < sum(contains_word(one, text[start:stop]) for one in documents) < len(documents):
            continue
        for step in _tokens_of_words(spans, [(start, stop)]):
            beginning = fold(text[start : min(spans[step][1], stop)])
            if not all(re.search(rf"(?<!\w){re.escape(beginning)}", fold(one)) for one in documents):
                return {step: (start, stop)}
    return {}


def _tokens_of_words(
    spans: Sequence[tuple[int, int]], words: Sequence[tuple[int, int]]
) -> dict[int, tuple[int, int]]:
    """Return the word of each step whose token has a part of it; words and tokens are spans of one text."""
    return {
        step: word
        for step, (first, last) in enumerate(spans)
        for word in words
        if word[0] < last and first < word[1]
    }


def _token_spans(text: str, tokens: Sequence[str]) -> list[tuple[int, int]]:
    """Return first character and end of each token in the text of an answer, which may start later."""
    parts = [_BYTE.sub(lambda match: bytes.fromhex(match[1].decode()), token.encode()) for token in tokens]
    joined = b"".join(parts)
    begin = max(joined.rfind(text.encode()), 0)
    ends = accumulate(map(len, parts), initial=0)
    places = [len(joined[begin : max(end, begin)].decode(errors="ignore")) for end in ends]
    return list(pairwise(places))
