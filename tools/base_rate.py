"""Write the percentages that the page shows with its selected examples, from an evaluation of facts-N.

    python -m pine_engine download-data facts-3
    python -m pine_engine evaluate data/facts-3.jsonl --output-dir FACTS --orders all --metrics generate \
        --max-new-tokens 24 --dtype 4bit
    python -m tools.base_rate FACTS data/facts-3.jsonl
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

import typer

from pine_engine.evaluation.examples import Example, read_examples
from pine_engine.evaluation.records import Record, read_records, read_run
from viz.page.answers.recordings import BASE_RATE_FILE, BaseRate, MethodRate


def percent(values: Iterable[bool | float]) -> float:
    """Return the mean in percent, rounded to one decimal."""
    return round(100 * fmean(map(float, values)), 1)


def method_rate(method: str, questions: Sequence[Sequence[Record]]) -> MethodRate:
    """Return the percentages of a method from the records of each question in all orders."""
    scores = [[record.score or 0.0 for record in records] for records in questions]
    return MethodRate(
        method=method,
        correct=percent(score for row in scores for score in row),
        changes=percent(len({record.parsed for record in records}) > 1 for records in questions),
        always=percent(min(row) == 1 for row in scores),
        never=percent(max(row) == 0 for row in scores),
    )


def is_sorted(record: Record, example: Example) -> bool:
    """Check whether the documents of a record are in the order of their texts."""
    texts = [example.documents[record.input_order[slot]].text for slot in record.permutation]
    return texts == sorted(texts)


def measure_base_rate(run: Path, data: Path) -> BaseRate:
    """Return the percentages of an evaluation with all document orders.

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
    return BaseRate(
        questions=len(by_question["vanilla"]),
        documents=records[0].num_documents,
        model=info.platform.model,
        dtype=info.platform.dtype,
        methods=[method_rate(name, list(by_question[name].values())) for name in info.methods],
        sorted_vanilla=percent(
            record.score or 0.0 for record in vanilla if is_sorted(record, examples[record.example])
        ),
    )


def base_rate(run: Path, data: Path, file: Path = BASE_RATE_FILE) -> None:
    """Measure the percentages of an evaluation (folder and data set), and write them to a file."""
    text = measure_base_rate(run, data).model_dump_json(indent=1)
    file.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    typer.run(base_rate)
