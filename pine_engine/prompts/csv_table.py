"""CSV with a header into rows by column name, each with the number of the line where it starts."""

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pine_engine.errors import InputError
from pine_engine.prompts.inputs import read_text

Record = list[str] | csv.Error
"""The fields of a record, or why what follows cannot be read."""


@dataclass(frozen=True)
class Table:
    """A CSV file. header: the names of its columns.

    records: each with the number of its line, counted from 1; read as they are asked for, once. They raise
    InputError if there is none.
    """

    header: tuple[str, ...]
    records: Iterator[tuple[int, Record]]

    def row(self, record: Record) -> dict[str, str]:
        """The fields by column. Raises InputError for what cannot be read, or has too few fields or many."""
        if isinstance(record, csv.Error):
            raise InputError(f"{record}; check its quotation marks") from record
        if len(record) != len(self.header):
            raise InputError(
                f"the number of fields is {len(record)}, but {len(self.header)} in the header; put a text "
                "that holds commas in quotation marks"
            )
        return dict(zip(self.header, record, strict=True))


def read_table(path: Path) -> Table:
    """The table in a CSV file.

    Fields are separated by commas; one that holds commas, quotation marks or newlines stands in quotation
    marks. Column names are read without blanks around them, in lower case.
    Raises InputError that names the file, and the line of what is wrong in its header.
    """
    records = _records(path)
    number, names = next(records, (1, []))
    if isinstance(names, csv.Error):
        raise InputError(f"{path}, line {number}: {names}; check its quotation marks") from names
    header = tuple(name.strip().lower() for name in names)
    if not any(header):
        raise InputError(f"{path} is empty; its first line has to name the columns")
    if twice := sorted(name for name, count in Counter(header).items() if count > 1):
        raise InputError(
            f"{path}, line {number}: column {twice[0]!r} is there twice; give every column one name"
        )
    return Table(header, _some(path, records))


def _some(path: Path, records: Iterator[tuple[int, Record]]) -> Iterator[tuple[int, Record]]:
    is_empty = True
    for record in records:
        is_empty = False
        yield record
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


def _records(path: Path) -> Iterator[tuple[int, Record]]:
    """The records that are not blank, with the line where each starts; what cannot be read is the last."""
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
        yield start, error
