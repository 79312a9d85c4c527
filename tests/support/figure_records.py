"""Records that figures and cards are drawn of, made by hand."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from pine_engine import (
    Answer,
    LeaveOneOut,
    OrderComparison,
    OrderResult,
    RunResult,
    Score,
    SlotScored,
    TokenLayout,
)
from viz.drawing.identity import document_segment
from viz.figures.answer_tokens import AnswerTokens

LAYOUT = TokenLayout((5, 9, 60), ((11, 12, 13, 14), (21, 22), (31, 32, 33)), (51, 52, 53))

STEPS = [
    SlotScored(slot, (0, 1), {m: Score(m, "x", (1, 2), (at, -0.5)) for m, at in scores.items()})
    for slot, scores in enumerate([{"vanilla": -1.0, "pine": -2.0}, {"vanilla": -3.0, "pine": -2.0}])
]

LEFT_OUT = {
    method: LeaveOneOut(
        Score(method, "x", (1, 2), (at, -0.5)), (Score(method, "x", (1, 2), (-3.0, -1.0)),) * 2, "float32"
    )
    for method, at in (("vanilla", -1.0), ("pine", -2.0))
}


def answer_with(
    label: str,
    tokens: Sequence[str],
    *,
    probabilities: Sequence[float] | None = None,
    alternatives: Sequence[Sequence[tuple[str, float]]] | None = None,
    attention: Sequence[Sequence[float]] | None = None,
    order: Sequence[int] = (0, 1),
) -> AnswerTokens:
    """Return an answer whose token ids are spelled by its tokens, from probabilities."""
    likely = list(probabilities or [0.5] * len(tokens))
    steps = alternatives or [[(text, p)] for text, p in zip(tokens, likely, strict=True)]
    rows = attention or [[1 / (len(order) + 2)] * (len(order) + 2)] * len(tokens)
    return AnswerTokens(
        label=label, text="".join(tokens), token_ids=tuple(int.from_bytes(text.encode()) for text in tokens),
        tokens=tuple(tokens), logprobs=tuple(map(math.log, likely)),
        alternatives=tuple(tuple((text, math.log(p)) for text, p in step) for step in steps),
        attention=np.array(rows, np.float32).reshape(len(tokens), len(order) + 2),
        documents=tuple(document_segment(identity, slot) for slot, identity in enumerate(order)),
    )  # fmt: skip


def cell(text: str, difference: float = 0.0, logprob: float = -1.0) -> OrderComparison:
    """Return an answer that is compared with the reference order; bitwise identical without a difference."""
    answer = Answer("", text, tuple(text.encode()), (-1.0,) * len(text.encode()), 0.0, 0.0, "stop")
    is_equal = not difference
    return OrderComparison(answer, is_equal, None if is_equal else 0, difference, is_equal, logprob)


def order_row(order: Sequence[int], cells: Mapping[str, OrderComparison]) -> OrderResult:
    return OrderResult(tuple(order), dict(cells), RunResult(LAYOUT, {}, {}))
