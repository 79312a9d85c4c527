"""Scores and answers of a record, comparable between document orders."""

from collections.abc import Sequence
from typing import Literal, get_args

from pine_engine.debias.table import TIE
from pine_engine.evaluation.records import Record
from pine_engine.prompts.tasks import TASKS

Metric = Literal["generated", "chosen", "logprob"]
"""Source of a score: the generated answer, the most likely choice of the task, or the log-probability of the
first accepted answer."""

METRICS: tuple[Metric, ...] = get_args(Metric)


def score_of(record: Record, metric: Metric) -> float | None:
    """Return the score, 0 to 1, or the log-probability in nats; None if it was not measured."""
    by_metric = {"generated": record.score, "chosen": record.choice_score, "logprob": record.answer_logprob}
    return by_metric[metric]


def parsed_answer(record: Record, metric: Metric) -> str | None:
    """Return the answer that the task parses, TIE if choices are equally likely, None if there is none."""
    if metric == "generated":
        return record.parsed
    if metric == "chosen" and record.choice_logprobs:
        largest = max(record.choice_logprobs.values())
        likely = [choice for choice, logprob in record.choice_logprobs.items() if logprob == largest]
        return TASKS[record.task].parse(likely[0]) if len(likely) == 1 else TIE
    return None


def is_parsed(record: Record, metric: Metric) -> bool:
    """Return False if the score is the default of an answer that cannot be parsed."""
    return metric == "logprob" or parsed_answer(record, metric) is not None


def named_document(record: Record, metric: Metric) -> int | None:
    """Return the stored document whose letter is the answer; None if there is none."""
    answer = parsed_answer(record, metric)
    if answer is None or len(answer) != 1 or not TASKS[record.task].has_letters:
        return None
    index = ord(answer) - ord("A")
    return record.input_order[index] if 0 <= index < len(record.input_order) else None


def differ(records: Sequence[Record], metric: Metric) -> bool | None:
    """Check whether the parsed answers, or the documents that they name, differ; None for fewer than two."""
    answers = [
        named if (named := named_document(record, metric)) is not None else parsed_answer(record, metric)
        for record in records
        if is_parsed(record, metric)
    ]
    return len(set(answers)) > 1 if len(answers) > 1 else None
