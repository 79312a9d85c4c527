"""The examples of a data set: what is asked, what is accepted as an answer, and where the answer stands."""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from pydantic_core import PydanticSerializationError

from pine_engine.errors import InputError
from pine_engine.prompts.csv_table import check_columns, read_table
from pine_engine.prompts.inputs import DataRow, DocumentInput, each_line
from pine_engine.prompts.tasks import TASKS, get_task


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


def read_examples(path: Path, limit: int | None = None, sample: int | None = None) -> list[Example]:
    """The examples of a JSONL file, or of a CSV file as examples_from_csv reads them, at most `limit`.

    sample: a seed with which they are drawn at random; None for the first ones. A larger limit adds examples
    behind those of a smaller one. The lines behind the limit are read only if they may be drawn.
    Raises InputError that names the file and the line of a malformed example, of an id that was used
    before, of an unknown task, of an empty document, of a question that is missing, or of a gold_index that
    names none of the documents.
    """
    read = examples_from_csv(path) if path.suffix.lower() == ".csv" else each_line(Example, path)
    examples = list(islice(read, limit if sample is None else None))
    line_of: dict[str, int] = {}
    for number, example in examples:
        where = f"{path}, line {number}"
        if example.id in line_of:
            raise InputError(
                f"{where}: id {example.id!r} was used in line {line_of[example.id]}; "
                "give every example its own"
            )
        line_of[example.id] = number
        _check(example, where)
    if sample is not None:
        random.Random(sample).shuffle(examples)
    return [example for _, example in examples[:limit]]


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


def examples_from_csv(path: Path) -> Iterator[tuple[int, Example]]:
    """The examples of a CSV file, each with the number of its line, read as they are asked for.

    Its header names the columns: id, question and answers, of which | stands between two; documents as
    document1, document2, ...; and perhaps title1, title2, ..., gold_index (counted from 0) and task. A row
    with fewer documents than others leaves its last ones empty.
    Raises InputError that names the line, as read_table does, or for a gold_index that is no number.
    """
    table = read_table(path)
    places = sum(bool(re.fullmatch(r"document\d+", name)) for name in table.header)
    documents = {f"document{place}" for place in range(1, max(1, places) + 1)}
    titles = {name.replace("document", "title") for name in documents}
    check_columns(
        path,
        table.header,
        needed={"id", "question", "answers", *documents},
        allowed={"gold_index", "task", *titles},
    )
    for number, row in table.rows:
        yield number, _from_row(row, len(documents), f"{path}, line {number}")


def _from_row(row: dict[str, str], count: int, where: str) -> Example:
    gold = row.get("gold_index", "").strip()
    if gold and not re.fullmatch(r"-?\d{1,9}", gold):
        raise InputError(f"{where}: gold_index is {gold!r}; give the number of a document from 0, or nothing")
    documents = [
        DocumentInput(text=row[f"document{place}"], title=row.get(f"title{place}", ""))
        for place in range(1, count + 1)
    ]
    while len(documents) > 1 and documents[-1] == DocumentInput(text=""):
        documents.pop()
    return Example(
        id=row["id"].strip(),
        task=row.get("task", "").strip() or "retrieval_qa",
        question=row["question"],
        documents=documents,
        gold_index=int(gold) if gold else None,
        answers=[answer.strip() for answer in row["answers"].split("|") if answer.strip()],
    )


def _check(example: Example, where: str) -> None:
    if not example.id:
        raise InputError(f"{where}: id is empty; give every example its own")
    if example.task not in TASKS:
        raise InputError(f"{where}: unknown task {example.task!r}; choose from: {', '.join(TASKS)}")
    if get_task(example.task).needs_question and not example.question.strip():
        raise InputError(f"{where}: there is no question; write one")
    for number, document in enumerate(example.documents, start=1):
        if not document.text.strip():
            raise InputError(f"{where}: document {number} is empty; write some text or remove it")
    try:
        example.model_dump_json()
    except PydanticSerializationError as error:
        raise InputError(
            f"{where}: it holds half of a surrogate pair, which is no character; remove it"
        ) from error
    gold, count = example.gold_index, len(example.documents)
    if gold is not None and not 0 <= gold < count:
        raise InputError(
            f"{where}: gold_index is {gold}, but documents are counted from 0 to {count - 1}; give one of "
            "these, or null"
        )
