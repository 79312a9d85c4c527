"""Figure of the most likely tokens at the first step at which two answers differ."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from viz.drawing.text import format_percent, shorten
from viz.figures import answer_tokens
from viz.figures.answer_attention import NO_DIFFERENCE, add_bars, bars_height
from viz.figures.answer_tokens import AnswerTokens, quoted
from viz.figures.frame import escaped, new_figure


def plot_next_token_candidates(left: AnswerTokens, right: AnswerTokens) -> go.Figure:
    """Plot the probabilities of the most likely tokens where two answers differ, as bars side by side.

    For equal answers, the token whose probability differs most. x is float32 (R,) for each answer; NaN where
    the token was not among the most likely ones, so that only a bound is known, and where the answer had
    ended. A row is a token that was among the most likely ones of either answer, the likeliest first.

    Args:
        left: Answer, from `answer_tokens`.
        right: Answer that it is compared with.
    """
    answers, step = (left, right), answer_tokens.comparison_step(left, right)
    candidates = [_likely_tokens(answer, step) for answer in answers]
    tokens, values = _next_token_candidates_info(candidates)
    decoded = [answer.tokens[step : step + 1] for answer in answers]
    texts = [
        [_probability(logprobs, token) + (" decoded" if token in chosen else "") for token in tokens]
        for logprobs, chosen in zip(candidates, decoded, strict=True)
    ]
    comparisons = [
        f"{quoted(token)}: {_compare(answers, candidates, token)}."
        for token in dict.fromkeys(decoded[0] + decoded[1])
    ]
    figure = new_figure(
        name="likely-tokens",
        title=f"Next-token candidates at token {step + 1}",
        caption=" ".join([_reason(left, right), *comparisons]),
        height=bars_height(len(tokens), 2),
        meta={"verbatim": ["ticktext"]},
    )
    rows = [escaped(shorten(token, answer_tokens.MAX_TOKEN_CHARACTERS)) for token in tokens]
    add_bars(figure, answers, rows, values, texts)
    figure.update_xaxes(title="probability")
    figure.update_yaxes(title="token")
    return figure


def _next_token_candidates_info(
    candidates: Sequence[Mapping[str, float]],
) -> tuple[list[str], NDArray[np.float64]]:
    """Return the tokens, the likeliest first, and their probabilities (answers, tokens)."""
    logprobs = {token: -math.inf for likely in candidates for token in likely}
    for likely in candidates:
        logprobs |= {token: max(logprob, logprobs[token]) for token, logprob in likely.items()}
    tokens = sorted(logprobs, key=lambda token: -logprobs[token])
    return tokens, np.exp([[likely.get(token, math.nan) for token in tokens] for likely in candidates])


def _likely_tokens(answer: AnswerTokens, step: int) -> dict[str, float]:
    """Return the log-probabilities of the token at a step, from 0, and of its alternatives; {} after the end.

    Of tokens with equal texts, such as parts of a character, the likelier counts.
    """
    if step >= len(answer.tokens):
        return {}
    tokens = {answer.tokens[step]: answer.logprobs[step]}
    for text, logprob in answer.alternatives[step]:
        tokens.setdefault(text, logprob)
    return tokens


def _reason(left: AnswerTokens, right: AnswerTokens) -> str:
    if answer_tokens.first_difference(left, right) is not None:
        return "First differing token."
    if not left.tokens:
        return "Both answers are empty."
    if (left.logprobs, left.alternatives) == (right.logprobs, right.alternatives):
        return f"Identical answers with identical token probabilities. {NO_DIFFERENCE}"
    return "Identical answers. Shown: the token with the largest probability difference."


def _probability(logprobs: Mapping[str, float], token: str) -> str:
    """Format the probability of a token, or its upper bound."""
    if not logprobs:
        return "ended"
    if token not in logprobs:
        return f"below {format_percent(math.exp(min(logprobs.values())))}"
    return format_percent(math.exp(logprobs[token]))


def _compare(answers: Sequence[AnswerTokens], candidates: Sequence[Mapping[str, float]], token: str) -> str:
    """Return the probability of a token under each answer."""
    return ", ".join(
        f"{_probability(logprobs, token)} under {answer.label}" if logprobs else f"ended under {answer.label}"
        for answer, logprobs in zip(answers, candidates, strict=True)
    )
