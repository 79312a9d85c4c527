"""SOURCES.json: what was brought into a folder, from where, under which licence, and with which checksum."""

from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from pine_engine.data.download import sha256_of, writing
from pine_engine.errors import InputError
from pine_engine.prompts.inputs import parse_json, read_text

NAME = "SOURCES.json"


class TakenFile(BaseModel):
    """A file of a source as it was taken. size: bytes. taken: the day on which it was first seen so."""

    model_config = ConfigDict(frozen=True)

    url: str
    sha256: str
    size: int
    taken: str


class BuiltSet(BaseModel):
    """A set as it was written. file: beside SOURCES.json. limit: examples asked for, None for all."""

    model_config = ConfigDict(frozen=True)

    license: str
    source: str
    files: tuple[TakenFile, ...]
    file: str
    sha256: str
    examples: int
    limit: int | None


class Provenance(BaseModel):
    """All sets of a folder by their names."""

    model_config = ConfigDict(frozen=True)

    sets: dict[str, BuiltSet] = {}

    def taken(self, name: str, url: str) -> TakenFile | None:
        """That file of that set as it was taken before."""
        built = self.sets.get(name)
        return next((file for file in built.files if file.url == url), None) if built else None


def read_provenance(folder: Path) -> Provenance:
    """What is known of a folder; nothing of one without SOURCES.json. Raises InputError if it is damaged."""
    path = folder / NAME
    if not path.exists():
        return Provenance()
    try:
        return parse_json(Provenance, read_text(path), str(path))
    except InputError as error:
        raise InputError(f"{error}; mend it, or delete it and what it speaks of") from error


def remember(folder: Path, name: str, built: BuiltSet) -> None:
    """Adds a set to SOURCES.json, or replaces what it said of it."""
    known = read_provenance(folder)
    path, part = folder / NAME, folder / f"{NAME}.part"
    with writing(path):
        now = known.model_copy(update={"sets": {**known.sets, name: built}})
        part.write_text(now.model_dump_json(indent=1) + "\n", encoding="utf-8")
        part.replace(path)


def take(path: Path, url: str, before: TakenFile | None) -> TakenFile:
    """The entry of a file that is there. One that is as it was keeps the day of its first sight."""
    sha256 = sha256_of(path)
    if before is not None and before.sha256 == sha256:
        return before
    today = datetime.now(UTC).date().isoformat()
    return TakenFile(url=url, sha256=sha256, size=path.stat().st_size, taken=today)
