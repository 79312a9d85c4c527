"""Write the percentages that the page shows with its selected examples, from evaluations of facts-N.

    python -m pine_engine download-data facts-3
    python -m pine_engine evaluate data/facts-3.jsonl --output-dir FACTS --orders all --metrics generate \
        --max-new-tokens 24 --dtype 4bit
    python -m tools.base_rate questions FACTS data/facts-3.jsonl

    python -m pine_engine download-data facts-3-each
    python -m pine_engine evaluate data/facts-3-each.jsonl --output-dir EACH --orders as-is \
        --metrics generate --max-new-tokens 24 --dtype float32
    python -m tools.base_rate sets EACH data/facts-3-each.jsonl
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import typer

from pine_engine.lab.evaluation.intervals import share
from pine_engine.lab.evaluation.record import Record
from pine_engine.lab.evaluation.run_files import read_records, read_run
from pine_engine.prompts.answer_words import contains_words
from pine_engine.prompts.examples import Example, read_examples
from viz.page.answers.base_rate import BASE_RATE_FILE

COMMANDS = typer.Typer(help=__doc__, rich_markup_mode=None)


def percent(values: Iterable[bool | float]) -> float:
    """Return the mean in percent, rounded to one decimal."""
    return round(100 * fmean(map(float, values)), 1)


def method_rate(method: str, questions: Sequence[Sequence[Record]]) -> dict[str, Any]:
    """Return the percentages of a method from the records of each question in all orders.

    They are of correct answers, of questions whose answer changes, and of questions with correct and with
    incorrect answers in all orders.
    """
    scores = [[record.score or 0.0 for record in records] for records in questions]
    return {
        "method": method,
        "correct": percent(score for row in scores for score in row),
        "changes": percent(len({record.parsed for record in records}) > 1 for records in questions),
        "always": percent(min(row) == 1 for row in scores),
        "never": percent(max(row) == 0 for row in scores),
    }


def is_sorted(record: Record, example: Example) -> bool:
    """Check whether the documents of a record are in the order of their texts."""
    texts = [example.documents[record.input_order[slot]].text for slot in record.permutation]
    return texts == sorted(texts)


def measure_base_rate(run: Path, data: Path) -> dict[str, Any]:
    """Return the percentages of an evaluation with all document orders.

    `sorted_vanilla` is of correct answers of vanilla to documents sorted by their text.

    Args:
        run: Folder of the evaluation.
        data: Data set of the evaluation.

    Raises:
        InputError: A file cannot be read.
    """
    info = read_run(run)
    examples = {example.id: example for example in read_examples(data)}
    records = read_records(run)
    by_question: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        by_question[record.method][record.example].append(record)
    vanilla = [record for record in records if record.method == "vanilla"]
    return {
        "task": records[0].task,
        "questions": len(by_question["vanilla"]),
        "documents": records[0].num_documents,
        "model": info.platform.model,
        "dtype": info.platform.dtype,
        "methods": [method_rate(name, list(by_question[name].values())) for name in info.methods],
        "sorted_vanilla": percent(
            record.score or 0.0 for record in vanilla if is_sorted(record, examples[record.example])
        ),
    }


# Questions about each document of a set

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


@COMMANDS.command()
def questions(run: Path, data: Path, file: Path = BASE_RATE_FILE) -> None:
    """Measure answers to one question about each set of documents, and write them to the file."""
    before = json.loads(file.read_bytes())
    _write(measure_base_rate(run, data) | {"sets": before["sets"]}, file)


@COMMANDS.command()
def sets(run: Path, data: Path, file: Path = BASE_RATE_FILE) -> None:
    """Measure answers to questions about every document of each set, and add them to the file."""
    info, examples = read_run(run), read_examples(data)
    found = complete_sets(examples, read_records(run))
    by_id = {example.id: example for example in examples}
    rates = {
        "sets": len(found),
        "dtype": info.platform.dtype,
        "methods": [set_rate(name, found, by_id) for name in info.methods],
    }
    _write(json.loads(file.read_bytes()) | {"sets": rates}, file)


def _write(rate: dict[str, Any], file: Path) -> None:
    text = json.dumps(rate, indent=1)
    file.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    COMMANDS()
