"""Rows of files: JSON, JSON lines, CSV, Parquet and folders of `datasets`; text also compressed by gzip.

A row is parsed JSON of any type. A CSV row is an object without its empty cells.
"""

import csv
import gzip
import io
import json
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pine_engine.errors import InputError, one_line
from pine_engine.optional_packages import import_extra
from pine_engine.rows.cells import parse_cell
from pine_engine.rows.parse_errors import Problem, ValidationErrors, rows_or_mistakes
from pine_engine.rows.published import (
    ANSWER_NAMES,
    DOCUMENT_NAMES,
    JUDGED_NAMES,
    REFERENCE_NAMES,
    TEXT_NAMES,
    has_documents,
)

STDIN = Path("-")

MAX_DOCUMENTS = 10_000
"""Documents of one row or request. More are rejected before a record is made of any."""

LINES, TABLES, PARQUET = (".jsonl", ".ndjson"), (".csv", ".tsv"), ".parquet"
KINDS = (*LINES, ".json", *TABLES, PARQUET)
"""Endings of files with rows. All others of `parse_rows` are read like JSON lines."""

_SEVERAL_LINES = re.compile(r"\s*+([^\n]*+)\n\s*\S")
"""The first of several lines with text."""

LIST_COLUMNS = {
    *ANSWER_NAMES,
    *DOCUMENT_NAMES,
    *chain(*JUDGED_NAMES),
    "choices",
    "rejected_answers",
    "prompt",
}
"""Columns of tables whose cells may be lists."""

_UNNAMED = re.compile(r"|unnamed: [\d.]+")
"""Names of the index in files of pandas."""

Row = TypeVar("Row")


class _Rows(NamedTuple):
    """Rows with their numbers, and what these count in messages; a row with a mistake is its error."""

    unit: str
    rows: Iterator[tuple[int, Any]]


def parse_rows(
    path: Path, parse: Callable[[int, Any], Row], max_bytes: int | None = None
) -> Iterator[tuple[int, Row]]:
    """Yield what `parse` returns for each number and row of a file, with the number.

    Numbers are lines, or count the rows from 1 where these are no lines. Raises InputError with all problems
    of the file, and for more than `max_bytes` bytes of text.
    """
    kind = file_kind(path)
    if kind == PARQUET or path.is_dir():
        found = _Rows("row", _dataset_rows(path))
    else:
        text = read_text(path, max_bytes)
        found = _Rows("line", _csv_rows(path, text)) if kind in TABLES else _json_rows(path, text)

    def parse_or_raise(number: int, row: Any) -> Row:
        if isinstance(row, InputError):
            raise row
        return parse(number, row)

    return rows_or_mistakes(path, found.rows, parse_or_raise, found.unit)


def file_kind(path: Path) -> str:
    """Return the ending of a file name in lower case, without that of gzip."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def read_text(path: Path, max_bytes: int | None = None) -> str:
    """Return UTF-8 text of a file, of stdin for "-", without byte order mark. Raises InputError."""
    try:
        if path == STDIN:
            content = sys.stdin.buffer.read()
        else:
            with (gzip.open if path.suffix.lower() == ".gz" else open)(path, "rb") as file:
                content = file.read(-1 if max_bytes is None else max_bytes + 1)
        if max_bytes is not None and len(content) > max_bytes:
            raise InputError(f"{path} has more than {max_bytes:,} bytes; give a part of it", field=str(path))
        text = io.TextIOWrapper(io.BytesIO(content), "utf-8-sig").read()
        if "\0" in text:  # UTF-16 without a byte order mark, or no text
            raise ValueError
        return text
    except (OSError, ValueError, EOFError, zlib.error) as error:
        problem = "is not UTF-8 text; save it as UTF-8"
        if isinstance(error, gzip.BadGzipFile | EOFError | zlib.error):
            problem = "is not a complete gzip file; compress it again"
        elif isinstance(error, OSError):
            problem = f"cannot be read: {error.strerror}; give the path of a file that exists"
        raise InputError(f"{path} {problem}", field=str(path)) from error


def load_json(text: str, source: str = "", *, is_line: bool = False) -> Any:
    """Return the content of JSON. Raises ValidationErrors with the place of a mistake."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        problem = "a number is too long, or it is nested too deeply"
        if isinstance(error, json.JSONDecodeError):
            problem = f"{error.msg} at {'' if is_line else f'line {error.lineno} '}column {error.colno}"
        raise ValidationErrors([Problem(f"it is not JSON: {problem}")], source) from error


