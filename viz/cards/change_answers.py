"""The picture of two answers: words that only one has, and how probable every token was."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from viz.drawing.identity import Segment
from viz.drawing.markup import render
from viz.drawing.numbers import format_difference, format_percent, format_value
from viz.drawing.picture import Numbers, pick, picture
from viz.drawing.tokens import shorten, token_window, visible_text
from viz.figures.change import (
    TOKEN_WIDTH,
    AnswerTokens,
    WordRun,
    first_difference,
    is_reordered,
    probability_gaps,
    quoted,
    word_diff,
)

TOKEN_LIMIT = 256
"""Most tokens of an answer that are drawn."""


@dataclass(frozen=True)
class _Chip:
    """A token as it is drawn. width: of its bar, in percent. pick: what a click selects; "" for nothing."""

    number: int
    label: str
    probability: str
    width: float
    readout: str
    pick: str
    is_chosen: bool
    is_first_difference: bool


@dataclass(frozen=True)
class _Card:
    """One answer as it is drawn. order: its documents, where the answers had them in different orders.

    length: tokens of the answer, drawn or not.
    """

    label: str
    order: tuple[Segment, ...]
    runs: tuple[WordRun, ...]
    summary: str
    chips: tuple[_Chip, ...]
    length: int

    @property
    def is_changed(self) -> bool:
        """True if the other answer lacks a word of it."""
        return any(run.changed for run in self.runs)

    @property
    def focus(self) -> int:
        """Number of the token that the Tab key reaches."""
        return next((chip.number for chip in self.chips if chip.is_chosen), self.chips[0].number)


def answers_picture(
    answers: Sequence[AnswerTokens], *, dtype: str, queries: Sequence[str], chosen: int | None = None
) -> str:
    """HTML: one answer, or two beside each other with the words that differ marked, and their tokens.

    queries: for each token of the first answer the query that writes it, which a click selects. chosen:
    the token of the first answer, from 0, that is selected.
    """
    differs = first_difference(answers[0], answers[-1])
    # Of a single answer, compared with itself, no word differs.
    runs = word_diff(answers[0].text, answers[-1].text)[: len(answers)]
    cards = [
        _Card(
            label=answer.label,
            order=answer.documents if is_reordered(answers) else (),
            runs=own_runs,
            summary=_summary(answer),
            chips=_chips(answer, differs, own_queries, chosen),
            length=len(answer.tokens),
        )
        for answer, own_runs, own_queries in zip(answers, runs, (queries, ()), strict=False)
    ]
    return picture(
        render("change_answers.html", cards=cards, sentence=_verdict(answers), differs=differs is not None),
        name="answers",
        caption=_caption(answers, runs, dtype),
        numbers=Numbers(
            ("answer", "token", "text", "token id", "log-probability (nats)", "probability"),
            tuple(
                (
                    answer.label,
                    step + 1,
                    text,
                    answer.token_ids[step],
                    answer.logprobs[step],
                    answer.probability(step),
                )
                for answer in answers
                for step, text in enumerate(answer.tokens)
            ),
        ),
        readout="Point at a token to read what else could have come. A click selects its query.",
    )


def _chips(
    answer: AnswerTokens, differs: int | None, queries: Sequence[str], chosen: int | None
) -> tuple[_Chip, ...]:
    """The tokens that are drawn, around the one that is chosen, or else differs."""
    center = next((step for step in (chosen, differs) if step is not None), 0)
    shown = range(len(answer.tokens))[token_window(len(answer.tokens), TOKEN_LIMIT, center)]
    return tuple(
        _Chip(
            number=step + 1,
            label=shorten(visible_text(answer.tokens[step]), TOKEN_WIDTH),
            probability=format_percent(answer.probability(step)),
            width=100 * answer.probability(step),
            readout=_readout(answer, step),
            pick=pick(query=queries[step]) if queries else "",
            is_chosen=bool(queries) and step == chosen,
            is_first_difference=step == differs,
        )
        for step in shown
    )


def _readout(answer: AnswerTokens, step: int) -> str:
    others = [
        f"{quoted(text)} {format_percent(math.exp(logprob))}"
        for text, logprob in answer.alternatives[step]
        if text != answer.tokens[step]
    ]
    instead = f"; instead could have come {', '.join(others)}" if others else ""
    return f"Token {step + 1}: {answer.written(step)}{instead}."


def _summary(answer: AnswerTokens) -> str:
    """How long and how likely an answer is."""
    if not answer.tokens:
        return "No token was written."
    count = "1 token" if len(answer.tokens) == 1 else f"{len(answer.tokens)} tokens"
    return f"{count}, log-probability of the whole answer {format_value(sum(answer.logprobs))} nats."


def _verdict(answers: Sequence[AnswerTokens]) -> str:
    """The comparison in one sentence."""
    if len(answers) == 1:
        return "There is one answer only. Run a second method or try other orders to compare."
    left, right = answers
    differs = first_difference(left, right)
    if differs is not None:
        return f"The answers part at token {differs + 1}: {left.written(differs)}, {right.written(differs)}."
    if not left.tokens:
        return "Both answers are empty."
    largest = float(probability_gaps(left, right).max())
    return (
        "Both answers are the same, token by token. The log-probabilities of a token differ by at most "
        f"{format_difference(largest)} nats."
    )


def _caption(answers: Sequence[AnswerTokens], runs: Sequence[Sequence[WordRun]], dtype: str) -> str:
    only = [
        f"{sum(len(run.words) for run in own if run.changed)} of {sum(len(run.words) for run in own)} words "
        f"only under {answer.label}"
        for answer, own in zip(answers, runs, strict=True)
    ]
    said = " and ".join(only)
    if not any(run.changed for own in runs for run in own):
        said = "No word differs" if len(answers) > 1 else f"The answer of {answers[0].label}"
    return f"{said}; below each token its probability when it was written, greedy decoding, {dtype}."
