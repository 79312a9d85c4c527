"""Rows of files: JSON, JSON lines, tables, Parquet, and folders; text also compressed by gzip.

A row is parsed JSON of any type. A CSV row is an object without its empty cells.
"""

import csv
import gzip
import io
import json
import logging
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pine_engine.errors import InputError, one_line
from pine_engine.optional_packages import import_extra
from pine_engine.rows.cells import parse_cell
from pine_engine.rows.columns import NUMBERED, Columns, number_documents, rename_columns, rename_header
from pine_engine.rows.decoding import decode
from pine_engine.rows.document_keys import TEXT_NAMES
from pine_engine.rows.nested import rows_of_file
from pine_engine.rows.office_files import SHEET, TEXTS, read_sheet
from pine_engine.rows.options import OPTION_NAMES, has_options
from pine_engine.rows.parse_errors import Problem, ValidationErrors, rows_or_mistakes
from pine_engine.rows.published import (
    ANSWER_NAMES,
    DOCUMENT_NAMES,
    JUDGED_NAMES,
    REFERENCE_NAMES,
    has_documents,
)
from pine_engine.rows.retrieval_folders import is_retrieval_folder, read_retrieval_folder

logger = logging.getLogger(__name__)

STDIN = Path("-")

MAX_DOCUMENTS = 10_000
"""Documents of one row or request. More are rejected before a record is made of any."""

LINES, TABLES, PARQUET = (".jsonl", ".ndjson"), (".csv", ".tsv"), ".parquet"
KINDS = (*LINES, ".json", *TABLES, SHEET, PARQUET)
"""Endings of files with rows. Others are read like JSON lines, or as a table with tabs."""

PLAIN_TEXT = (".txt", ".md")
GUESSED = (*TABLES, *PLAIN_TEXT)
"""Endings of files whose encoding may be a guess."""

_SEPARATOR_LINE = re.compile(r"""\A"?sep=([^"\n])"?[,;\t]*\n""", re.IGNORECASE)
"""First line of a table that names its separator, for Excel."""

_SEVERAL_LINES = re.compile(r"\s*+([^\n]*+)\n\s*\S")
"""The first of several lines with text."""

LIST_COLUMNS = {
    *ANSWER_NAMES,
    *DOCUMENT_NAMES,
    *chain(*JUDGED_NAMES),
    *OPTION_NAMES,
    "rejected_answers",
    "prompt",
}
"""Columns of tables whose cells may be lists."""

_UNNAMED = re.compile(r"|unnamed: [\d.]+")
"""Names of the index in files of pandas."""

Row = TypeVar("Row")

Lines = Iterator[tuple[int, list[str] | InputError]]
"""Cells of each line of a table with its number; an error ends them."""


class _Rows(NamedTuple):
    """Rows with their numbers, and what these count in messages; a row with a mistake is its error."""

    unit: str
    rows: Iterator[tuple[int, Any]]
    is_table: bool = False  # True if columns are renamed


def parse_rows(
    path: Path,
    parse: Callable[[int, Any], Row],
    max_bytes: int | None = None,
    columns: Columns | None = None,
) -> Iterator[tuple[int, Row]]:
    """Yield what `parse` returns for each number and row of a file, with the number.

    Numbers are lines, or count the rows from 1 where these are no lines. `columns` have the names of fields.
    Raises InputError with all problems of the file, and for more than `max_bytes` bytes of text.
    """
    found = _read_rows(path, max_bytes, columns or {})

    def parse_or_raise(number: int, row: Any) -> Row:
        if isinstance(row, InputError):
            raise row
        return parse(number, row if found.is_table else rename_columns(row, columns or {}))

    return rows_or_mistakes(path, found.rows, parse_or_raise, found.unit)


def _read_rows(path: Path, max_bytes: int | None, columns: Columns) -> _Rows:
    kind = file_kind(path)
    if kind == PARQUET or path.is_dir():
        return _Rows("row", _dataset_rows(path))
    if kind in TEXTS:
        raise _unusable(path, "is a text and has no rows; save its table as .xlsx or .csv")
    if (lines := _read_table(path, max_bytes)) is not None:
        unit = "row" if kind == SHEET else "line"
        return _Rows(unit, _table_rows(path, lines, columns), is_table=True)
    return _json_rows(path, read_text(path, max_bytes), has_columns=bool(columns))


