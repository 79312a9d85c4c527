"""What a method says of an example, made of what the runs of its base method say (specification 8.3)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch

from pine_engine.debias.calibration import calibrate
from pine_engine.debias.measured import MeasuredMethod
from pine_engine.debias.permutation import (
    OptionRun,
    average,
    divide_by_prior,
    log_mean,
    most_voted,
    pride_prior,
    softmax,
)
from pine_engine.debias.table import TIE
from pine_engine.evaluation.document_orders import DocumentOrder
from pine_engine.evaluation.examples import Example
from pine_engine.prompts.tasks import Task, get_task

Prior = tuple[float, ...]
"""How likely each of a task's choices is whatever it stands for, in sum 1."""


@dataclass(frozen=True)
class MethodOutput:
    """What one run of a base method says; None for what is not asked of it.

    answers: accepted in its order_name. text, answer_logprob, choice_logprobs: as in Record.
    """

    order_name: DocumentOrder
    answers: tuple[str, ...]
    text: str | None
    answer_logprob: float | None
    choice_logprobs: dict[str, float] | None


def combine(
    method: MeasuredMethod,
    example: Example,
    runs: Sequence[MethodOutput],
    order_name: DocumentOrder,
    prior: Prior | None = None,
) -> dict[str, Any]:
    """The fields of a record that say something of the example, in the letters of its order_name.

    runs: in an order of their own, whatever the order_name; where a wrapper compares prompts without
    content, the first has the content. prior: of the choices, None where it is learnt, or not needed.
    """
    task = get_task(example.task)
    said: dict[str, Any] = {}
    if runs[0].text is not None:
        said |= _voted(task, runs, order_name) if _votes(method) else _written(task, runs[0])
    logprobs = [run.answer_logprob for run in runs if run.answer_logprob is not None]
    if logprobs:
        said["answer_logprob"] = log_mean(logprobs)
    if runs[0].choice_logprobs is not None:
        said |= _weighed(method, task, runs, order_name, prior)
        said["choice_score"] = _choice_score(task, said["choice_logprobs"], order_name.answers(example))
    return said


def _votes(method: MeasuredMethod) -> bool:
    return method.wrapper is not None and method.wrapper.votes


def _written(task: Task, run: MethodOutput, text: str | None = None) -> dict[str, Any]:
    """The text of a run, what it says, and its score; text: what is scored instead."""
    assert run.text is not None
    scored = run.text if text is None else text
    score = task.score(scored, run.answers) if run.answers else None
    return {"text": run.text, "parsed": task.parse(scored), "score": score}


def _voted(task: Task, runs: Sequence[MethodOutput], order_name: DocumentOrder) -> dict[str, Any]:
    """The answer that most runs give. A text is kept that was written, and says it.

    A tie of documents, and runs that all say nothing, are scored as a text that says nothing. Of other
    answers with equally many votes the first in alphabetical order is taken.
    """
    votes = [_vote(task, run) for run in runs]
    winners = most_voted(votes)
    if not winners or (task.has_letters and len(winners) > 1):
        return _written(task, runs[0], text="") | {"parsed": TIE if winners else None}
    voters = [run for run, vote in zip(runs, votes, strict=True) if vote == winners[0]]
    letter = order_name.letters.get(winners[0])
    # Letters move with the order: if a text calls the document as this order_name does, it is kept.
    alike = (run for run in voters if run.order_name.letters.get(winners[0]) == letter)
    said = _written(task, next(alike, voters[0]))
    return said | {"parsed": letter} if task.has_letters else said


def _vote(task: Task, run: MethodOutput) -> str | None:
    """What an answer says in words of all order_names: of a document the letter that it bears as stored."""
    reading = task.parse(run.text or "")
    if reading is None:
        return None
    if not task.has_letters:
        return task.normalize(reading)
    return next((stored for stored, now in run.order_name.letters.items() if now == reading), None)


def _weighed(
    method: MeasuredMethod,
    task: Task,
    runs: Sequence[MethodOutput],
    order_name: DocumentOrder,
    prior: Prior | None,
) -> dict[str, Any]:
    """Log-probabilities of the choices, and where a prior is divided by or learnt, the prior."""
    logprobs = [list((run.choice_logprobs or {}).values()) for run in runs]
    if method.wrapper is None:
        return {"choice_logprobs": runs[0].choice_logprobs}
    if method.wrapper.calibrated == "labels":
        scores = calibrate(torch.tensor(logprobs, dtype=torch.float64)).scores
        return {"choice_logprobs": _logs(task, [score / math.fsum(scores) for score in scores])}

    def named(one: DocumentOrder) -> tuple[int, ...]:
        """The stored document that each choice names; where they name none, they are the same everywhere."""
        return one.entered if task.has_letters else tuple(range(len(task.choices)))

    observed = [softmax(row) for row in logprobs]
    used = [divide_by_prior(row, prior) for row in observed] if prior else observed
    mean = average([OptionRun(named(run.order_name), row) for run, row in zip(runs, used, strict=True)])
    said = {"choice_logprobs": _logs(task, [mean[document] for document in named(order_name)])}
    if not method.wrapper.has_prior:
        return said
    return said | {"prior": dict(zip(task.choices, prior or pride_prior(observed), strict=True))}


def _logs(task: Task, probabilities: Sequence[float]) -> dict[str, float]:
    logs = (math.log(value) if value else -math.inf for value in probabilities)
    return dict(zip(task.choices, logs, strict=True))


def _choice_score(task: Task, logprobs: dict[str, float], answers: Sequence[str]) -> float | None:
    """The score of the most likely choice; on a tie the mean of theirs."""
    if not answers:
        return None
    largest = max(logprobs.values())
    return fmean(task.score(choice, answers) for choice, value in logprobs.items() if value == largest)
