"""A run's answers as the pictures compare them: plain records, with the texts of all tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pine_engine.engine.events import RunResult
from viz.drawing.identity import document_segment
from viz.figures.change import AnswerTokens


@dataclass(frozen=True)
class TriedOrder:
    """The answers to the same documents in another order."""

    order: tuple[int, ...]
    """Identity of the document in each slot."""

    label: str
    """Its name on the page, such as "C A B"."""

    answer_records: dict[str, AnswerTokens]
    """By method."""


def answer_tokens(
    decode: Callable[[Sequence[int]], list[str]],
    result: RunResult,
    method: str,
    order: Sequence[int],
    label: str,
) -> AnswerTokens:
    """One method's answer, token by token; the run must have been traced.

    decode: text of each token on its own, Engine.decode_tokens. order: identity of the document in each slot.
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