def _read_table(path: Path, max_bytes: int | None) -> Lines | None:
    """Return the cells of a table by line, None for another file.

    Text with tabs in its first line is a table, too: "Unicode Text" of Excel has the ending .txt.
    """
    kind = file_kind(path)
    if kind == SHEET:
        return read_sheet(path)
    if kind not in GUESSED:
        return None
    text = read_text(path, max_bytes)
    first = text.lstrip().partition("\n")[0]
    is_table = kind in TABLES or ("\t" in first and not first.startswith(("{", "[")))
    return _split_cells(text, kind) if is_table else None


def preview_rows(path: Path, count: int, max_bytes: int | None = None) -> list[dict[str, Any]]:
    """Return the first rows of a file as they are; those that are no objects are left out.

    Raises InputError for a file that cannot be read.
    """
    if (lines := _read_table(path, max_bytes)) is None:
        rows = (row for _, row in _json_rows(path, read_text(path, max_bytes), has_columns=True).rows)
        return [row for row in islice(rows, count) if isinstance(row, dict)]
    header, *cells = [row for _, row in islice(lines, count + 1) if isinstance(row, list)] or [[]]
    return [dict(zip(rename_header(header, {}), row, strict=False)) for row in cells]


def parse_objects(path: Path, parse: Callable[[dict[str, Any]], Row]) -> Iterator[tuple[int, Row]]:
    """Yield what `parse` returns for each object of a file with any keys, or row of a table, and its number.

    Columns of a table are in lower case. Raises InputError with all problems of the file.
    """
    lines = _read_table(path, None)
    if lines is None:
        found = _json_rows(path, read_text(path), has_columns=True)
        rows, unit = found.rows, found.unit
    else:
        _, header = next(lines, (1, list[str]()))
        names = header if isinstance(header, InputError) else rename_header(header, {})
        rows, unit = ((number, _named_cells(names, cells)) for number, cells in lines), "line"

    def parse_or_raise(_: int, row: Any) -> Row:
        if isinstance(row, InputError):
            raise row
        if not isinstance(row, dict):
            raise InputError(f"row is no object: got {type(row).__name__}, expected names and values")
        return parse(row)

    yield from rows_or_mistakes(path, rows, parse_or_raise, unit)


def _named_cells(names: list[str] | InputError, cells: list[str] | InputError) -> Any:
    if isinstance(names, InputError) or isinstance(cells, InputError):
        return names if isinstance(names, InputError) else cells
    if len(names) != len(cells):
        return InputError(f"the number of fields is {len(cells)}, but {len(names)} in the header")
    return dict(zip(names, cells, strict=True))


def file_kind(path: Path) -> str:
    """Return the ending of a file name in lower case, without that of gzip."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def read_text(path: Path, max_bytes: int | None = None) -> str:
    """Return the text of a file, of stdin for "-", without byte order mark; logs a guessed encoding.

    Raises InputError.
    """
    text, guess = read_encoded(path, max_bytes)
    if guess:
        logger.warning(
            "%s is not UTF-8: read as %s, which is a guess; save it as UTF-8 to be sure", path, guess
        )
    return text


def read_encoded(path: Path, max_bytes: int | None = None) -> tuple[str, str]:
    """Return the text of a file, and the encoding if it is a guess, else "". JSON is never a guess.

    Raises InputError.
    """
    try:
        if path == STDIN:
            content = sys.stdin.buffer.read()
        else:
            with (gzip.open if path.suffix.lower() == ".gz" else open)(path, "rb") as file:
                content = file.read(-1 if max_bytes is None else max_bytes + 1)
        if max_bytes is not None and len(content) > max_bytes:
            raise InputError(f"{path} has more than {max_bytes:,} bytes; give a part of it", field=str(path))
        return decode(content, may_guess=file_kind(path) in GUESSED)
    except (OSError, ValueError, EOFError, zlib.error) as error:
        problem = "is not UTF-8 text; save it as UTF-8"
        if isinstance(error, gzip.BadGzipFile | EOFError | zlib.error):
            problem = "is not a complete gzip file; compress it again"
        elif isinstance(error, OSError):
            problem = f"cannot be read: {error.strerror}; give the path of a file that exists"
        raise InputError(f"{path} {problem}", field=str(path)) from error


def guessed_encoding(path: Path) -> str:
    """Return the encoding with which a file is read if it is a guess, else "". Raises InputError."""
    return read_encoded(path)[1] if file_kind(path) in GUESSED else ""


def load_json(text: str, source: str = "", *, is_line: bool = False) -> Any:
    """Return the content of JSON. Raises ValidationErrors with the place of a mistake."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        problem = "a number is too long, or it is nested too deeply"
        if isinstance(error, json.JSONDecodeError):
            problem = f"{error.msg} at {'' if is_line else f'line {error.lineno} '}column {error.colno}"
        raise ValidationErrors([Problem(f"it is not JSON: {problem}")], source) from error


