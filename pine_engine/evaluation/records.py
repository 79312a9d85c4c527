"""Records: what was measured, one line for each example, method and order_name, in files that only grow."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pine_engine.errors import InputError, WriteError
from pine_engine.evaluation.document_orders import expand
from pine_engine.invariance.certificate import Platform
from pine_engine.prompts.request import parse_json, read_text

RUN_FILE = "run.json"
FORMAT: Final = "pine-explorer evaluation"
VERSION: Final = 1
KEYS_OF_VERSION_1 = {"arrangement": "order_name", "arrangements": "order_names"}

Key = tuple[str, str, str]
"""Example, method, order_name: what a run measures at most once."""

Seconds = Annotated[float, Field(ge=0)]


class _Versioned(BaseModel):
    """Base of the lines of a run, which renames the keys of version 1."""

    @model_validator(mode="before")
    @classmethod
    def _rename_keys(cls, fields: Any) -> Any:
        return {KEYS_OF_VERSION_1.get(key, key): value for key, value in fields.items()}


class Record(_Versioned):
    """One example under one method in one order_name.

    entered, order: see DocumentOrder. gold_slot: where the document with the answer stands. answers: those
    accepted in this order_name. text, parsed, score, answer_tokens: of the generated answer, None if none
    was asked for; parsed is what the task reads in it, None if nothing can be read. answer_logprob: natural
    log-probability of the first accepted answer, in nats. choice_logprobs: the same of each of the task's
    choices; choice_score: 1 if the most likely choice is accepted, 0 if not, between them on a tie.
    prompts, prompt_tokens: read for it. prefill_s, decode_s: seconds to read them as if nothing were lent,
    and its answer's share of the decoding steps, which several answers share; seconds: what was spent on
    both and on scoring given answers, so that they add up over records.
    computed: False if the outcome is that of another order_name, since it cannot differ; it took 0 seconds.
    error: why nothing was measured, in a sentence. section, subset, weight: of a judge's data set.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")

    example: str
    task: str
    method: str
    order_name: str
    entered: tuple[int, ...]
    order: tuple[int, ...]
    gold_slot: int | None = None
    num_documents: int
    answers: tuple[str, ...] = ()
    text: str | None = None
    parsed: str | None = None
    score: float | None = None
    answer_logprob: float | None = None
    choice_logprobs: dict[str, float] | None = None
    choice_score: float | None = None
    prior: dict[str, float] | None = None
    prompts: int = 1
    prompt_tokens: int = 0
    answer_tokens: int | None = None
    prefill_s: Seconds = 0.0
    decode_s: Seconds = 0.0
    seconds: Seconds = 0.0
    computed: bool = True
    error: str | None = None
    section: str | None = None
    subset: str | None = None
    weight: float | None = None

    @property
    def key(self) -> Key:
        """What the record is about; a run has one record for each."""
        return self.example, self.method, self.order_name


