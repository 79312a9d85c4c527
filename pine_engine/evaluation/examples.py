"""Examples of a data set, with accepted answers and the document that has the answer."""

import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from pine_engine.errors import InputError, import_extra, one_line
from pine_engine.prompts.document_files import check_columns, csv_row, read_csv
from pine_engine.prompts.parse_errors import Problem, ValidationErrors, rows_or_mistakes
from pine_engine.prompts.prompt import Document
from pine_engine.prompts.request import MAX_DOCUMENTS, DataRow, each_line, read_row
from pine_engine.prompts.scoring import contains_words
from pine_engine.prompts.tasks import TASKS, USUAL_TASK


class Example(DataRow):
    """One example; unknown fields are ignored."""

    # Number from 0 of the document with the answer, as stored; None for none or several.
    gold_index: Annotated[int, Field(strict=True)] | None = None
    answers: list[str] = Field(
        default_factory=list
    )  # all that are accepted, for the documents as they are stored
    rejected_answers: list[str] = Field(default_factory=list)  # texts that a correct answer does not contain
    choices: list[Annotated[str, Field(min_length=1)]] = Field(
        default_factory=list
    )  # compared by log-probability; none: those of the task
    source: str = ""
    license: str = ""
    meta: dict[str, Any] = Field(default_factory=dict)

    @property
    def scored_choices(self) -> tuple[str, ...]:
        """Texts compared by log-probability."""
        return tuple(self.choices) or TASKS[self.task].choices

    def score(self, text: str, accepted: Sequence[str]) -> float | None:
        """Return the score by the rule of the task, 0 with a rejected answer, None without accepted ones."""
        if not accepted:
            return None
        is_rejected = contains_words(text, self.rejected_answers)
        return 0.0 if is_rejected else TASKS[self.task].score(text, accepted)

    def _problems(self) -> Iterator[Problem]:
        yield from super()._problems()
        gold, last = self.gold_index, len(self.documents) - 1
        if gold is not None and not 0 <= gold <= last:
            message = f"gold_index is {gold}, but documents are counted from 0 to {last}; give one of these, "
            yield Problem(f"{message}or null", "gold_index")


def read_examples(
    path: Path, limit: int | None = None, sample: int | None = None, max_documents: int | None = None
) -> list[Example]:
    """Return the examples of a JSONL, CSV or Parquet file or a saved dataset, at most `limit`.

    The header of a CSV file names its columns: document1, document2, ...; and optionally id, task, question,
    answers (separated by |), gold_index (counted from 0), and title1, title2, ... A row with fewer documents
    than others leaves its last ones empty.
    sample: seed with which the examples are drawn at random; None for the first ones. A larger limit adds
    examples behind those of a smaller one. max_documents: limit of the documents of a row.
    Raises InputError that names the file and every invalid line, also of an id that was used before.
    """
    lines: Iterator[tuple[int, Any]]
    if path.suffix.lower() == ".csv":
        lines, read = _csv_reader(path)
    else:
        is_dataset = path.suffix.lower() == ".parquet" or path.is_dir()
        lines, read = (_dataset_rows if is_dataset else each_line)(path), partial(read_row, Example)
    first_line: dict[str, int] = {}

    def read_once(number: int, line: Any) -> Example:
        example = read(number, line)
        if max_documents is not None and (count := len(example.documents)) > max_documents:
            message = f"too many documents: got {count:,}, expected at most {max_documents:,} in a row"
            raise ValidationErrors([Problem(f"{message}; use the subcommand evaluate", "documents")])
        if (first := first_line.setdefault(example.id, number)) != number:
            raise InputError(f"id {example.id!r} was used in line {first}", field="id")
        return example

    rows = islice(rows_or_mistakes(path, lines, read_once), limit if sample is None else None)
    examples = [example for _, example in rows]
    if sample is not None:
        random.Random(sample).shuffle(examples)
    return examples[:limit]


def check_some(examples: Sequence[Example], check: Callable[[Example], object]) -> None:
    """Raise the InputError that the check raises for the first example, if it raises one for all."""
    errors = []
    for example in examples:
        try:
            check(example)
            return
        except InputError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _csv_reader(path: Path) -> tuple[Iterator[tuple[int, list[str]]], Callable[[int, list[str]], Example]]:
    """Return the rows of a CSV file, and the function that makes an example of one."""
    columns, lines = read_csv(path)
    num_columns = sum(bool(re.fullmatch(r"document\d+", name)) for name in columns)
    if num_columns > MAX_DOCUMENTS:
        message = f"{path} has too many documents: got {num_columns:,}, expected at most {MAX_DOCUMENTS:,}"
        raise InputError(message, field="documents")
    numbers = range(1, max(1, num_columns) + 1)
    titles = {f"title{number}" for number in numbers}
    check_columns(
        path,
        columns,
        required={f"document{number}" for number in numbers},
        optional={"id", "task", "question", "answers", "gold_index", *titles},
    )

    def read(line: int, cells: list[str]) -> Example:
        row = csv_row(columns, cells)
        gold = row.get("gold_index", "").strip()
        if gold and not re.fullmatch(r"-?\d{1,9}", gold):
            problem = f"gold_index is {gold!r}; give the number of a document from 0, or nothing"
            raise InputError(problem, field="gold_index")
        documents = [Document(row[f"document{number}"], row.get(f"title{number}", "")) for number in numbers]
        while len(documents) > 1 and documents[-1] == Document(""):
            documents.pop()
        return Example(
            id=row.get("id", "").strip(),
            task=row.get("task", "").strip() or USUAL_TASK,
            question=row.get("question", ""),
            documents=documents,
            gold_index=int(gold) if gold else None,
            answers=[answer.strip() for answer in row.get("answers", "").split("|") if answer.strip()],
        ).complete(line)

    return lines, read


def _dataset_rows(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the rows as JSON without missing values, with their numbers from 1. Raises InputError."""
    from pine_engine.data.readers import read_parquet  # imports numpy, which other files do not need

    number = 0
    rows = _folder_rows(path) if path.is_dir() else read_parquet(path)
    try:
        for number, row in enumerate(rows, start=1):
            present = {key: value for key, value in row.items() if value is not None}
            yield number, json.dumps(present, default=str)
    except (OSError, ValueError) as error:  # ValueError: also the base of errors of pyarrow
        message = f"{path} cannot be read: {one_line(error)}; expected a Parquet file or a saved dataset"
        raise InputError(message, field=str(path)) from error
    if not number:
        raise InputError(f"{path} has no rows; expected one example per row", field=str(path))


def _folder_rows(path: Path) -> Iterator[dict[str, Any]]:
    datasets = import_extra("datasets", "datasets")
    found = datasets.load_from_disk(str(path))
    if isinstance(found, datasets.DatasetDict):
        splits = ", ".join(str(path / split) for split in found)
        raise InputError(f"{path} has several splits; give one of: {splits}", field=str(path))
    yield from found
