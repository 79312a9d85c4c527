"""Files of a run: its settings, and its records as JSON lines. They only grow, so that a run can resume."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from pine_engine.errors import InputError, WriteError
from pine_engine.lab.evaluation.document_orders import names_of
from pine_engine.lab.evaluation.record import Key, Record
from pine_engine.lab.evaluation.settings import RunInfo
from pine_engine.prompts.request import parse_json
from pine_engine.rows.files import read_text

RUN_FILE = "run.json"


@contextmanager
def write_records(folder: Path, shard: int = 0) -> Iterator[Callable[[Record], None]]:
    """Yield a function that appends a record to a file of a shard, to another one if it has an error.

    The other files are last by name, so that the first one, whose columns `datasets` takes as the types of
    all, has values. Raises WriteError for what the system refuses.
    """
    with ExitStack() as files:
        results = files.enter_context(_append_records(folder / f"records.{shard}.jsonl"))
        errors: Callable[[Record], None] | None = None

        def append(record: Record) -> None:
            nonlocal errors
            if record.error is None:
                return results(record)
            path = folder / f"records.errors.{shard}.jsonl"
            errors = errors or files.enter_context(_append_records(path))
            errors(record)

        yield append


@contextmanager
def _append_records(path: Path) -> Iterator[Callable[[Record], None]]:
    """Yield a function that appends a record to a file; each example is synced to the disk.

    A half-written line of a killed process is cut off.
    """
    last_example = None

    @contextmanager
    def refusals() -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise WriteError(f"{path} cannot be written: {error.strerror}") from error

    @refusals()
    def append(record: Record) -> None:
        nonlocal last_example
        line = record.json_line().encode()
        if record.example != last_example:
            os.fsync(file.fileno())
        last_example = record.example
        while line:
            line = line[file.write(line) :]  # a disk that is nearly full takes a part

    with refusals():
        file = path.open("a+b", buffering=0)
        file.seek(0)
        file.truncate(file.readall().rfind(b"\n") + 1)
    try:
        yield append
    finally:
        with refusals(), file:
            os.fsync(file.fileno())


def open_run(folder: Path, info: RunInfo) -> RunInfo:
    """Create or resume the run of a folder; return its first settings. Raises InputError if they differ."""
    file = folder / RUN_FILE
    if file.exists():
        begun = read_run(folder)
        if different := begun.differences(info):
            settings = "; ".join(different)
            raise InputError(f"{folder} belongs to a run with {settings}; give these or another folder")
        return begun
    if record_files(folder):
        raise InputError(f"{folder} has records but no {RUN_FILE}, so they belong to no run; give another")
    # Each process of a run may do this, so the file is there as a whole or not at all.
    part = folder / f"{RUN_FILE}.{uuid4().hex}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part.write_text(info.model_dump_json(indent=2) + "\n", encoding="utf-8")
        part.replace(file)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise InputError(f"{folder} cannot be written: {error.strerror}; give another folder") from error
    return info


def discard_empty_run(folder: Path) -> None:
    """Delete the files of a run without records, such as one with a wrong address, to free its folder."""
    if not any(path.stat().st_size for path in record_files(folder)):
        with suppress(OSError):  # of a folder that cannot be written
            for path in (folder / RUN_FILE, *record_files(folder)):
                path.unlink(missing_ok=True)


def read_run(folder: Path) -> RunInfo:
    """Return the settings of the run in a folder. Raises InputError if there is none."""
    file = folder / RUN_FILE
    if not file.is_file():
        raise InputError(f"{folder} is no run: it has no {RUN_FILE}; give a folder that `evaluate` has made")
    return parse_json(RunInfo, read_text(file), str(file))


def find_run(folder: Path) -> RunInfo | None:
    """Return the settings of the run in a folder, None if there is none."""
    return read_run(folder) if (folder / RUN_FILE).exists() else None


def read_records(folder: Path) -> list[Record]:
    """Return the records in a folder by example, document order and method, without an unfinished last line.

    Raises InputError if the folder is no run, and for a line that is no record of it.
    """
    info = read_run(folder)
    records: dict[Key, Record] = {}
    ranks: dict[Key, tuple[str, int, int]] = {}
    for path in record_files(folder):
        *lines, _ = path.read_bytes().split(b"\n")  # the last may end inside a character
        for number, line in enumerate(lines, start=1):
            where = f"{path}, line {number}"
            try:
                record = parse_json(Record, line.decode(), where)
                names = names_of(info.order_names, record.num_documents)
                rank = record.example, names.index(record.order_name), info.methods.index(record.method)
            except UnicodeDecodeError as error:
                raise InputError(f"{where} is not UTF-8 text; the file was damaged or edited") from error
            except ValueError as error:
                named = f"{record.method}, {record.order_name}"
                raise InputError(f"{where}: {named} is not of this run; keep each in its folder") from error
            # A record that had an error may have been measured again.
            if record.key not in records or records[record.key].error:
                records[record.key] = record
            ranks.setdefault(record.key, rank)
    return [records[key] for key in sorted(records, key=ranks.__getitem__)]


def record_files(folder: Path) -> list[Path]:
    """Return the files with records in a folder, by number of the shard."""
    return sorted(folder.glob("records*.jsonl"), key=lambda path: (len(path.name), path.name))
