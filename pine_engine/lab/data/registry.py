"""Public data sets: table of their pinned sources, download and conversion."""

import csv
import json
import sys
import tomllib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from pine_engine.errors import InputError, one_line
from pine_engine.input_validation import Registry
from pine_engine.lab.data import readers
from pine_engine.lab.data.facts import generate_facts
from pine_engine.lab.data.few_shot import generate_few_shot
from pine_engine.lab.data.judge_sums import generate_judge_sums
from pine_engine.optional_packages import import_extra

Convert = Callable[[Iterable[readers.SourceRecord]], Iterator[readers.Row]]

UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, OSError, EOFError, csv.Error, zlib.error)
"""Errors of readers and conversions for a file of another form."""

GENERATORS: Mapping[str, Callable[..., Iterator[readers.Row]]] = {
    "facts": generate_facts,
    "few_shot": generate_few_shot,
    "judge_sums": generate_judge_sums,
}
"""Functions that generate sets, by name in sets.toml."""

TIMEOUT_S = 30
NUM_RETRIES = 2


@dataclass(frozen=True)
class PublicSet:
    """A public data set, or one that is generated and has no files.

    Files have a name, a URL and optionally the part of the set in the file, such as a subset. They are pinned
    to a commit or to a sha256 that at least two independent sources published.
    """

    name: str
    task: str
    records: int  # in the source
    license: str
    source: str  # home page
    convert: Convert  # rows from the records of all files
    files: Sequence[Mapping[str, str]] = ()
    read: Callable[[Path], Iterator[Any]] = readers.read_json_lines  # records of one file
    size: int | None = None  # of all files in bytes, None if unknown
    scoring: str = ""  # rule of its published code, in place of that of the task


def download(public_set: PublicSet, folder: Path) -> list[Path]:
    """Download the files of a set to FOLDER/downloads/NAME. Files with the right checksum are kept."""
    if not public_set.files:
        return []
    pooch, requests = import_extra("pooch", "pooch"), import_extra("requests", "pooch")
    pooch.get_logger().setLevel("WARNING")
    target = folder / "downloads" / public_set.name
    source = pooch.create(
        target,
        base_url="",
        registry={file["name"]: file.get("sha256") for file in public_set.files},
        urls={file["name"]: file["url"] for file in public_set.files},
        retry_if_failed=NUM_RETRIES,
    )
    downloader = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), chunk_size=1 << 17, timeout=TIMEOUT_S)
    paths = []
    for file in public_set.files:
        name, url = file["name"], file["url"]
        try:
            paths.append(Path(source.fetch(name, downloader=downloader)))
        except requests.RequestException as error:
            status = None if error.response is None else f"status {error.response.status_code}"
            problem = f"{url} cannot be downloaded ({status or type(error).__name__})"
            raise InputError(f"{problem}; try again, or save a copy as {target / name}") from error
        except ValueError as error:  # of pooch
            problem = f"{url} does not have the expected sha256 {file['sha256']}"
            raise InputError(f"{problem}; try again, or save a copy as {target / name}") from error
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
    """Write at most `limit` rows of a set to FOLDER/NAME.jsonl and return their number.

    An existing file is replaced only by a complete one. `advance` is called with the id of each row.
    """
    path = folder / f"{public_set.name}.jsonl"
    part = path.with_suffix(".jsonl.part")
    count = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with part.open("w", encoding="utf-8", newline="\n") as output:
            for row in islice(_rows(public_set, paths), limit):
                output.write(json.dumps(row, ensure_ascii=False) + "\n")
                count += 1
                advance(row["id"])
        if not count:
            raise InputError(f"{path.stem} has no examples; delete {folder / 'downloads'} and try again")
        part.replace(path)
    except OSError as error:
        raise _not_written(path, error) from error
    finally:
        part.unlink(missing_ok=True)
    return count


def get_set(name: str) -> PublicSet:
    """Return the set with this name. Raises InputError if there is none, or no public copy of the set."""
    if name in NOT_PUBLIC:
        raise InputError(f"no public copy of {name} is known; use your own rows, see docs/data.md")
    return PUBLIC_SETS[name]


def _rows(public_set: PublicSet, paths: Iterable[Path]) -> Iterator[readers.Row]:
    where = public_set.name

    def records() -> Iterator[readers.SourceRecord]:
        nonlocal where
        for file, path in zip(public_set.files, paths, strict=True):
            where = f"{path}, record 0"
            for index, content in enumerate(public_set.read(path)):
                where = f"{path}, record {index}"
                yield content, index, file.get("part", "")

    try:
        rule = {"scoring": public_set.scoring} if public_set.scoring else {}
        yield from (row | rule for row in public_set.convert(records()))
    except UNREADABLE as error:
        raise InputError(f"{where} cannot be read ({one_line(error)}); delete it and try again") from error


def _not_written(path: Path, error: OSError) -> InputError:
    return InputError(f"{path} cannot be written: {error.strerror}; give another folder with --output-dir")


def _load_set(entry: dict[str, Any]) -> PublicSet:
    if options := entry.pop("generate", None):
        rows = partial(GENERATORS[options.pop("benchmark")], **options)
        return PublicSet(**entry, convert=lambda _: islice(rows(), entry["records"]))
    functions = {key: getattr(readers, f"{key}_{entry.pop(key)}") for key in ("read", "convert")}
    return PublicSet(**entry, **functions)


PUBLIC_SETS: dict[str, PublicSet] = Registry(
    "set", map(_load_set, tomllib.loads(Path(__file__).with_name("sets.toml").read_text("utf-8"))["set"])
)
"""All public datasets by name, from sets.toml."""

NOT_PUBLIC = {"r-gsm": "math_reasoning"}
"""Datasets of papers without a known public copy, with their task."""
