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
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import typer

from pine_engine.lab.evaluation.record import Record
from pine_engine.lab.evaluation.run_files import read_records, read_run
from pine_engine.prompts.examples import Example, read_examples
from tools.set_rates import complete_sets, set_rate
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
