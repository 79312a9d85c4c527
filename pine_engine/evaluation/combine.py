"""Combination of the base runs of a method into the outcome of one record (specification 8.3)."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from pine_engine.debias.debias import combine_labels, log_mean, most_voted, pride_prior, route, softmax
from pine_engine.debias.table import TIE, MeasuredMethod
from pine_engine.evaluation.document_orders import DocumentOrder
from pine_engine.evaluation.example_runs import BaseRun
from pine_engine.evaluation.examples import Example
from pine_engine.prompts.tasks import TASKS, Task

Prior = tuple[float, ...]  # probability of each choice of a task, independent of the documents, with sum 1


def combine(
    method: MeasuredMethod,
    example: Example,
    runs: Sequence[BaseRun],
    order: DocumentOrder,
    prior: Prior | None = None,
) -> dict[str, Any]:
    """Return the fields of a record that hold its outcome, in the letters of its order.

    With calibration, the first run has the content of the documents. prior: None if learned or not needed.
    """
    task, wrapper = TASKS[example.task], method.wrapper
    outcome: dict[str, Any] = {}
    margin = wrapper.margin if wrapper else None
    written = runs[0] if margin is None else runs[route([run.confidence for run in runs], margin)]
    if written.text is not None:
        if wrapper and wrapper.votes:
            outcome = _vote(task, example, runs, order)
        else:
            outcome = _scored(task, example, written, written.text)
    logprobs = [run.answer_logprob for run in runs if run.answer_logprob is not None]
    if logprobs:
        outcome["answer_logprob"] = log_mean(logprobs)
    choices = runs[0].choice_logprobs
    if choices is None:
        return outcome
    if margin is not None:
        confidences = [max(softmax(list((run.choice_logprobs or {}).values()))) for run in runs]
        runs = [runs[route(confidences, margin)]]
    if wrapper:
        # A choice that is a letter names the document that has the letter.
        in_place = tuple(range(len(choices)))
        named = [run.order.input_order if task.has_letters else in_place for run in runs]
        observed = [list((run.choice_logprobs or {}).values()) for run in runs]
        mean = combine_labels(wrapper, observed, named, prior)
        if wrapper.calibrated == "labels":
            mean = tuple(score / math.fsum(mean) for score in mean)
        elif task.has_letters:
            mean = tuple(mean[document] for document in order.input_order)
        logs = (math.log(value) if value else -math.inf for value in mean)
        choices = dict(zip(choices, logs, strict=True))
        if wrapper.has_prior:
            outcome["prior"] = dict(zip(choices, prior or pride_prior(observed), strict=True))
    answers, largest = order.answers(example), max(choices.values())
    likely = [choice for choice, logprob in choices.items() if logprob == largest]
    scores = [score for choice in likely if (score := example.score(choice, answers)) is not None]
    score = fmean(scores) if scores else None
    return outcome | {"choice_logprobs": choices, "choice_score": score}


def _scored(task: Task, example: Example, run: BaseRun, text: str) -> dict[str, Any]:
    """Return the text of a run, and the parsed answer and the score of `text`."""
    score = example.score(text, run.order.answers(example))
    return {"text": run.text, "parsed": task.parse(text), "score": score}


def _vote(task: Task, example: Example, runs: Sequence[BaseRun], order: DocumentOrder) -> dict[str, Any]:
    """Return the most frequent answer, with a generated text that has it.

    A tie of documents, and runs of which none can be parsed, are scored as an empty text. Of other answers
    with the same number of votes, the first in alphabetical order wins.
    """
    votes = [_answer_of(task, run) for run in runs]
    winners = most_voted(votes)
    if not winners or (task.has_letters and len(winners) > 1):
        return _scored(task, example, runs[0], "") | {"parsed": TIE if winners else None}
    voters = [run for run, vote in zip(runs, votes, strict=True) if vote == winners[0]]
    letter = order.letters.get(winners[0])
    # Letters change with the order: prefer a text with the letter that the document has here.
    matching = (run for run in voters if run.order.letters.get(winners[0]) == letter)
    run = next(matching, voters[0])
    outcome = _scored(task, example, run, run.text or "")
    return outcome | {"parsed": letter} if task.has_letters else outcome


def _answer_of(task: Task, run: BaseRun) -> str | None:
    """Return an answer in a form that is equal in all orders: for a document, its letter as stored."""
    parsed = task.parse(run.text or "")
    if parsed is None:
        return None
    if not task.has_letters:
        return task.normalize(parsed)
    return next((stored for stored, now in run.order.letters.items() if now == parsed), None)
