"""Scores and answers of a record, comparable between document orders."""

from collections.abc import Sequence
from typing import Literal, get_args

from pine_engine.debias.table import TIE
from pine_engine.evaluation.records import Record
from pine_engine.prompts.tasks import get_task

Metric = Literal["generated", "chosen", "logprob"]
"""Source of a score: the generated answer, the most likely choice of the task, or the log-probability of the
first accepted answer."""

METRICS: tuple[Metric, ...] = get_args(Metric)

NEITHER = TIE
"""Answer of a method whose choices are equally likely."""


def score_of(record: Record, metric: Metric) -> float | None:
    """Return the score, 0 to 1, or the log-probability in nats; None if it was not measured."""
    return {
        "generated": record.score,
        "chosen": record.choice_score,
        "logprob": record.answer_logprob,
    }[metric]


def parsed_answer(record: Record, metric: Metric) -> str | None:
    """Return the answer that the task parses, such as a letter; None if it cannot be parsed."""
    if metric == "generated":
        return record.parsed
    if metric == "chosen" and record.choice_logprobs:
        largest = max(record.choice_logprobs.values())
        likely = [choice for choice, logprob in record.choice_logprobs.items() if logprob == largest]
        return get_task(record.task).parse(likely[0]) if len(likely) == 1 else NEITHER
    return None


def is_parsed(record: Record, metric: Metric) -> bool:
    """Return False if the score is the default of an answer that cannot be parsed."""
    return metric == "logprob" or parsed_answer(record, metric) is not None


def meaning(record: Record, metric: Metric) -> str | None:
    """Return the answer independent of the order, None if it cannot be parsed.

    With letters: the stored document that has the letter, or NEITHER. Without: the parsed answer.
    """
    answer = parsed_answer(record, metric)
    named = named_document(record, answer) if get_task(record.task).has_letters else None
    return answer if named is None else f"document {named}"


def differ(records: Sequence[Record], metric: Metric) -> bool | None:
    """Return True if the parsed answers of an example in several orders differ, None for fewer than two."""
    parsed = [answer for record in records if (answer := meaning(record, metric)) is not None]
    return len(set(parsed)) > 1 if len(parsed) > 1 else None


def named_document(record: Record, answer: str | None) -> int | None:
    """Return the stored document that has this letter in the order of the record, None if there is none."""
    if answer is None or len(answer) != 1:
        return None
    index = ord(answer) - ord("A")
    return record.input_order[index] if 0 <= index < len(record.input_order) else None


def first_document(record: Record) -> int:
    """Return the stored document in the first slot."""
    return record.input_order[record.permutation[0]]


def is_as_stored(record: Record) -> bool:
    """Return True if documents and letters are in the order of the data, under any name of that order."""
    stored = tuple(range(record.num_documents))
    return record.input_order == record.permutation == stored
