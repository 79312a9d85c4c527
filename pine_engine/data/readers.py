"""What stands in a source file, record by record, within limits: JSON, JSON lines, CSV, Parquet."""

import csv
import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from pine_engine.errors import InputError
from pine_engine.extras import how_to_install

MAX_UNPACKED = 500_000_000
"""Most bytes that a file is read to, unpacked; a small packed file can hold a disk full of zeros."""

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class SourceRecord:
    """One record: what stands in it, and where.

    file: as a reader would call it. index: its place among the file's records, counted from 0. part: which
    part of the set the file is, such as a subset or a programming language.
    """

    file: str
    index: int
    part: str
    content: Any

    def parse(self, model: type[Model]) -> Model:
        """The content as that model. Raises InputError that names the record and the field."""
        try:
            return model.model_validate(self.content)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"])) or "the record"
            raise self.unexpected(f"{field}: {first['msg'].lower()}") from error

    def unexpected(self, found: str) -> InputError:
        """The error for a record that is not of the form that its source had."""
        return InputError(
            f"{self.file}, record {self.index}: {found}; the source has another form than this version of "
            "the program knows"
        )


def read_json_lines(path: Path, *, max_bytes: int = MAX_UNPACKED) -> Iterator[Any]:
    """One value per line that is not empty; a name that ends in .gz is unpacked on the way.

    Raises InputError if a line is no JSON, the file is damaged, or larger than max_bytes.
    """
    for number, line in enumerate(_lines(path, max_bytes), start=1):
        if line.strip():
            yield _parse(line, f"{path}, line {number}")


def read_json_list(path: Path, *, max_bytes: int = MAX_UNPACKED) -> Iterator[Any]:
    """The values of a JSON list. Raises InputError as read_json_lines does, or if it is no list."""
    content = _parse("".join(_lines(path, max_bytes)), str(path))
    if not isinstance(content, list):
        raise InputError(f"{path} holds no list of records; delete it, and run the same command again")
    yield from content


def read_csv(path: Path, *, max_bytes: int = MAX_UNPACKED) -> Iterator[dict[str, str]]:
    """The rows of a table by the names of its columns. Raises InputError as read_json_lines does."""
    try:
        yield from csv.DictReader(_lines(path, max_bytes))
    except csv.Error as error:
        raise InputError(f"{path} is no table: {error}; delete it, and run the same command again") from error


def read_parquet(path: Path, *, max_bytes: int = MAX_UNPACKED) -> Iterator[dict[str, Any]]:
    """The rows of a Parquet file, read with the package `datasets` row group by row group.

    Raises InputError if that package is missing, or the file is damaged. max_bytes: of the packed file.
    """
    datasets = require_datasets()
    if path.stat().st_size > max_bytes:
        raise _too_large(path, max_bytes)
    try:
        yield from datasets.load_dataset("parquet", data_files=str(path), split="train", streaming=True)
    except Exception as error:  # of many kinds, by layers below that package
        raise InputError(
            f"{path} cannot be read as Parquet: {error}; delete it, and run the same command again"
        ) from error


def require_datasets() -> Any:
    """The package `datasets`. Raises InputError that says how to install it."""
    try:
        import datasets
    except ImportError as error:
        raise InputError(
            f"the package datasets is not installed, which reads this set; {how_to_install('datasets')}"
        ) from error
    return datasets


def _lines(path: Path, max_bytes: int) -> Iterator[str]:
    """The lines of a file. Cut at line feeds alone: other separators may stand inside a JSON string."""
    left = max_bytes
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            # One byte more than is left, or a file of just that size would look like a longer one.
            while line := file.readline(left + 1):
                left -= len(line)
                if left < 0:
                    raise _too_large(path, max_bytes)
                yield line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text; delete it, and run the same command again") from error
    except (EOFError, OSError, zlib.error) as error:
        raise InputError(f"{path} is damaged ({error}); delete it, and run the same command again") from error


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{where} is not JSON ({error}); delete the file, and run the same command again"
        ) from error


def _too_large(path: Path, max_bytes: int) -> InputError:
    return InputError(
        f"{path} holds more than {max_bytes:,} bytes, the most that is read here; it is not the file that "
        "this version of the program knows"
    )
