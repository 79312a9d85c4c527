"""Public data sets: table of their pinned sources, download and conversion."""

import csv
import json
import sys
import tomllib
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from pine_engine.data import readers
from pine_engine.errors import InputError, one_line
from pine_engine.extras import how_to_install

Convert = Callable[[Iterable[readers.SourceRecord]], Iterator[readers.Row]]

UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, OSError, EOFError, csv.Error, zlib.error)
"""Errors of readers and conversions for a file of another form."""

TIMEOUT_S = 30
NUM_RETRIES = 2


@dataclass(frozen=True)
class SourceFile:
    """A file of a source, pinned to a commit or a checksum.

    Attributes:
        name: File name in the download folder.
        url: Address of the file.
        part: Part of the set in this file, such as a subset or a programming language.
        sha256: Checksum published by at least two independent sources; None if there are none.
    """

    name: str
    url: str
    part: str = ""
    sha256: str | None = None


@dataclass(frozen=True)
class PublicSet:
    """A public data set.

    Attributes:
        name: Name of the set.
        task: Task of its examples.
        records: Number of records in the source.
        license: License of the source.
        source: Home page.
        files: Files of the source.
        read: Reader of the records of one file.
        convert: Conversion of the records of all files to rows.
        size: Size of all files in bytes; None if unknown.
    """

    name: str
    task: str
    records: int
    license: str
    source: str
    files: tuple[SourceFile, ...]
    read: Callable[[Path], Iterator[Any]]
    convert: Convert
    size: int | None = None


def download(public_set: PublicSet, folder: Path) -> list[Path]:
    """Download the files of a set to FOLDER/downloads/NAME. Files with the right checksum are kept.

    Raises:
        InputError: pooch is not installed, a file cannot be downloaded or written, or its checksum differs.
    """
    try:
        import pooch
        from requests.exceptions import RequestException
    except ImportError as error:
        raise InputError(
            f"pooch is not installed, and downloads need it; {how_to_install('pooch')}"
        ) from error
    pooch.get_logger().setLevel("WARNING")
    target = folder / "downloads" / public_set.name
    source = pooch.create(
        target,
        base_url="",
        registry={file.name: file.sha256 for file in public_set.files},
        urls={file.name: file.url for file in public_set.files},
        retry_if_failed=NUM_RETRIES,
    )
    downloader = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), chunk_size=1 << 17, timeout=TIMEOUT_S)
    paths = []
    for file in public_set.files:
        try:
            paths.append(Path(source.fetch(file.name, downloader=downloader)))
        except RequestException as error:
            status = None if error.response is None else f"status {error.response.status_code}"
            raise InputError(
                f"{file.url} cannot be downloaded ({status or type(error).__name__}); check the connection "
                f"and run the same command again, or save a copy as {target / file.name}"
            ) from error
        except ValueError as error:  # of pooch
            raise InputError(
                f"{file.url} does not have the expected sha256 {file.sha256}, and was not kept; run the same "
                f"command again, or save the published file as {target / file.name}"
            ) from error
        except OSError as error:
            raise _not_written(target, error) from error
    return paths


def convert(
    public_set: PublicSet,
    paths: Iterable[Path],
    folder: Path,
    *,
    limit: int | None = None,
    advance: Callable[[str], None] = lambda _: None,
) -> int:
    """Write the rows of a set to FOLDER/NAME.jsonl and return their number.

    Args:
        public_set: The set.
        paths: Downloaded files, in the order of the set.
        folder: Output folder. An existing file is replaced only by a complete one.
        limit: Maximum number of rows.
        advance: Called with the id of each row.

    Raises:
        InputError: A source file cannot be read, or the output cannot be written.
    """
    path = folder / f"{public_set.name}.jsonl"
    part = path.with_suffix(".jsonl.part")
    count = 0
    try:
        with part.open("w", encoding="utf-8", newline="\n") as output:
            for row in islice(_rows(public_set, paths), limit):
                output.write(json.dumps(row, ensure_ascii=False) + "\n")
                count += 1
                advance(row["id"])
        if not count:
            raise InputError(
                f"{public_set.name} has no examples; delete {folder / 'downloads'} and try again"
            )
        part.replace(path)
    except OSError as error:
        raise _not_written(path, error) from error
    finally:
        part.unlink(missing_ok=True)
    return count


def get_set(name: str) -> PublicSet:
    """Return the set with this name.

    Raises:
        InputError: The name is unknown, or the set has no public copy.
    """
    if name in NOT_PUBLIC:
        raise InputError(
            f"no public copy of {name} is known; use gsm8k, whose problems are split into premises in the "
            "same way, or write your own rows as in docs/data.md"
        )
    if name not in PUBLIC_SETS:
        raise InputError(f"unknown set {name!r}; choose from: {', '.join(PUBLIC_SETS)}")
    return PUBLIC_SETS[name]


def _rows(public_set: PublicSet, paths: Iterable[Path]) -> Iterator[readers.Row]:
    where = public_set.name

    def records() -> Iterator[readers.SourceRecord]:
        nonlocal where
        for file, path in zip(public_set.files, paths, strict=True):
            where = f"{path}, record 0"
            for index, content in enumerate(public_set.read(path)):
                where = f"{path}, record {index}"
                yield content, index, file.part

    try:
        yield from public_set.convert(records())
    except UNREADABLE as error:
        raise InputError(
            f"{where} cannot be read ({one_line(error)}); delete the file and run the same command again"
        ) from error


def _not_written(path: Path, error: OSError) -> InputError:
    return InputError(
        f"{path} cannot be written: {error.strerror}; free some space, or give another folder with "
        "--output-dir"
    )


def _load_sets() -> dict[str, PublicSet]:
    content = tomllib.loads((Path(__file__).parent / "sets.toml").read_text(encoding="utf-8"))
    sets = {}
    for entry in content["set"]:
        files = tuple(SourceFile(**file) for file in entry.pop("files"))
        read: Callable[[Path], Iterator[Any]] = getattr(readers, f"read_{entry.pop('read')}")
        convert: Convert = getattr(readers, f"convert_{entry.pop('convert')}")
        sets[entry["name"]] = PublicSet(**entry, files=files, read=read, convert=convert)
    return sets


PUBLIC_SETS = _load_sets()
"""All public datasets by name, from sets.toml."""

NOT_PUBLIC = {"r-gsm": "math_reasoning"}
"""Datasets of papers without a known public copy, with their task."""
