"""CSV with a header into rows by column name, each with the number of the line where it starts."""

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pine_engine.errors import InputError
from pine_engine.prompts.inputs import read_text


@dataclass(frozen=True)
class Table:
    """A CSV file. header: the names of its columns.

    rows: each with the number of its line, counted from 1, and a field for every column; read as they are
    asked for, once. They raise InputError that names the line of what is wrong, or says that there is none.
    """

    header: tuple[str, ...]
    rows: Iterator[tuple[int, dict[str, str]]]


def read_table(path: Path) -> Table:
    """The table in a CSV file.

    Fields are separated by commas; one that holds commas, quotation marks or newlines stands in quotation
    marks. Column names are read without blanks around them, in lower case.
    Raises InputError that names the file, and the line of what is wrong in its header.
    """
    records = _records(path)
    number, names = next(records, (1, []))
    header = tuple(name.strip().lower() for name in names)
    if not any(header):
        raise InputError(f"{path} is empty; its first line has to name the columns")
    if twice := sorted(name for name, count in Counter(header).items() if count > 1):
        raise InputError(
            f"{path}, line {number}: column {twice[0]!r} is there twice; give every column one name"
        )
    return Table(header, _rows(path, header, records))


def _rows(
    path: Path, header: tuple[str, ...], records: Iterator[tuple[int, list[str]]]
) -> Iterator[tuple[int, dict[str, str]]]:
    is_empty = True
    for number, fields in records:
        if len(fields) != len(header):
            raise InputError(
                f"{path}, line {number}: the number of fields is {len(fields)}, but {len(header)} in the "
                "header; put a text that holds commas in quotation marks"
            )
        is_empty = False
        yield number, dict(zip(header, fields, strict=True))
    if is_empty:
        raise InputError(f"{path} has no rows under its header; write one row per line")


def check_columns(path: Path, header: Sequence[str], *, needed: set[str], allowed: set[str]) -> None:
    """Raises InputError if a column that is needed is missing, or there is one that is not allowed."""
    for name in sorted(needed.difference(header)):
        raise InputError(
            f"{path} has no column {name!r}, its header reads {', '.join(header)!r}; name the columns, "
            "separated by commas, in its first line"
        )
    known = allowed | needed
    for name in header:
        if name not in known:
            raise InputError(
                f"{path}: column {name!r} is not known; remove it, or use: {', '.join(sorted(known))}"
            )


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The records that are not blank, with the line where each starts."""
    # Spreadsheets put a byte order mark in front, which is no part of the first name.
    lines = io.StringIO(read_text(path).removeprefix("\ufeff"))
    reader = csv.reader(lines, strict=True)
    start = 1
    try:
        for fields in reader:
            if any(field.strip() for field in fields):
                yield start, fields
            start = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"{path}, line {start}: {error}; check its quotation marks") from error
