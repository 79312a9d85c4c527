"""Two answers in bars: the first token that differs, and the documents that carried the answers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from viz.drawing.identity import Segment
from viz.drawing.markup import empty_panel, render
from viz.drawing.numbers import format_percent, format_value
from viz.drawing.picture import Numbers, picture
from viz.drawing.tokens import shorten, visible_text
from viz.figures.change import (
    TOKEN_WIDTH,
    AnswerTokens,
    attention_at,
    carried_by,
    first_difference,
    is_reordered,
    probability_gaps,
    quoted,
)

_LIMITS = "Attention weights are not a full explanation of the answer."


@dataclass(frozen=True)
class _Bar:
    """One answer's value in a row. width: of the bar, in percent; None for no bar. note: stands behind it."""

    text: str
    width: float | None = None
    note: str = ""


@dataclass(frozen=True)
class _Row:
    """A token or, with a segment, a part of the prompt; a bar for each answer. difference: right - left."""

    token: str
    segment: Segment | None
    bars: tuple[_Bar, ...]
    difference: str = ""


def difference_picture(left: AnswerTokens, right: AnswerTokens, *, dtype: str, with_prefix: bool) -> str:
    """HTML: the first token in which two answers differ: what could have come, and what each side read.

    Of equal answers the token whose probabilities differ most; "" if they are empty. with_prefix: whether
    attention on the prefix is shown; without it, shares are of what remains.
    """
    differs = first_difference(left, right)
    if differs is None and not left.tokens:
        return ""
    step = int(probability_gaps(left, right).argmax()) if differs is None else differs
    answers = (left, right)
    attention = [attention_at(answer, step, with_prefix=with_prefix) for answer in answers]
    likely = [likely_tokens(answer, step) for answer in answers]
    kind = "largest difference of a probability" if differs is None else "first difference"
    return picture(
        render(
            "change_difference.html",
            sentences=_chances(answers, likely, step),
            labels=[answer.label for answer in answers],
            tokens=_token_rows(answers, likely, step),
            parts=_part_rows(attention, missing="ended", with_slots=is_reordered(answers)),
            number=step + 1,
        ),
        name="first-difference",
        title=f"The {kind}: token {step + 1}",
        caption=(
            f"{left.label} against {right.label} at token {step + 1} of the answer, {dtype}: probabilities "
            "of the most likely tokens, and shares of the attention paid while it was written, mean over "
            f"layers and heads{_left_out(with_prefix)}. {_LIMITS}"
        ),
        numbers=Numbers(
            ("answer", "measure", "of", "value"),
            tuple(
                (answer.label, measure, name, value)
                for answer, tokens, parts in zip(answers, likely, attention, strict=True)
                for measure, values in (
                    ("probability", {text: math.exp(logprob) for text, logprob in tokens.items()}),
                    ("share of attention", {part.name: value for part, value in (parts or {}).items()}),
                )
                for name, value in values.items()
            ),
        ),
    )


def carriers_picture(answers: Sequence[AnswerTokens], *, dtype: str, with_prefix: bool) -> str:
    """HTML: how much of the attention of one or two answers went to each document, mean over their tokens.

    with_prefix: as in `difference_picture`.
    """
    carried = [carried_by(answer, with_prefix=with_prefix) for answer in answers]
    told = [(answer, parts) for answer, parts in zip(answers, carried, strict=True) if parts]
    most = [f"{_most_read(parts)} under {answer.label}" for answer, parts in told]
    return picture(
        render(
            "change_carriers.html",
            labels=[answer.label for answer in answers],
            parts=_part_rows(carried, missing="no token", with_slots=is_reordered(answers)),
        )
        if told
        else empty_panel("No token was written, so no document carried an answer."),
        name="documents-that-carried-the-answer",
        title="Which documents carried the answer",
        caption=(
            (f"The document read most is {' and '.join(most)}. " if most else "")
            + "Shares of attention, mean over the tokens of each answer, over layers and over heads"
            + f"{_left_out(with_prefix)}, {dtype}. {_LIMITS}"
        ),
        numbers=Numbers(
            ("answer", "part of the prompt", "slot", "share of attention"),
            tuple(
                (answer.label, part.name, None if part.slot is None else part.slot + 1, value)
                for answer, parts in told
                for part, value in parts.items()
            ),
        ),
    )


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


