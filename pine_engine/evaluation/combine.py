"""Combination of the base runs of a method into the outcome of one record (specification 8.3)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from pine_engine.debias.debias import combine_labels, log_mean, most_voted, pride_prior
from pine_engine.debias.table import TIE, MeasuredMethod
from pine_engine.evaluation.document_orders import DocumentOrder
from pine_engine.evaluation.examples import Example
from pine_engine.prompts.tasks import Task, get_task

Prior = tuple[float, ...]
"""Probability of each choice of a task, independent of the documents, with sum 1."""


@dataclass(frozen=True)
class MethodOutput:
    """Outcome of one base run; None for a quantity that is not measured.

    answers: accepted in its order text, answer_logprob, choice_logprobs: as in Record.
    """

    order: DocumentOrder
    answers: tuple[str, ...]
    text: str | None
    answer_logprob: float | None
    choice_logprobs: dict[str, float] | None


def combine(
    method: MeasuredMethod,
    example: Example,
    runs: Sequence[MethodOutput],
    order: DocumentOrder,
    prior: Prior | None = None,
) -> dict[str, Any]:
    """Return the fields of a record that hold its outcome, in the letters of its order.

    Args:
        method: Method of the record.
        example: Example of the record.
        runs: Outcomes of the base runs. With calibration, the first has the content of the documents.
        order: Document order of the record.
        prior: Prior of the choices; None to learn it, or if none is needed.
    """
    task, wrapper = get_task(example.task), method.wrapper
    outcome: dict[str, Any] = {}
    if runs[0].text is not None:
        is_vote = wrapper is not None and wrapper.votes
        outcome |= _vote(task, runs, order) if is_vote else _scored(task, runs[0], runs[0].text)
    logprobs = [run.answer_logprob for run in runs if run.answer_logprob is not None]
    if logprobs:
        outcome["answer_logprob"] = log_mean(logprobs)
    if runs[0].choice_logprobs is not None:
        choices = runs[0].choice_logprobs
        if wrapper:
            # A choice that is a letter names the document that has the letter.
            named = [run.order.input_order if task.has_letters else _indices(task) for run in runs]
            observed = [list((run.choice_logprobs or {}).values()) for run in runs]
            mean = combine_labels(wrapper, observed, named, prior)
            if wrapper.calibrated == "labels":
                mean = tuple(score / math.fsum(mean) for score in mean)
            else:
                named_here = order.input_order if task.has_letters else _indices(task)
                mean = tuple(mean[document] for document in named_here)
            logs = (math.log(value) if value else -math.inf for value in mean)
            choices = dict(zip(task.choices, logs, strict=True))
            if wrapper.has_prior:
                outcome["prior"] = dict(zip(task.choices, prior or pride_prior(observed), strict=True))
        outcome["choice_logprobs"] = choices
        outcome["choice_score"] = _choice_score(task, choices, order.answers(example))
    return outcome


def _indices(task: Task) -> tuple[int, ...]:
    return tuple(range(len(task.choices)))


def _scored(task: Task, run: MethodOutput, text: str) -> dict[str, Any]:
    """Return the text of a run, and what is parsed and scored in `text`."""
    score = task.score(text, run.answers) if run.answers else None
    return {"text": run.text, "parsed": task.parse(text), "score": score}


def _vote(task: Task, runs: Sequence[MethodOutput], order: DocumentOrder) -> dict[str, Any]:
    """Return the most frequent answer, with a generated text that has it.

    A tie of documents, and runs of which none can be parsed, are scored as an empty text. Of other answers
    with the same number of votes, the first in alphabetical order wins.
    """
    votes = [_answer_of(task, run) for run in runs]
    winners = most_voted(votes)
    if not winners or (task.has_letters and len(winners) > 1):
        return _scored(task, runs[0], "") | {"parsed": TIE if winners else None}
    voters = [run for run, vote in zip(runs, votes, strict=True) if vote == winners[0]]
    letter = order.letters.get(winners[0])
    # Letters change with the order: prefer a text with the letter that the document has here.
    matching = (run for run in voters if run.order.letters.get(winners[0]) == letter)
    run = next(matching, voters[0])
    outcome = _scored(task, run, run.text or "")
    return outcome | {"parsed": letter} if task.has_letters else outcome


def _answer_of(task: Task, run: MethodOutput) -> str | None:
    """Return an answer in a form that is equal in all orders: for a document, its letter as stored."""
    parsed = task.parse(run.text or "")
    if parsed is None:
        return None
    if not task.has_letters:
        return task.normalize(parsed)
    return next((stored for stored, now in run.order.letters.items() if now == parsed), None)


def _choice_score(task: Task, logprobs: dict[str, float], answers: Sequence[str]) -> float | None:
    """Return the score of the most likely choice, or the mean score of several."""
    if not answers:
        return None
    largest = max(logprobs.values())
    return fmean(task.score(choice, answers) for choice, value in logprobs.items() if value == largest)
