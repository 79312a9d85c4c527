"""Percentages of an evaluation with questions about each document of a set."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from pine_engine.lab.evaluation.intervals import share
from pine_engine.lab.evaluation.record import Record
from pine_engine.prompts.answer_words import contains_words
from pine_engine.prompts.examples import Example

SetRecords = Mapping[str, Sequence[Sequence[Record]]]
"""Records of one set by method: for each document order, one record per question."""


def complete_sets(examples: Sequence[Example], records: Iterable[Record]) -> list[SetRecords]:
    """Return the records of each set of documents whose questions all have records."""
    by_example: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        by_example[record.example, record.method].append(record)
    methods = dict.fromkeys(method for _, method in by_example)
    sets: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for example in examples:
        sets[tuple(document.text for document in example.documents)].append(example.id)
    return [
        {method: list(zip(*(by_example[name, method] for name in ids), strict=True)) for method in methods}
        for ids in sets.values()
        if all((name, method) in by_example for name in ids for method in methods)
    ]


def name_one_document(records: Sequence[Record], examples: Mapping[str, Example]) -> bool:
    """Check whether answers to different questions all name the value of one and the same document."""
    named = []
    for record in records:
        example = examples[record.example]
        values = [*example.answers, *example.rejected_answers]
        named.append([value for value in values if contains_words(record.parsed or "", [value])])
    return named[0] != [] and all(values == named[0] and len(values) == 1 for values in named)


def set_rate(method: str, sets: Sequence[SetRecords], examples: Mapping[str, Example]) -> dict[str, Any]:
    """Return the percentages of a method over sets of documents.

    They are of orders of a set in which the answers to all questions name one document, and of sets with
    correct answers to all questions in all orders.
    """
    return {
        "method": method,
        "same": _share(fmean(name_one_document(order, examples) for order in one[method]) for one in sets),
        "correct": _share(all(record.score for order in one[method] for record in order) for one in sets),
    }


def _share(values: Iterable[bool | float]) -> list[float]:
    """Return the mean with its 95 % interval, in percent."""
    estimate = share(np.array(list(map(float, values))))
    assert estimate is not None and estimate.interval is not None
    low, high = estimate.interval
    return [round(100 * value, 1) for value in (estimate.mean, low, high)]