def _chance(tokens: Mapping[str, float], text: str) -> str:
    """Probability of a text among the likely tokens of a step, or what it must be below."""
    if text not in tokens:
        return f"below {format_percent(math.exp(min(tokens.values())))}"
    return format_percent(math.exp(tokens[text]))


def _chances(answers: Sequence[AnswerTokens], likely: Sequence[Mapping[str, float]], step: int) -> list[str]:
    """A sentence for each text that was written at a step: its probability under each answer."""
    written = dict.fromkeys(answer.tokens[step] for answer in answers if step < len(answer.tokens))
    return [
        f"{quoted(text)}: "
        + ", ".join(
            f"{_chance(tokens, text)} under {answer.label}" if tokens else f"{answer.label} had ended"
            for answer, tokens in zip(answers, likely, strict=True)
        )
        + "."
        for text in written
    ]


def _token_rows(
    answers: Sequence[AnswerTokens], likely: Sequence[Mapping[str, float]], step: int
) -> list[_Row]:
    """Every token that is likely under one answer, the most likely first."""
    best: dict[str, float] = {}
    for tokens in likely:
        for text, logprob in tokens.items():
            best[text] = max(logprob, best.get(text, -math.inf))
    return [
        _Row(
            token=shorten(visible_text(text), TOKEN_WIDTH),
            segment=None,
            bars=tuple(
                _token_bar(answer, tokens, text, step) for answer, tokens in zip(answers, likely, strict=True)
            ),
        )
        for text in sorted(best, key=lambda text: -best[text])
    ]


def _token_bar(answer: AnswerTokens, tokens: Mapping[str, float], text: str, step: int) -> _Bar:
    if not tokens:
        return _Bar("ended")
    if text not in tokens:
        return _Bar(_chance(tokens, text))
    note = "written" if text == answer.tokens[step] else ""
    return _Bar(_chance(tokens, text), 100 * math.exp(tokens[text]), note)


def _part_rows(
    attention: Sequence[Mapping[Segment, float] | None], *, missing: str, with_slots: bool
) -> list[_Row]:
    """Every part of the prompt in the input order of the first answer; bars of a document side by side.

    attention: shares of each answer, None if it has none; `missing` stands there.
    """
    # Between orders a document's slot differs, its identity does not.
    found = [
        {(part.role, part.document): (part, value) for part, value in (parts or {}).items()}
        for parts in attention
    ]
    largest = max((value for parts in found for _, value in parts.values()), default=0) or 1
    rows = []
    for key, (segment, _) in next((parts for parts in found if parts), {}).items():
        entries = [parts.get(key) for parts in found]
        bars = [
            _Bar(missing)
            if entry is None
            else _Bar(
                format_percent(entry[1]), 100 * entry[1] / largest, _slot(entry[0]) if with_slots else ""
            )
            for entry in entries
        ]
        values = [entry[1] for entry in entries if entry is not None]
        difference = _points(values[1] - values[0]) if len(values) == 2 else ""
        rows.append(_Row(token="", segment=segment, bars=tuple(bars), difference=difference))
    return rows


def _slot(part: Segment) -> str:
    return "" if part.slot is None else f"slot {part.slot + 1}"


def _points(difference: float) -> str:
    """A difference of shares in percentage points, with its sign."""
    sign = "+" if difference > 0 else "\u2212" if difference < 0 else ""
    return sign + format_value(abs(100 * difference))


def _most_read(parts: Mapping[Segment, float]) -> str:
    """The document with the largest share; the first of equals."""
    documents = {part: value for part, value in parts.items() if part.role == "document"}
    most = max(documents, key=lambda part: documents[part])
    return f"{most.label} ({format_percent(documents[most])})"


def _left_out(with_prefix: bool) -> str:
    return "" if with_prefix else ", the prefix left out"