def _json_rows(path: Path, text: str) -> _Rows:
    """Return each line, each item of a list of rows, or else the whole content of the file as a row."""
    several = _SEVERAL_LINES.match(text)
    first = several[1] if several else text
    content = _or_error(first)
    if several and not isinstance(content, InputError):
        return _Rows("line", _json_lines(path, text))
    is_document = path == STDIN or file_kind(path) == ".json"
    is_document |= several is not None and (first.startswith("[") or first.strip() == "{")
    is_document &= bool(text.strip())
    if is_document:
        content = load_json(text, str(path))
    if isinstance(content, list) and any(isinstance(row, list) or has_documents(row) for row in content):
        return _Rows("row", enumerate(content, start=1))
    return _Rows("", iter([(1, content)])) if is_document else _Rows("line", _json_lines(path, text))


def _json_lines(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    is_empty = True
    # Not splitlines(), which would also cut at U+2028 and others that a JSON string may contain.
    for number, line in enumerate(io.StringIO(text, newline="\n"), start=1):
        if line.strip():
            is_empty = False
            yield number, _or_error(line.removesuffix("\n"))
    if is_empty:
        raise InputError(f"{path} has no rows; expected one JSON object per line", field=str(path))


def _or_error(line: str) -> Any:
    try:
        return load_json(line, is_line=True)
    except InputError as error:
        return error


def _csv_rows(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    """Yield objects: the cells by column, documents and titles by number as documents."""
    # A setting of the module, whose 131,072 characters are fewer than those of a long document.
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    delimiter = "\t" if file_kind(path) == ".tsv" else _delimiter(text)
    lines = _csv_lines(text, delimiter)
    number, names = next(lines, (1, list[str]()))
    if isinstance(names, InputError):
        raise ValidationErrors([Problem(str(names), line=number)], str(path))
    columns = [name.strip().lower() for name in names]
    if not columns:
        raise _unusable(path, "is empty; its first line has to name the columns")
    num_documents = _check_columns(path, columns, number)
    is_empty = True
    for number, cells in lines:
        is_empty = False
        if not isinstance(cells, InputError) and len(cells) != len(columns):
            numbers = f"the number of fields is {len(cells)}, but {len(columns)} in the header"
            cells = InputError(f"{numbers}; put a text that has {delimiter!r} in quotation marks")
        yield number, cells if isinstance(cells, InputError) else _csv_row(columns, cells, num_documents)
    if is_empty:
        raise _unusable(path, "has no rows under its header; write one row per line")


def _delimiter(text: str) -> str:
    """Return the delimiter that gives the header the most columns."""

    def num_columns(delimiter: str) -> int:
        _, names = next(_csv_lines(text, delimiter), (1, list[str]()))
        return 0 if isinstance(names, InputError) else len(names)

    return max(",;\t", key=num_columns)


def _csv_lines(text: str, delimiter: str) -> Iterator[tuple[int, list[str] | InputError]]:
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


def _check_columns(path: Path, columns: list[str], line: int) -> int:
    """Return the number of columns of documents. Raises InputError for a missing or repeated column."""
    for name, count in Counter(columns).items():
        if count > 1 and not _UNNAMED.fullmatch(name):
            message = f"column {name!r} is there twice; give every column one name"
            raise ValidationErrors([Problem(message, line=line)], str(path))
    numbers = {
        int(found[1]) for name in columns if (found := re.fullmatch(r"(?:document|title)(\d{1,9})", name))
    }
    if len(numbers) > MAX_DOCUMENTS:
        message = f"{path} has too many documents: got {len(numbers):,}, expected at most {MAX_DOCUMENTS:,}"
        raise InputError(message, field="documents")
    needed = [f"document{number}" for number in range(1, len(numbers) + 1)]
    is_row = not set(DOCUMENT_NAMES).isdisjoint(columns) or any(map(set(columns).issuperset, JUDGED_NAMES))
    if not numbers and not is_row and set(TEXT_NAMES).isdisjoint(columns):
        needed = ["document1" if "question" in columns else "text"]
    if missing := sorted(set(needed).difference(columns), key=needed.index):
        header, advice = (
            ", ".join(columns),
            "documents have the column text, rows documents or document1, document2, ...",
        )
        message = f"{path} has no column {missing[0]!r}, its header reads {header!r:.300}; {advice}"
        raise InputError(message, field=missing[0])
    return len(numbers)


def _csv_row(columns: list[str], cells: list[str], num_documents: int) -> dict[str, Any] | InputError:
    named = {name: cell for name, cell in zip(columns, cells, strict=True) if not _UNNAMED.fullmatch(name)}
    stripped = {name: named[name].strip() for name in ("id", "task", "gold_index") if name in named}
    row: dict[str, Any] = {
        name: cell for name, cell in (named | stripped).items() if cell or name in REFERENCE_NAMES
    }
    for name in LIST_COLUMNS & row.keys():
        try:
            row[name] = parse_cell(row[name])
        except ValueError as error:
            return ValidationErrors([Problem(f"{name}: {error}; save the rows as JSON lines", name)])
    numbers = range(1, num_documents + 1)
    documents = [(row.pop(f"document{number}", ""), row.pop(f"title{number}", "")) for number in numbers]
    while len(documents) > 1 and documents[-1] == ("", ""):
        documents.pop()
    if documents:
        row["documents"] = [{"text": text, "title": title} for text, title in documents]
    if isinstance(row.get("answers"), str):
        row["answers"] = [answer.strip() for answer in row["answers"].split("|") if answer.strip()]
    if gold := row.pop("gold_index", ""):
        if not re.fullmatch(r"-?\d{1,9}(\.0)?", gold):
            problem = f"gold_index is {gold!r:.60}; give the number of a document from 0, or nothing"
            return InputError(problem, field="gold_index")
        row["gold_index"] = int(gold.removesuffix(".0"))
    return row


def _unusable(path: Path, problem: str) -> InputError:
    return InputError(f"{path} {problem}", field=str(path))


def read_parquet(path: Path) -> Iterator[dict[str, Any]]:
    """Read the rows of a Parquet file as dicts. Raises InputError if pyarrow is not installed."""
    with import_extra("pyarrow.parquet", "pyarrow").ParquetFile(path) as file:
        for batch in file.iter_batches():
            yield from batch.to_pylist()


def _dataset_rows(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the rows as JSON has them, with their numbers from 1. Raises InputError."""
    number = 0
    rows = _folder_rows(path) if path.is_dir() else read_parquet(path)
    try:
        for number, row in enumerate(rows, start=1):
            yield number, json.loads(json.dumps(row, default=str))
    except (OSError, ValueError) as error:  # ValueError: also the base of errors of pyarrow
        problem = f"cannot be read: {one_line(error)}; expected a Parquet file or a saved dataset"
        raise _unusable(path, problem) from error
    if not number:
        raise _unusable(path, "has no rows; expected one example per row")


def _folder_rows(path: Path) -> Iterator[dict[str, Any]]:
    datasets = import_extra("datasets", "datasets")
    found = datasets.load_from_disk(str(path))
    if isinstance(found, datasets.DatasetDict):
        splits = ", ".join(str(path / split) for split in found)
        raise _unusable(path, f"has several splits; give one of: {splits}")
    yield from found