def _json_rows(path: Path, text: str, *, has_columns: bool) -> _Rows:
    """Return each line, each item of a list of rows, or else the whole content of the file as a row.

    Objects of a list are rows if columns are named, and documents if they have no names of a row.
    """
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
    if (rows := rows_of_file(content)) is not None:
        return _Rows("row", enumerate(rows, start=1))
    types = (list, dict) if has_columns else list
    if isinstance(content, list) and any(isinstance(row, types) or has_documents(row) for row in content):
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


def _split_cells(text: str, kind: str) -> Lines:
    """Return the cells of a text, by its separator (`sep=;`), that of its ending, or the likeliest."""
    # A setting of the module, whose 131,072 characters are fewer than those of a long document.
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    if found := _SEPARATOR_LINE.match(text):
        return _csv_lines(text[found.end() - 1 :], found[1])  # the line stays, blank, and counts
    return _csv_lines(text, "\t" if kind == ".tsv" else _delimiter(text))


def _table_rows(path: Path, lines: Lines, renamed: Columns) -> Iterator[tuple[int, Any]]:
    """Yield objects: the cells by column, documents and titles by number as documents."""
    number, names = next(lines, (1, list[str]()))
    if isinstance(names, InputError):
        raise ValidationErrors([Problem(str(names), line=number)], str(path))
    if not names:
        raise _unusable(path, "is empty; its first line has to name the columns")
    try:
        columns = rename_header(names, renamed)
    except InputError as error:
        raise InputError(f"{path} has {error}", field=error.field) from error
    _check_columns(path, columns, number)
    numbered = frozenset(filter(NUMBERED.fullmatch, columns))
    is_empty = True
    for number, cells in lines:
        is_empty = False
        if not isinstance(cells, InputError) and len(cells) != len(columns):
            numbers = f"the number of fields is {len(cells)}, but {len(columns)} in the header"
            cells = InputError(f"{numbers}; put a text that has the separator in quotation marks")
        yield number, cells if isinstance(cells, InputError) else _table_row(columns, cells, numbered)
    if is_empty:
        raise _unusable(path, "has no rows under its header; write one row per line")


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


def _table_row(columns: list[str], cells: list[str], numbered: frozenset[str]) -> dict[str, Any] | InputError:
    named = {name: cell for name, cell in zip(columns, cells, strict=True) if not _UNNAMED.fullmatch(name)}
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
        problem = f"cannot be read: {one_line(error)}; expected a Parquet file, a saved dataset or a corpus"
        raise _unusable(path, problem) from error
    if not number:
        raise _unusable(path, "has no rows; expected one example per row")


def _folder_rows(path: Path) -> Iterator[dict[str, Any]]:
    if is_retrieval_folder(path):
        yield from read_retrieval_folder(path)
        return
    datasets = import_extra("datasets", "datasets")
    found = datasets.load_from_disk(str(path))
    if isinstance(found, datasets.DatasetDict):
        splits = ", ".join(str(path / split) for split in found)
        raise _unusable(path, f"has several splits; give one of: {splits}")
    yield from found
