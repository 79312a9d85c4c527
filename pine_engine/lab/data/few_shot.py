"""Benchmark `few_shot`: labels of new texts, with labeled texts as the documents (demonstrations).

All examples of a label set have the same instruction and choices. The order of the demonstrations carries no
information, so a different label in another order is position bias.
"""

import random
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pine_engine.lab.data.readers import Row, check_num_documents

MIN_DOCUMENTS, MAX_DOCUMENTS = 4, 16


LABEL_SETS: list[dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("few_shot.toml").read_text("utf-8")
)["set"]
"""Name and instruction of each label set, and its texts by label."""


def generate_few_shot(num_documents: int = 4, seed: int = 0) -> Iterator[Row]:
    """Yield few_shot examples without end, the label sets in turn; the first N are equal for every N.

    The numbers of demonstrations of two labels differ by at most one. Each text is tested once before any is
    tested again, the labels of a set in turn.

    num_documents: number of demonstrations. seed: of the tested texts, of the demonstrations, and of their
    order. Raises InputError for a number of documents that is out of range.
    """
    check_num_documents(num_documents, MIN_DOCUMENTS, MAX_DOCUMENTS)
    source = random.Random(f"few_shot {num_documents} {seed}")
    number = 0
    while True:
        for tests in zip(*(_tests(source, label_set["texts"]) for label_set in LABEL_SETS), strict=True):
            for label_set, (label, text) in zip(LABEL_SETS, tests, strict=True):
                number += 1
                yield {
                    "id": f"few-shot-{num_documents}-{seed}-{number}",
                    "task": "few_shot",
                    "question": text,
                    "prefix": label_set["instruction"],
                    "documents": _demonstrations(source, label_set["texts"], text, num_documents),
                    "answers": [label],
                    "choices": list(label_set["texts"]),
                    "source": f"few_shot, seed {seed}",
                    "license": "Apache-2.0",
                    "meta": {"labels": label_set["name"]},
                }


def _tests(source: random.Random, texts: dict[str, list[str]]) -> list[tuple[str, str]]:
    """Return all texts of a set with their labels, the labels in turn."""
    columns = [
        [(label, text) for text in source.sample(of_label, len(of_label))]
        for label, of_label in texts.items()
    ]
    return [test for row in zip(*columns, strict=True) for test in row]


def _demonstrations(
    source: random.Random, texts: dict[str, list[str]], tested: str, count: int
) -> list[dict[str, str]]:
    """Return the labeled texts of one example, without the tested one, in random order."""
    labels = source.sample(list(texts), len(texts))
    demonstrations = []
    for index, label in enumerate(labels):
        number = len(range(index, count, len(labels)))
        others = [text for text in texts[label] if text != tested]
        demonstrations += [{"title": label, "text": text} for text in source.sample(others, number)]
    return source.sample(demonstrations, count)
