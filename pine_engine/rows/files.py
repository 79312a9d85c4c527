"""Rows of files: JSON, JSON lines, tables, Parquet, and folders; text also compressed by gzip.

A row is parsed JSON of any type; that of a table is an object (`tables.py`).
"""

import gzip
import io
import json
import logging
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pine_engine.errors import InputError, one_line
from pine_engine.optional_packages import import_extra
from pine_engine.rows.columns import Columns, rename_columns, rename_header
from pine_engine.rows.decoding import decode
from pine_engine.rows.nested import rows_of_file
from pine_engine.rows.office_files import SHEET, TEXTS, read_sheet
from pine_engine.rows.parse_errors import MAX_SHOWN, Problem, ValidationErrors, unusable_file
from pine_engine.rows.published import is_row
from pine_engine.rows.retrieval_folders import is_retrieval_folder, read_retrieval_folder
from pine_engine.rows.tables import Lines, split_cells, table_rows

logger = logging.getLogger(__name__)

STDIN = Path("-")

LINES, TABLES, PARQUET = (".jsonl", ".ndjson"), (".csv", ".tsv"), ".parquet"
KINDS = (*LINES, ".json", *TABLES, SHEET, PARQUET)
"""Endings of files with rows. Others are read like JSON lines, or as a table with tabs."""

PLAIN_TEXT = (".txt", ".md")
GUESSED = (*TABLES, *PLAIN_TEXT)
"""Endings of files whose encoding may be a guess."""

_SEVERAL_LINES = re.compile(r"\s*+([^\n]*+)\n\s*\S")
"""The first of several lines with text."""

Row = TypeVar("Row")


class _Rows(NamedTuple):
    """Rows with their numbers, and what these count in messages; a row with a mistake is its error."""

    unit: str
    rows: Iterator[tuple[int, Any]]
    is_table: bool = False  # True if columns are renamed


def parse_rows(
    path: Path, parse: Callable[[int, Any], Row], max_bytes: int | None = None, columns: Columns | None = None
) -> Iterator[tuple[int, Row]]:
    """Yield what `parse` returns for each number and row of a file, with the number.

    Numbers are lines, or count the rows from 1 where these are no lines. `columns` have the names of fields.
    Raises InputError with all problems of the file, and for more than `max_bytes` bytes of text.
    """
    found = _read_rows(path, max_bytes, columns or {})

    def parse_renamed(number: int, row: Any) -> Row:
        return parse(number, row if found.is_table else rename_columns(row, columns or {}))

    return _rows_or_mistakes(path, found.rows, parse_renamed, found.unit)


def _read_rows(path: Path, max_bytes: int | None, columns: Columns) -> _Rows:
    kind = file_kind(path)
    if kind == PARQUET or path.is_dir():
        return _Rows("row", _dataset_rows(path))
    if kind in TEXTS:
        raise unusable_file(path, "is a text and has no rows; save its table as .xlsx or .csv")
    if (lines := _read_table(path, max_bytes)) is not None:
        unit = "row" if kind == SHEET else "line"
        return _Rows(unit, table_rows(path, lines, columns), is_table=True)
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
    return split_cells(text, kind) if is_table else None


def _rows_or_mistakes(
    path: Path, rows: Iterator[tuple[int, Any]], parse: Callable[[int, Any], Row], unit: str
) -> Iterator[tuple[int, Row]]:
    """Yield the parsed rows with their numbers; after the first mistake, check the others only.

    Parsing ends after MAX_SHOWN problems. `unit` is what the numbers count, "" for a file that is one row.
    """
    problems: list[Problem] = []

    def locate(problem: Problem, number: int) -> Problem:
        return replace(problem, line=number, unit=unit) if unit else problem

    try:
        for number, row in rows:
            try:
                if isinstance(row, InputError):
                    raise row
                parsed = parse(number, row)
            except ValidationErrors as error:
                problems += (locate(problem, number) for problem in error.problems)
            except InputError as error:
                problems.append(locate(Problem(str(error)), number))
            else:
                if not problems:
                    yield number, parsed
            if len(problems) > MAX_SHOWN:
                break
    except ValidationErrors as error:  # the rest of the file cannot be parsed
        problems += error.problems
    if problems:
        raise ValidationErrors(problems, str(path))


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
    else:
        found = _Rows("line", table_rows(path, lines, {}, is_data=False))

    def parse_object(_: int, row: Any) -> Row:
        if not isinstance(row, dict):
            raise InputError(f"row is no object: got {type(row).__name__}, expected names and values")
        return parse(row)

    return _rows_or_mistakes(path, found.rows, parse_object, found.unit)


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
    if isinstance(content, list) and any(isinstance(row, types) or is_row(row) for row in content):
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
        raise unusable_file(path, problem) from error
    if not number:
        raise unusable_file(path, "has no rows; expected one example per row")


def _folder_rows(path: Path) -> Iterator[dict[str, Any]]:
    if is_retrieval_folder(path):
        yield from read_retrieval_folder(path)
        return
    datasets = import_extra("datasets", "datasets")
    found = datasets.load_from_disk(str(path))
    if isinstance(found, datasets.DatasetDict):
        splits = ", ".join(str(path / split) for split in found)
        raise unusable_file(path, f"has several splits; give one of: {splits}")
    yield from found
