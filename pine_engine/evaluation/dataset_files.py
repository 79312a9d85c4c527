"""Rows of a dataset as the `datasets` package stores it: a Parquet file, or a folder of `save_to_disk`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pine_engine.errors import InputError, one_line
from pine_engine.extras import import_extra


def is_dataset(path: Path) -> bool:
    """Return True for a Parquet file and for a folder."""
    return path.suffix.lower() == ".parquet" or path.is_dir()


def each_row(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the rows as JSON without missing values, with their numbers from 1. Raises InputError."""
    number = 0
    rows = _folder_rows(path) if path.is_dir() else _parquet_rows(path)
    try:
        for number, row in enumerate(rows, start=1):
            present = {key: value for key, value in row.items() if value is not None}
            yield number, json.dumps(present, default=str)
    except (OSError, ValueError) as error:  # ValueError: also the base of errors of pyarrow
        message = f"{path} cannot be read: {one_line(error)}; expected a Parquet file or a saved dataset"
        raise InputError(message, field=str(path)) from error
    if not number:
        raise InputError(f"{path} has no rows; expected one example per row", field=str(path))


def _parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    with import_extra("pyarrow.parquet", "pyarrow").ParquetFile(path) as file:
        for batch in file.iter_batches():
            yield from batch.to_pylist()


def _folder_rows(path: Path) -> Iterator[dict[str, Any]]:
    datasets = import_extra("datasets", "datasets")
    found = datasets.load_from_disk(str(path))
    if isinstance(found, datasets.DatasetDict):
        splits = ", ".join(str(path / split) for split in found)
        raise InputError(f"{path} has several splits; give one of: {splits}", field=str(path))
    yield from found