class RunInfo(_Versioned):
    """What a run measures, and with what: the settings that all its records share.

    data: name of the file; data_sha256: of its bytes. sample: the seed with which its rows were drawn, None
    for the first ones. order_names: as asked for, such as gold-all.
    generate, logprobs: what is measured. max_new_tokens: the longest answer, None for the task's own.
    recompute: outcomes that cannot differ are computed all the same. started: when, in UTC.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal["pine-explorer evaluation"] = FORMAT
    version: Literal[1] = VERSION
    started: str
    data: str
    data_sha256: str
    sample: int | None = None
    task: str
    methods: tuple[str, ...]
    order_names: tuple[str, ...]
    generate: bool
    logprobs: bool
    max_new_tokens: int | None
    recompute: bool = False
    address: str
    platform: Platform

    def differences(self, other: "RunInfo") -> list[str]:
        """In words, the settings for which the records of both cannot stand in one folder."""
        ours, theirs = self._settings(), other._settings()
        return [f"{name} {ours[name]}, not {theirs[name]}" for name in ours if ours[name] != theirs[name]]

    def _settings(self) -> dict[str, str]:
        """What must agree. Processor and threads need not, since a run may have processes on several."""
        platform = self.platform
        return {
            "model": platform.model,
            "revision": platform.revision or "unknown",
            "dtype": platform.dtype,
            "device": platform.device.partition(":")[0],
            "data": f"{self.data} (SHA-256 {self.data_sha256[:12]})",
            "sample": "none" if self.sample is None else str(self.sample),
            "task": self.task,
            "methods": ",".join(self.methods),
            "orders": ",".join(self.order_names),
            "measure": ",".join(
                name for name, on in (("generate", self.generate), ("logprob", self.logprobs)) if on
            ),
            "max-new-tokens": str(self.max_new_tokens or "of the task"),
            "recompute": "yes" if self.recompute else "no",
            "PINE Explorer": platform.pine_explorer,
            "torch": platform.torch,
            "transformers": platform.transformers,
        }


class Writer:
    """Appends the records of one shard to its file; each record is in the file, each example on the disk.

    A half-written line of a killed process is cut off. Raises WriteError for what the system refuses.
    """

    def __init__(self, folder: Path, shard: int = 0) -> None:
        self._path = _record_file(folder, shard)
        self._example: str | None = None
        with self._refusals():
            self._file = self._path.open("a+b", buffering=0)
            self._file.seek(0)
            self._file.truncate(self._file.readall().rfind(b"\n") + 1)

    def append(self, record: Record) -> None:
        """Adds one line, and reaches the disk with what came before when an example begins."""
        if record.example != self._example:
            self.sync()
        self._example = record.example
        line = record.model_dump_json().encode() + b"\n"
        with self._refusals():
            while line:
                line = line[self._file.write(line) :]  # a disk that is nearly full takes a part

    def sync(self) -> None:
        """Waits until all lines are on the disk."""
        with self._refusals():
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Syncs and closes the file."""
        try:
            self.sync()
        finally:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise WriteError(f"{self._path} cannot be written: {error.strerror}") from error


def open_run(folder: Path, info: RunInfo) -> RunInfo:
    """Makes the folder the one of this run, or finds it there; returns what was written first.

    Raises InputError that names what differs if the folder belongs to a run with other settings, and if it
    holds something else.
    """
    file = folder / RUN_FILE
    if file.exists():
        there = read_run(folder)
        if different := there.differences(info):
            raise InputError(
                f"{folder} belongs to a run with {'; '.join(different)}; give its settings to go on with it, "
                "or another folder"
            )
        return there
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


def read_run(folder: Path) -> RunInfo:
    """The settings of the run in a folder. Raises InputError if there is none."""
    file = folder / RUN_FILE
    if not file.is_file():
        raise InputError(f"{folder} is no run: it has no {RUN_FILE}; give a folder that `evaluate` has made")
    return parse_json(RunInfo, read_text(file), str(file))


def dtype_of_run(folder: Path) -> str | None:
    """In which dtype the run in a folder was begun; None if there is none, or none that can be read."""
    with suppress(InputError):
        return read_run(folder).platform.dtype
    return None


def read_records(folder: Path) -> list[Record]:
    """All records of the run in a folder, by example, order_name and method, whoever wrote them when.

    A last line that was not finished is left out. Raises InputError if the folder is no run, and for a line
    that is no record of it.
    """
    info = read_run(folder)
    records: dict[Key, Record] = {}
    for path in record_files(folder):
        *lines, _ = path.read_bytes().split(b"\n")  # the last may end inside a character
        for number, line in enumerate(lines, start=1):
            where = f"{path}, line {number}"
            try:
                record = parse_json(Record, line.decode(), where)
            except UnicodeDecodeError as error:
                raise InputError(f"{where} is not UTF-8 text; the file was damaged or edited") from error
            if record.method not in info.methods or record.order_name not in _names(info, record):
                raise InputError(
                    f"{where}: {record.method}, {record.order_name} is not of the run that {RUN_FILE} "
                    "describes; keep each run in a folder of its own"
                )
            records.setdefault(record.key, record)
    return sorted(
        records.values(),
        key=lambda record: (
            record.example,
            _names(info, record).index(record.order_name),
            info.methods.index(record.method),
        ),
    )


def _names(info: RunInfo, record: Record) -> list[str]:
    """The order_names that the run has of such an example."""
    return [name for asked in info.order_names for name in expand(asked, record.num_documents)]


def _record_file(folder: Path, shard: int) -> Path:
    return folder / f"records.{shard}.jsonl"


def record_files(folder: Path) -> list[Path]:
    """The files with records in a folder, by number of the shard."""
    return sorted(folder.glob("records*.jsonl"), key=lambda path: (len(path.name), path.name))
