"""Rows of tables: cells of text by a separator, and rows from the cells of a text or a sheet.

A row is an object without its empty cells.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from pine_engine.errors import InputError
from pine_engine.rows.cells import parse_cell
from pine_engine.rows.columns import NUMBERED, Columns, number_documents, rename_header
from pine_engine.rows.document_keys import TEXT_NAMES
from pine_engine.rows.options import OPTION_NAMES, has_options
from pine_engine.rows.parse_errors import Problem, ValidationErrors, unusable_file
from pine_engine.rows.published import ANSWER_NAMES, DOCUMENT_NAMES, JUDGED_NAMES, REFERENCE_NAMES

MAX_DOCUMENTS = 10_000
"""Documents of one row or request. More are rejected before a record is made of any."""

_SEPARATOR_LINE = re.compile(r"""\A"?sep=([^"\n])"?[,;\t]*\n""", re.IGNORECASE)
"""First line of a table that names its separator, for Excel."""

LIST_COLUMNS = {
    *ANSWER_NAMES,
    *DOCUMENT_NAMES,
    *chain(*JUDGED_NAMES),
    *OPTION_NAMES,
    "rejected_answers",
    "relevance",
    "prompt",
}
"""Columns of tables whose cells may be lists."""

_UNNAMED = re.compile(r"|unnamed: [\d.]+")
"""Names of the index in files of pandas."""

Lines = Iterator[tuple[int, list[str] | InputError]]
"""Cells of each line of a table with its number; an error ends them."""


def split_cells(text: str, kind: str) -> Lines:
    """Return the cells of a text, by its separator (`sep=;`), that of its ending, or the likeliest."""
    # A setting of the module, whose 131,072 characters are fewer than those of a long document.
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    if found := _SEPARATOR_LINE.match(text):
        return _csv_lines(text[found.end() - 1 :], found[1])  # the line stays, blank, and counts
    return _csv_lines(text, "\t" if kind == ".tsv" else _delimiter(text))


def table_rows(
    path: Path, lines: Lines, renamed: Columns, *, is_data: bool = True
) -> Iterator[tuple[int, Any]]:
    """Yield objects: the cells by column; of data with documents and titles by number as documents."""
    number, names = next(lines, (1, list[str]()))
    if isinstance(names, InputError):
        raise ValidationErrors([Problem(str(names), line=number)], str(path))
    if not names:
        raise unusable_file(path, "is empty; its first line has to name the columns")
    try:
        columns = rename_header(names, renamed)
    except InputError as error:
        raise InputError(f"{path} has {error}", field=error.field) from error
    if is_data:
        _check_columns(path, columns, number)
    numbered = frozenset(filter(NUMBERED.fullmatch, columns))
    is_empty = True
    for number, cells in lines:
        is_empty = False
        if not isinstance(cells, InputError) and len(cells) != len(columns):
            numbers = f"the number of fields is {len(cells)}, but {len(columns)} in the header"
            cells = InputError(f"{numbers}; put a text that has the separator in quotation marks")
        row = cells if isinstance(cells, InputError) else dict(zip(columns, cells, strict=True))
        yield number, _data_row(row, numbered) if is_data and isinstance(row, dict) else row
    if is_empty:
        raise unusable_file(path, "has no rows under its header; write one row per line")


def _delimiter(text: str) -> str:
    """Return the delimiter that gives the header the most columns."""

    def num_columns(delimiter: str) -> int:
        _, names = next(_csv_lines(text, delimiter), (1, list[str]()))
        return 0 if isinstance(names, InputError) else len(names)

    return max(",;\t", key=num_columns)


def _csv_lines(text: str, delimiter: str) -> Lines:
    """Yield the cells of each row that is not blank with the number of its first line; an error ends them."""
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, strict=True)
    start = 1
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield start, cells
            start = reader.line_num + 1
    except csv.Error as error:
        yield start, InputError(f"{error}; check its quotation marks")


def _check_columns(path: Path, columns: list[str], line: int) -> None:
    """Raise InputError for a missing or repeated column."""
    for name, count in Counter(columns).items():
        if count > 1 and not _UNNAMED.fullmatch(name):
            message = f"column {name!r} is there twice; give every column one name"
            raise ValidationErrors([Problem(message, line=line)], str(path))
    numbers = {int(found[2]) for name in columns if (found := NUMBERED.fullmatch(name))}
    if len(numbers) > MAX_DOCUMENTS:
        message = f"{path} has too many documents: got {len(numbers):,}, expected at most {MAX_DOCUMENTS:,}"
        raise InputError(message, field="documents")
    needed = [f"document{number}" for number in range(1, len(numbers) + 1)]
    is_row = not set(DOCUMENT_NAMES).isdisjoint(columns) or any(map(set(columns).issuperset, JUDGED_NAMES))
    is_row |= has_options(dict.fromkeys(columns, "x"))
    if not numbers and not is_row and set(TEXT_NAMES).isdisjoint(columns):
        needed = ["document1" if "question" in columns else "text"]
    if missing := sorted(set(needed).difference(columns), key=needed.index):
        header, advice = (
            ", ".join(columns),
            "documents have the column text, rows documents or document1, document2, ...; rename a column, "
            "or give --column FIELD=COLUMN",
        )
        message = f"{path} has no column {missing[0]!r}, its header reads {header!r:.300}; {advice}"
        raise InputError(message, field=missing[0])


def _data_row(cells: dict[str, str], numbered: frozenset[str]) -> dict[str, Any] | InputError:
    named = {name: cell for name, cell in cells.items() if not _UNNAMED.fullmatch(name)}
    stripped = {name: named[name].strip() for name in ("id", "task", "gold_index") if name in named}
    row: dict[str, Any] = {
        name: cell
        for name, cell in (named | stripped).items()
        if cell or name in REFERENCE_NAMES or name in numbered
    }
    for name in LIST_COLUMNS & row.keys():
        try:
            row[name] = parse_cell(row[name])
        except ValueError as error:
            return ValidationErrors([Problem(f"{name}: {error}; save the rows as JSON lines", name)])
    if "input" in row:  # deepeval joins lists in CSV
        joined = [name for name in ("retrieval_context", "context") if isinstance(row.get(name), str)]
        row |= {name: row[name].split("|") for name in joined}
    row = number_documents(row) if numbered else row
    if isinstance(row.get("answers"), str):
        row["answers"] = [answer.strip() for answer in row["answers"].split("|") if answer.strip()]
    if gold := row.pop("gold_index", ""):
        if not re.fullmatch(r"-?\d{1,9}(\.0)?", gold):
            problem = f"gold_index is {gold!r:.60}; give the number of a document from 0, or nothing"
            return InputError(problem, field="gold_index")
        row["gold_index"] = int(gold.removesuffix(".0"))
    return row
