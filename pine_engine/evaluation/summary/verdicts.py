"""What a record says: its numbers, and the answer it means, whatever the order."""

from collections.abc import Sequence
from typing import Literal, get_args

from pine_engine.debias.table import TIE
from pine_engine.evaluation.records import Record
from pine_engine.prompts.tasks import get_task

Kind = Literal["generated", "chosen", "logprob"]
"""Where a number is from: the generated answer, the most likely of the task's choices, or the log-probability
of the first accepted answer."""

KINDS: tuple[Kind, ...] = get_args(Kind)

NEITHER = TIE
"""What a method says whose choices are equally likely: none of them."""


def number(record: Record, kind: Kind) -> float | None:
    """The score, 0 to 1, or the log-probability in nats; None if it was not measured."""
    return {
        "generated": record.score,
        "chosen": record.choice_score,
        "logprob": record.answer_logprob,
    }[kind]


def said(record: Record, kind: Kind) -> str | None:
    """What the task reads in the answer, such as a letter; None if nothing."""
    if kind == "generated":
        return record.parsed
    if kind == "chosen" and record.choice_logprobs:
        largest = max(record.choice_logprobs.values())
        likely = [choice for choice, logprob in record.choice_logprobs.items() if logprob == largest]
        return get_task(record.task).parse(likely[0]) if len(likely) == 1 else NEITHER
    return None


def is_read(record: Record, kind: Kind) -> bool:
    """Whether its number says anything: not if it scores an answer in which the task reads nothing."""
    return kind == "logprob" or said(record, kind) is not None


def meant(record: Record, kind: Kind) -> str | None:
    """The answer in words that are the same in all order_names; None if it cannot be read.

    With letters: the stored document that the letter stands for, or NEITHER. Without: what the task reads.
    """
    answer = said(record, kind)
    named = named_document(record, answer) if get_task(record.task).has_letters else None
    return answer if named is None else f"document {named}"


def differ(records: Sequence[Record], kind: Kind) -> bool | None:
    """Whether an example's answers in several order_names are not all the same.

    Those that can be read are compared; None if these are fewer than two.
    """
    read = [answer for record in records if (answer := meant(record, kind)) is not None]
    return len(set(read)) > 1 if len(read) > 1 else None


def named_document(record: Record, answer: str | None) -> int | None:
    """The stored document that bears this letter in the record's order_name; None if none does."""
    if answer is None or len(answer) != 1:
        return None
    place = ord(answer) - ord("A")
    return record.entered[place] if 0 <= place < len(record.entered) else None


def first_document(record: Record) -> int:
    """The stored document in the first slot."""
    return record.entered[record.order[0]]


def is_as_stored(record: Record) -> bool:
    """Whether its documents stand in the order of the data, whatever that order_name is called."""
    stored = tuple(range(record.num_documents))
    return record.entered == record.order == stored
