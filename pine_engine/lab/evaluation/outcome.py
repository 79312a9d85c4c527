"""Outcome of base runs: the fields of a record that hold what a method answers (specification 8.3)."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np

from pine_engine.lab.debias.clusters import cluster_states
from pine_engine.lab.debias.combining import (
    aggregate_rankings,
    combine_labels,
    log_mean,
    most_voted,
    route,
    with_tie,
)
from pine_engine.lab.debias.estimators import Correction, softmax
from pine_engine.lab.debias.measured import MeasuredMethod
from pine_engine.lab.debias.wrappers import Wrapper
from pine_engine.lab.evaluation.document_orders import DocumentOrder
from pine_engine.lab.evaluation.example_plan import BaseRun
from pine_engine.prompts.examples import Example
from pine_engine.prompts.ranking import format_ranking, ranking_scores
from pine_engine.prompts.scoring import TIE, Verdict
from pine_engine.prompts.tasks import Task


def combine(
    method: MeasuredMethod,
    example: Example,
    runs: Sequence[BaseRun],
    order: DocumentOrder,
    correction: Correction | None = None,
    verdict: Verdict = "last",
) -> dict[str, Any]:
    """Return the fields of a record that hold its outcome (specification 8.3), in the letters of its order.

    With calibration, the first run has the content of the documents.
    correction: None if the wrapper learns from the example, or from none.
    verdict: the one that counts in a text with several.
    """
    task, wrapper = example.sized_task(), method.wrapper
    outcome: dict[str, Any] = {}
    margin = wrapper.margin if wrapper else None
    if wrapper and wrapper.represents:
        runs = [_representative(example, runs)]
    written = runs[0] if margin is None else runs[route([run.confidence for run in runs], margin)]
    if written.text is not None:
        if wrapper and wrapper.votes and task.ranks:
            outcome = _joint_ranking(wrapper, example, runs, order, verdict)
        elif wrapper and (wrapper.votes or wrapper.represents):
            outcome = _vote(example, runs, order, verdict, must_agree=wrapper.must_agree)
        else:
            outcome = _scored(example, written, written.text, verdict)
    logprobs = [run.answer_logprob for run in runs if run.answer_logprob is not None]
    if logprobs and len(logprobs) == sum(bool(run.accepted) for run in runs):
        outcome["answer_logprob"] = log_mean(logprobs)
    choices = runs[0].choice_logprobs
    if choices is None or any(run.choice_logprobs is None for run in runs):
        return outcome
    if margin is not None:
        confidences = [max(softmax(list((run.choice_logprobs or {}).values()))) for run in runs]
        runs = [runs[route(confidences, margin)]]
    if wrapper:
        # A choice that is a letter names the document that has the letter.
        in_place = tuple(range(len(choices)))
        named = [
            with_tie(run.order.input_order, len(choices)) if task.has_letters else in_place for run in runs
        ]
        observed = [list((run.choice_logprobs or {}).values()) for run in runs]
        mean = combine_labels(wrapper, observed, named, correction)
        if wrapper.calibrated == "labels":
            mean = softmax(mean) if wrapper.subtracts_prior else tuple(one / math.fsum(mean) for one in mean)
        elif task.has_letters:
            mean = tuple(mean[document] for document in with_tie(order.input_order, len(choices)))
        logs = (math.log(value) if value else -math.inf for value in mean)
        choices = dict(zip(choices, logs, strict=True))
        if estimator := wrapper.estimator:
            numbers = correction.prior if correction else estimator.learn(list(map(softmax, observed)))
            outcome["prior"] = dict(zip(choices, numbers, strict=True))
    answers, largest = order.answers(example), max(choices.values())
    likely = [choice for choice, logprob in choices.items() if logprob == largest]
    if task.has_tie and len(likely) > 1:
        likely = [task.choices[-1]]
    if task.ranks:
        likely = [format_ranking(choices)]
    found = (example.score(choice, answers, order.task(example)) for choice in likely)
    scores = [score for score in found if score is not None]
    score = fmean(scores) if scores else None
    return outcome | {"choice_logprobs": choices, "choice_score": score}


def _representative(example: Example, runs: Sequence[BaseRun]) -> BaseRun:
    """Return the run nearest to the center of the largest cluster of hidden states."""
    documents = [(document.title, document.text) for document in example.documents]
    runs = sorted(runs, key=lambda run: [documents[index] for index in run.order.slots])
    states = [run.prefill.state for run in runs if run.prefill.state is not None]
    clusters = cluster_states([run.order.slots for run in runs], np.stack(states))
    return runs[clusters.representatives[0]]


def _scored(example: Example, run: BaseRun, text: str, verdict: Verdict) -> dict[str, Any]:
    """Return the text of a run, and the parsed answer and the score of `text`."""
    task = run.order.task(example, verdict)
    score, found = example.score(text, run.order.answers(example), task), run.found
    outcome: dict[str, Any] = {"text": run.text, "parsed": task.parse(text), "score": score}
    if found is None:
        return outcome
    lacks_verdict = task.has_letters and run.is_cut and task.parse(found.text) is None
    is_finished = found.is_finished and not lacks_verdict
    return outcome | {"thinking": found.thinking, "is_finished": is_finished}


def _vote(
    example: Example, runs: Sequence[BaseRun], order: DocumentOrder, verdict: Verdict, *, must_agree: bool
) -> dict[str, Any]:
    """Return the most frequent answer, with a generated text that has it.

    A tie of documents, and runs that must agree and do not, are scored as the verdict of a tie if the task
    offers it. Otherwise, and if no run can be parsed, they are scored as an empty text. Of other answers with
    the same number of votes, the first in alphabetical order wins.
    """
    task = example.sized_task()
    votes = [_answer_of(run.order.task(example, verdict), run) for run in runs]
    winners = most_voted(votes)
    is_tie = bool(task.choice) and (len(winners) > 1 or winners == [TIE])
    is_tie = is_tie or (must_agree and len(set(votes)) > 1)
    if is_tie or not winners:
        text = task.choices[-1] if task.has_tie and winners else ""
        return _scored(example, runs[0], text, verdict) | {"parsed": TIE if winners else None}
    voters = [run for run, vote in zip(runs, votes, strict=True) if vote == winners[0]]
    letter = order.letters.get(winners[0])
    # Letters change with the order: prefer a text with the letter that the document has here.
    matching = (run for run in voters if run.order.letters.get(winners[0]) == letter)
    run = next(matching, voters[0])
    outcome = _scored(example, run, run.text or "", verdict)
    return outcome | {"parsed": letter} if task.has_letters else outcome


def _joint_ranking(
    wrapper: Wrapper, example: Example, runs: Sequence[BaseRun], order: DocumentOrder, verdict: Verdict
) -> dict[str, Any]:
    """Return the ranking that combines those of all texts that have one, with the text of the first run."""
    task = order.task(example, verdict)
    rankings = [(task.parse(run.text or ""), run.order.input_order) for run in runs]
    observed = [ranking_scores(ranking, task.choices) for ranking, _ in rankings if ranking]
    outcome = _scored(example, runs[0], "", verdict)
    if not observed:
        return outcome
    scores = aggregate_rankings(wrapper, observed, [slots for ranking, slots in rankings if ranking])
    ranking = format_ranking(
        {task.choices[place]: scores[one] for place, one in enumerate(order.input_order)}
    )
    score = example.score(ranking, order.answers(example), task)
    return outcome | {"parsed": ranking, "score": score}


def _answer_of(task: Task, run: BaseRun) -> str | None:
    """Return an answer in a form that is equal in all orders: for a document, its letter as stored."""
    parsed = task.parse(run.text or "")
    if parsed is None or (parsed == TIE and task.has_letters):
        return parsed
    if not task.has_letters:
        return task.normalize(parsed)
    return next((stored for stored, now in run.order.letters.items() if now == parsed), None)
