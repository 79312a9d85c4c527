"""Builds a public set: its files, each checked, then its examples, as one file that is whole or absent."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from pine_engine.data.download import Checksum, fetch, sha256_of, writing
from pine_engine.data.provenance import BuiltSet, TakenFile, read_provenance, remember, take
from pine_engine.data.readers import SourceRecord
from pine_engine.data.registry import PublicSet, SourceFile
from pine_engine.data.schema import ExampleRow
from pine_engine.errors import InputError

DOWNLOADS = "downloads"
"""The folder beside the examples in which the files of the sources stay."""

Showing = Callable[[str, int, int | None], None]
"""Is told what is downloaded, how many bytes of it are here, and of how many, if that is known."""


@dataclass(frozen=True)
class Obtained:
    """A file that is here, and what it was checked against: a published checksum, our own of before, none."""

    file: SourceFile
    path: Path
    taken: TakenFile
    checked: Literal["as published", "as before", "first seen"]


def obtain(
    chosen: PublicSet, folder: Path, *, show: Showing = lambda words, done, total: None
) -> list[Obtained]:
    """The set's files; what is here already, and right, is not downloaded again.

    Raises InputError as fetch does, and if something is missing that reading the set needs.
    """
    chosen.check()
    known = read_provenance(folder)
    return [_obtain(chosen, file, folder, known.taken(chosen.name, file.url), show) for file in chosen.files]


def convert(
    chosen: PublicSet,
    obtained: list[Obtained],
    folder: Path,
    *,
    limit: int | None = None,
    advance: Callable[[str], None] = lambda words: None,
) -> BuiltSet:
    """Writes FOLDER/NAME.jsonl, at most `limit` examples, and what it is into FOLDER/SOURCES.json.

    advance is told of every example. Raises InputError if a record is not of the form that its source had,
    if there is none, or if the disk refuses; a file of before stays then as it was.
    """
    path = folder / f"{chosen.name}.jsonl"
    part = path.with_name(path.name + ".part")
    count = 0
    try:
        with writing(path), part.open("w", encoding="utf-8", newline="\n") as file:
            for row in _examples(chosen, obtained, limit):
                file.write(row.line())
                count += 1
                advance(row.id)
        if not count:
            raise InputError(f"the source of {chosen.name} holds no example; delete {folder / DOWNLOADS}")
        with writing(path):
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    built = BuiltSet(
        license=chosen.license,
        source=chosen.source,
        files=tuple(one.taken for one in obtained),
        file=path.name,
        sha256=sha256_of(path),
        examples=count,
        limit=limit,
    )
    remember(folder, chosen.name, built)
    return built


def _obtain(
    chosen: PublicSet, file: SourceFile, folder: Path, before: TakenFile | None, show: Showing
) -> Obtained:
    path = folder / DOWNLOADS / chosen.name / file.name
    expected = _expected(chosen, file, before)
    if not path.is_file() or (expected is not None and sha256_of(path) != expected.sha256):
        fetch(file.url, path, expected=expected, progress=lambda done, total: show(file.name, done, total))
    checked: Literal["as published", "as before", "first seen"] = (
        "as published" if file.sha256 else "as before" if before else "first seen"
    )
    return Obtained(file, path, take(path, file.url, before), checked)


def _expected(chosen: PublicSet, file: SourceFile, before: TakenFile | None) -> Checksum | None:
    if file.sha256 is not None:
        return Checksum(file.sha256, "it has changed, or something on the way changes it")
    if before is not None:
        return Checksum(
            before.sha256,
            f"it has changed since {before.taken}; to take it as it is now, remove {chosen.name} from "
            "SOURCES.json",
        )
    return None


def _examples(chosen: PublicSet, obtained: list[Obtained], limit: int | None) -> Iterator[ExampleRow]:
    """The examples, each with an id of its own."""
    ids: set[str] = set()
    for row in islice(chosen.convert(_records(chosen, obtained)), limit):
        if row.id in ids:
            raise InputError(f"the source of {chosen.name} gives two examples the id {row.id!r}")
        ids.add(row.id)
        yield row


def _records(chosen: PublicSet, obtained: list[Obtained]) -> Iterator[SourceRecord]:
    for one in obtained:
        for index, content in enumerate(chosen.read(one.path)):
            yield SourceRecord(str(one.path), index, one.file.part, content)
