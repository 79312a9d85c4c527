"""The examples of a data set: what is asked, what is accepted as an answer, and where the answer stands."""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from pine_engine.errors import InputError
from pine_engine.prompts.document_files import CsvTable
from pine_engine.prompts.parse_errors import Problem, rows_or_mistakes
from pine_engine.prompts.prompt import Document
from pine_engine.prompts.request import MAX_DOCUMENTS, DataRow, each_line, read_row
from pine_engine.prompts.tasks import USUAL_TASK


class Example(DataRow):
    """One example with what is accepted as its answer; fields that are not named here are ignored.

    gold_index: which of the documents, as stored and counted from 0, holds the answer; None if none does
    alone. answers: all that are accepted, for the documents as they are stored.
    """

    gold_index: Annotated[int, Field(strict=True)] | None = None
    answers: list[str] = Field(default_factory=list)
    source: str = ""
    license: str = ""
    meta: dict[str, Any] = Field(default_factory=dict)

    def _problems(self) -> Iterator[Problem]:
        yield from super()._problems()
        gold, count = self.gold_index, len(self.documents)
        if gold is not None and not 0 <= gold < count:
            message = (
                f"gold_index is {gold}, but documents are counted from 0 to {count - 1}; give one of these, "
                "or null"
            )
            yield Problem(message, "gold_index")


def read_examples(
    path: Path,
    limit: int | None = None,
    sample: int | None = None,
    max_documents: int | None = None,
) -> list[Example]:
    """The examples of a JSONL or CSV file, at most `limit`.

    The header of a CSV file names its columns: document1, document2, ...; and perhaps id, task, question,
    answers, of which | stands between two, gold_index (counted from 0), and title1, title2, ... A row with
    fewer documents than others leaves its last ones empty.
    sample: a seed with which they are drawn at random; None for the first ones. A larger limit adds examples
    behind those of a smaller one. The lines behind the limit are read only if they may be drawn, or if there
    is a mistake before it.
    max_documents: of all examples together; None for any number. One example has at most MAX_DOCUMENTS.
    Raises InputError that names the file and every line of a malformed example, of an id that was used
    before, of an unknown task, of an empty document, of a question that is missing, or of a gold_index that
    names none of the documents.
    """
    is_table = path.suffix.lower() == ".csv"
    lines, read = _csv_reader(path) if is_table else (each_line(path), partial(read_row, Example))
    first_line: dict[str, int] = {}

    def read_once(number: int, line: Any) -> Example:
        example = read(number, line)
        if (first := first_line.setdefault(example.id, number)) != number:
            raise InputError(f"id {example.id!r} was used in line {first}; give every example its own")
        return example

    rows = rows_or_mistakes(path, lines, read_once)
    examples: list[Example] = []
    num_documents = 0
    for _, example in islice(rows, limit if sample is None else None):
        examples.append(example)
        num_documents += len(example.documents)
        if max_documents is not None and num_documents > max_documents:
            raise InputError(
                f"{path} has too many documents: got {num_documents:,} in the first {len(examples):,} rows, "
                f"expected at most {max_documents:,} in all rows; give fewer rows, or fewer documents in each"
            )
    if sample is not None:
        random.Random(sample).shuffle(examples)
    return examples[:limit]


def check_some(examples: Sequence[Example], check: Callable[[Example], object]) -> None:
    """Raises the InputError that the check raises for the first example, if it raises one for all."""
    reasons = []
    for example in examples:
        try:
            check(example)
            return
        except InputError as error:
            reasons.append(error)
    if reasons:
        raise reasons[0]


def _csv_reader(path: Path) -> tuple[Iterator[tuple[int, list[str]]], Callable[[int, list[str]], Example]]:
    """The records of a CSV file, and what makes an example of one."""
    table = CsvTable(path)
    places = sum(bool(re.fullmatch(r"document\d+", name)) for name in table.columns)
    if places > MAX_DOCUMENTS:
        raise InputError(
            f"{path} has too many columns of documents: got {places:,}, expected at most {MAX_DOCUMENTS:,}; "
            "remove columns"
        )
    documents = {f"document{place}" for place in range(1, max(1, places) + 1)}
    titles = {name.replace("document", "title") for name in documents}
    table.check_columns(
        required=documents, optional={"id", "task", "question", "answers", "gold_index", *titles}
    )

    def read(number: int, cells: list[str]) -> Example:
        return _from_row(table.row(cells), len(documents)).complete(number)

    return table.lines, read


def _from_row(row: dict[str, str], count: int) -> Example:
    gold = row.get("gold_index", "").strip()
    if gold and not re.fullmatch(r"-?\d{1,9}", gold):
        raise InputError(f"gold_index is {gold!r}; give the number of a document from 0, or nothing")
    documents = [
        Document(row[f"document{place}"], row.get(f"title{place}", "")) for place in range(1, count + 1)
    ]
    while len(documents) > 1 and documents[-1] == Document(""):
        documents.pop()
    return Example(
        id=row.get("id", "").strip(),
        task=row.get("task", "").strip() or USUAL_TASK,
        question=row.get("question", ""),
        documents=documents,
        gold_index=int(gold) if gold else None,
        answers=[answer.strip() for answer in row.get("answers", "").split("|") if answer.strip()],
    )
