"""Picture of one answer, or two side by side: words that only one has, and the probability of each token."""

import math
import re
from collections.abc import Sequence
from difflib import SequenceMatcher

from viz.drawing.markup import render
from viz.drawing.pictures import Numbers, pick, picture
from viz.drawing.text import format_difference, format_percent, format_value, shorten, visible_text
from viz.figures import answer_tokens
from viz.figures.answer_tokens import AnswerTokens, first_difference, quoted

MAX_TOKENS = 256  # maximum tokens of an answer that are drawn

# A word or a sign, with the blanks after it. Chinese and Japanese put no blanks between words: sign by sign.
_WORD = re.compile(r"(?:[^\W\u2e80-\u9fff]+|\S)\s*|^\s+")


WordRun = tuple[list[str], bool]
"""Adjacent words of an answer with the blanks after them, and True if the other answer lacks them."""


def word_diff(left: str, right: str) -> tuple[list[WordRun], list[WordRun]]:
    """Split two texts into runs of words that both or only one of them has; blanks do not count."""
    words, others = _WORD.findall(left), _WORD.findall(right)
    left_words, right_words = ([word.strip() for word in side] for side in (words, others))
    matcher = SequenceMatcher(None, left_words, right_words, autojunk=False)
    runs: tuple[list[WordRun], list[WordRun]] = [], []
    for kind, first, stop, other_first, other_stop in matcher.get_opcodes():
        for side, part in zip(runs, (words[first:stop], others[other_first:other_stop]), strict=True):
            if part:
                side.append((part, kind != "equal"))
    return runs


def answers_picture(
    answers: Sequence[AnswerTokens], *, dtype: str, queries: Sequence[str], chosen: int | None = None
) -> str:
    """Render one answer, or two side by side with the words that differ marked, and their tokens.

    `queries` has the query that decodes each token of the first answer, which a click selects; `chosen` is
    the selected token of the first answer, from 0.
    """
    differs = first_difference(answers[0], answers[-1])
    # A single answer is compared with itself.
    runs = word_diff(answers[0].text, answers[-1].text)[: len(answers)]
    cards = [
        {
            "label": answer.label,
            "order": answer.documents if answer_tokens.is_reordered(answers) else (),
            "runs": own_runs,
            "is_changed": any(is_changed for _, is_changed in own_runs),
            "summary": _summary(answer),
            "chips": _chips(answer, differs, selectable, chosen),
            "length": len(answer.tokens),
        }
        for answer, own_runs, selectable in zip(answers, runs, (queries, ()), strict=False)
    ]
    columns = ("answer", "token", "text", "token id", "log-probability (nats)", "probability")
    rows = []
    for answer in answers:
        for step, token in enumerate(answer.tokens):
            values = (answer.token_ids[step], answer.logprobs[step], answer.probability(step))
            rows.append((answer.label, step + 1, token, *values))
    return picture(
        render("compare.html", cards=cards, sentence=_verdict(answers), differs=differs is not None),
        Numbers(columns, tuple(rows), "answers", _caption(answers, runs, dtype)),
        readout="Hover a token to see alternatives. Click to select it as the query.",
    )


def _chips(
    answer: AnswerTokens, differs: int | None, queries: Sequence[str], chosen: int | None
) -> list[dict[str, object]]:
    """Return the drawn tokens, around the selected one or else the first difference."""
    count = len(answer.tokens)
    center = next((step for step in (chosen, differs) if step is not None), 0)
    start = max(0, min(center - MAX_TOKENS // 2, count - MAX_TOKENS))
    return [
        {
            "number": step + 1,
            "label": shorten(visible_text(answer.tokens[step]), answer_tokens.MAX_TOKEN_CHARACTERS),
            "probability": format_percent(answer.probability(step)),
            "width": 100 * answer.probability(step),
            "readout": _readout(answer, step),
            "pick": pick(query=queries[step]) if queries else "",
            "is_chosen": bool(queries) and step == chosen,
            "is_first_difference": step == differs,
        }
        for step in range(start, min(count, start + MAX_TOKENS))
    ]


def _readout(answer: AnswerTokens, step: int) -> str:
    others = [
        f"{quoted(token)} {format_percent(math.exp(logprob))}"
        for token, logprob in answer.alternatives[step]
        if token != answer.tokens[step]
    ]
    alternatives = f"; alternatives: {', '.join(others)}" if others else ""
    return f"Token {step + 1}: {answer.describe_step(step)}{alternatives}."


def _summary(answer: AnswerTokens) -> str:
    if not answer.tokens:
        return "The answer is empty."
    count = "1 token" if len(answer.tokens) == 1 else f"{len(answer.tokens)} tokens"
    return f"{count}, answer log-probability {format_value(sum(answer.logprobs))} nats."


def _verdict(answers: Sequence[AnswerTokens]) -> str:
    """Return the comparison in one sentence."""
    if len(answers) == 1:
        return "Only one answer. Run a second method or a shuffle test to compare."
    left, right = answers
    step = first_difference(left, right)
    if step is not None:
        tokens = f"{left.describe_step(step)}, {right.describe_step(step)}"
        return f"First difference at token {step + 1}: {tokens}."
    if not left.tokens:
        return "Both answers are empty."
    largest = float(answer_tokens.probability_gaps(left, right).max())
    return f"Identical tokens. Max token log-probability difference: {format_difference(largest)} nats."


def _caption(answers: Sequence[AnswerTokens], runs: Sequence[Sequence[WordRun]], dtype: str) -> str:
    if any(is_changed for own_runs in runs for _, is_changed in own_runs):
        counts = []
        for answer, own_runs in zip(answers, runs, strict=True):
            num_changed = sum(len(words) for words, is_changed in own_runs if is_changed)
            total = sum(len(words) for words, _ in own_runs)
            counts.append(f"{num_changed} of {total} words only in {answer.label}’s answer")
        text = ". ".join(counts)
    else:
        text = "No differing words" if len(answers) > 1 else f"Answer of {answers[0].label}"
    return f"{text}. Token probabilities are shown below each token (greedy decoding, {dtype})."
