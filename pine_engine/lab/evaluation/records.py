"""Settings and records of a run: one JSON line per example, method and document order.

Settings are the options on which records depend; they are checked without a model. Record files only grow.
"""

import json
import os
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from pine_engine.endpoint import ENDPOINT, is_greedy
from pine_engine.endpoint.repeats import Repeats
from pine_engine.errors import InputError, WriteError
from pine_engine.invariance.platform_facts import Platform, platform_of
from pine_engine.lab.debias.table import MeasuredMethod, measured_methods
from pine_engine.lab.evaluation.document_orders import AS_IS, DocumentOrder, check_orders, names_of
from pine_engine.prompts.chat_templates import CLOCK, KWARGS, ChatTemplateKwargs
from pine_engine.prompts.examples import Example, check_some
from pine_engine.prompts.orders import num_orders
from pine_engine.prompts.parse_errors import format_validation_errors
from pine_engine.prompts.request import TaskName, parse_json
from pine_engine.prompts.row_files import read_text
from pine_engine.prompts.scoring import Verdict, named_verdicts
from pine_engine.prompts.tasks import TASKS
from pine_engine.scheduling.work import Work

Key = tuple[str, str, str]
"""Example, method and order of a record. A run has one record for each."""


class Settings(BaseModel):
    """Options that all records of a run have in common."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: TaskName = ""
    sample: int | None = None  # seed with which the examples were drawn, None for the first ones
    methods: tuple[str, ...]  # with or without wrappers
    order_names: tuple[str, ...] = (AS_IS,)
    generate: bool = True
    logprobs: bool = True  # log-probabilities of the first accepted answer and of the task's choices
    max_new_tokens: int | None = Field(None, ge=1)  # None for the limit of the task
    verdict: Verdict = "last"  # of a judge that counts in a text with several
    recompute: bool = False  # compute also what is the same in all orders
    chat_template_kwargs: ChatTemplateKwargs = {}

    @property
    def measured(self) -> tuple[MeasuredMethod, ...]:
        """Methods with their wrappers."""
        return measured_methods(self.methods)

    def keys(
        self, examples: Sequence[Example], methods: Sequence[MeasuredMethod] | None = None
    ) -> dict[Key, None]:
        """Return the keys of all records of the examples, in their order."""
        return dict.fromkeys(
            (example.id, method.name, name)
            for example in examples
            for name in names_of(self.order_names, len(example.documents))
            for method in (self.measured if methods is None else methods)
        )

    def check(self, method: MeasuredMethod, example: Example) -> None:
        """Raise InputError if a method has no result for an example, or not the selected metrics."""
        task, name, wrapper = TASKS[example.task], method.name, method.wrapper
        if wrapper is None:
            return
        count, choices = len(example.documents), len(example.scored_choices)
        problem = ""
        if not method.generates and not choices:
            problem = f"needs choices: got the task {task.name}, which has none"
        elif (wrapper.learns or wrapper.must_agree) and not task.has_letters:
            problem = f"needs documents with letters: got the task {task.name}, which has none"
        elif not method.generates and not self.logprobs:
            problem = "needs log-probabilities: got generated answers alone"
        elif not method.scores_choices and not self.generate:
            problem = "needs generated answers: got log-probabilities alone"
        elif wrapper.learns and task.has_tie:
            problem = f"has no prior of a tie, which moves with no document: got the task {task.name}"
        elif (
            wrapper.orders and self.logprobs and task.has_letters and choices not in (0, count + task.has_tie)
        ):
            problem = f"needs a choice per verdict: got {choices} for {count} documents in {example.id}"
        elif wrapper.num_labels not in (None, choices):
            problem = f"needs {wrapper.num_labels} choices: got {choices} in {example.id}"
        if problem:
            raise InputError(f"{name} {problem}; leave it out, or change metrics or data", field="methods")
        num_orders(count, wrapper.orders)  # raises for too many


def choose(examples: Sequence[Example], *, methods: Sequence[str] | None = None, **options: Any) -> Settings:
    """Return settings. Raises InputError for an option that is invalid or fits none of the examples.

    methods: None for the default methods. options: fields of Settings.
    """
    try:
        named = tuple(method.name for method in measured_methods(methods))
        settings = Settings(task=examples[0].task, methods=named, **options)
    except ValidationError as error:
        raise InputError("; ".join(map(str, format_validation_errors(error)))) from error
    if not settings.generate and not settings.logprobs:
        raise InputError("no metric; give generated answers, log-probabilities, or both", field="metrics")
    check_orders(settings.order_names, examples)
    for method in settings.measured:
        check_some(examples, partial(settings.check, method))
    return settings


def max_visited(method: MeasuredMethod, examples: Sequence[Example]) -> int:
    """Return the largest number of orders of the base method, over the examples that can be evaluated."""
    kind = method.wrapper.orders if method.wrapper else None
    counts = [0]
    for example in examples:
        with suppress(InputError):
            counts.append(num_orders(len(example.documents), kind))
    return max(counts)


if TYPE_CHECKING:
    from pine_engine.endpoint.client import Endpoint
    from pine_engine.engine.engine import Engine

Weights = dict[tuple[str, str], float]
"""Weight of each subset of a judge's data in its section, by section and subset."""

_TABLES = tomllib.loads(Path(__file__).with_name("rewardbench.toml").read_text(encoding="utf-8"))

WEIGHTS, WEIGHTS_V0_1_1 = (
    {
        (section, subset): float(weight)
        for section, of_section in table.items()
        for subset, weight in of_section.items()
    }
    for table in (_TABLES["weights"], _TABLES["weights_v0_1_1"])
)
"""Weights of all subsets, and those that differ in version 0.1.1."""

SECTION_OF = {subset: section for section, subset in WEIGHTS}
SECTIONS = tuple(_TABLES["weights"])
_SUBSETS = {subset.lower(): subset for subset in SECTION_OF}

MAX_REASONS = 3  # different errors that are quoted
RUN_FILE = "run.json"
RENAMED_KEYS = {
    "arrangement": "order_name",
    "arrangements": "order_names",
    "entered": "input_order",
    "order": "permutation",
    "computed": "was_computed",
}
"""Keys of version 1 and of version 2."""

Seconds = Annotated[float, Field(ge=0)]


TYPED_NULLS: dict[str, Any] = {
    **{name: "" for name in ("parsed", "error", "section", "subset")},
    **{name: {} for name in ("choice_logprobs", "prior")},
}
"""Values in files for None: `datasets` refuses a column that is null in the first file alone."""


def rename_keys(fields: Any) -> Any:
    """Return the fields of a record or of settings, with the current keys for those of version 1."""
    if not isinstance(fields, dict):
        return fields
    renamed = {RENAMED_KEYS.get(key, key): value for key, value in fields.items()}
    return renamed | {"version": 2} if fields.get("version") == 1 else renamed


class Record(BaseModel):
    """One example under one method in one document order. None: not measured."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")
    _rename_keys = model_validator(mode="before")(rename_keys)

    example: str
    task: TaskName
    method: str
    order_name: str
    input_order: tuple[int, ...]  # as in DocumentOrder
    permutation: tuple[int, ...]
    gold_slot: int | None = None  # slot of the document with the answer
    num_documents: int
    # True if a judged answer contains a verdict, such as [[A]].
    has_quoted_verdict: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    models: tuple[str, ...] = ()  # systems whose answers are the stored documents, if known
    answers: tuple[str, ...] = ()  # accepted answers in this order
    scoring: Annotated[str, Field(exclude_if=lambda value: not value)] = ""  # rule of the score, in `SCORES`
    thinking: str = ""  # generated before the text
    is_finished: bool = True  # False if the tokens end inside the thinking part, or before a verdict
    text: str | None = None
    parsed: str | None = None  # answer that the task parses from the text, None also if the text has none
    score: float | None = None  # of the text
    answer_logprob: float | None = None  # of the first accepted answer, in nats
    choice_logprobs: dict[str, float] | None = None  # of each choice of the task
    choice_score: float | None = None  # 1 if the most likely choice is accepted, else 0; the mean of several
    prior: dict[str, float] | None = None  # of PriDe or CalibraEval: learned from this example, or applied
    prompts: int = 1
    prompt_tokens: int = 0  # of all prompts
    answer_tokens: int | None = None
    prefill_s: Seconds = 0.0  # of all prefills, without reuse
    decode_s: Seconds = 0.0  # share of the decoding steps
    seconds: Seconds = 0.0  # share of all time spent; the sum over records is the time of the run
    was_computed: bool = True  # False if the outcome is that of another order, because it cannot differ
    is_greedy: Annotated[bool, Field(exclude_if=bool)] = True  # False if an endpoint samples the answers
    # True if an endpoint gave the same answer to a repeated request, None if it was not repeated.
    is_repeatable: Annotated[bool | None, Field(exclude_if=lambda value: value is None)] = None
    error: str | None = None  # reason why there is no result
    section: str | None = None  # as in RewardBench, with subset and weight
    subset: str | None = None
    weight: float | None = None

    @property
    def key(self) -> Key:
        """Example, method and order; a run has one record for each."""
        return self.example, self.method, self.order_name

    def json_line(self) -> str:
        """Return the record as a line of a file."""
        nulls = {name: value for name, value in TYPED_NULLS.items() if getattr(self, name) is None}
        return self.model_copy(update=nulls).model_dump_json() + "\n"

    @field_validator(*TYPED_NULLS, mode="after")
    @classmethod
    def _restore_null(cls, value: Any) -> Any:
        return value or None


class RunInfo(Settings):
    """Settings of a run, its data and its platform."""

    _rename_keys = model_validator(mode="before")(rename_keys)

    format: Literal["pine-explorer evaluation"] = "pine-explorer evaluation"
    version: Literal[2] = 2
    started: str  # date and time in UTC
    data: str  # name of the file with the examples
    data_sha256: str
    address: str  # hub id, folder or file of the model, or address of an endpoint
    extra_body: dict[str, Any] = {}  # further fields of the requests to an endpoint
    platform: Platform

    @property
    def is_on_endpoint(self) -> bool:
        """True if a server computed the answers; its address is that of the model."""
        return self.platform.device == ENDPOINT

    @property
    def is_greedy(self) -> bool:
        """False if the requests to an endpoint have no temperature, or another one than 0."""
        return is_greedy(self.extra_body)

    def differences(self, other: "RunInfo") -> list[str]:
        """Return the settings whose difference keeps the records of two runs apart."""
        pairs = zip(self._comparable().items(), other._comparable().values(), strict=True)
        return [f"{name} {ours}, not {theirs}" for (name, ours), theirs in pairs if ours != theirs]

    def _comparable(self) -> dict[str, object]:
        platform = self.platform
        metrics = {"generate": self.generate, "logprob": self.logprobs}
        return {
            "model": platform.model,
            "revision": platform.revision or "unknown",
            "endpoint": self.address if self.is_on_endpoint else "none",
            "extra-body": json.dumps(self.extra_body),
            "dtype": platform.dtype,
            "device": platform.device.partition(":")[0],
            "data": f"{self.data} (SHA-256 {self.data_sha256[:12]})",
            "sample": "none" if self.sample is None else self.sample,
            "task": self.task,
            "methods": ",".join(self.methods),
            "orders": ",".join(self.order_names),
            "metrics": ",".join(name for name, is_measured in metrics.items() if is_measured),
            "max-new-tokens": self.max_new_tokens or "of the task",
            "verdict": self.verdict,
            "recompute": "yes" if self.recompute else "no",
            "chat-template-kwargs": json.dumps(self.chat_template_kwargs),
            "PINE Explorer": platform.pine_explorer,
            "torch": platform.torch,
            "transformers": platform.transformers,
        }


def run_info(settings: Settings, engine: "Engine | Endpoint", *, data: str, data_sha256: str) -> RunInfo:
    """Return the settings of a run that begins now, with the date if the chat template prints it."""
    kwargs = TASKS[settings.task].with_date(engine.tokenizer, settings.chat_template_kwargs)
    return RunInfo(
        **settings.model_dump() | {KWARGS: kwargs},
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        data=data,
        data_sha256=data_sha256,
        address=engine.model_ref,
        platform=platform_of(engine),
    )


def count_repeats(records: Iterable[Record]) -> Repeats:
    """Count the examples of which a request was repeated, and those whose answer changed then."""
    # Records of one example can share the request.
    found = {record.example: record.is_repeatable for record in records if record.is_repeatable is not None}
    return Repeats.count(found.values())


def describe_errors(records: Sequence[Record]) -> str:
    """Return the number of records without a result and their reasons in a sentence, "" if all have one."""
    failed = [record for record in records if record.error]
    if not failed:
        return ""
    counts = Counter(record.error or "" for record in failed)
    reasons = []
    for reason, count in counts.most_common(MAX_REASONS):
        first = next(record for record in failed if record.error == reason)
        reasons.append(
            f"{count} such as {first.example} ({first.method}, {first.order_name}): {reason.rstrip('.')}"
        )
    others = f"; and {len(counts) - len(reasons)} other reasons" if len(counts) > len(reasons) else ""
    counted = f"{len(failed)} of {len(records)} records have an error and count in no result"
    return f"{counted}: {'; '.join(reasons)}{others}"


def work_of(records: Sequence[Record]) -> Work:
    """Return the work of these records; reused results count as none, shared prefills are split."""
    computed = [(record, _own_part(record)) for record in records if record.was_computed]
    return Work(
        prompts=len(computed),
        prompt_tokens=round(sum(part * record.prompt_tokens for record, part in computed)),
        new_tokens=round(sum(part * (record.answer_tokens or 0) for record, part in computed)),
        orders=len({record.order_name for record in records}),
        read_s=sum(part * record.prefill_s for record, part in computed),
        write_s=sum(part * record.decode_s for record, part in computed),
    )


def _own_part(record: Record) -> float:
    """Return the fraction of the standalone time of a record that was attributed to it."""
    alone = record.prefill_s + record.decode_s
    return min(1.0, record.seconds / alone) if alone else 1.0


def blank_record(example: Example, method: str, order: DocumentOrder) -> Record:
    """Return the record of an example in an order, without results."""
    named = example.meta.get("subset")
    named = named if isinstance(named, str) else None
    subset = named and _SUBSETS.get(named.lower())
    section = SECTION_OF[subset] if subset else None
    return Record(
        example=example.id,
        task=example.task,
        method=method,
        order_name=order.name,
        input_order=order.input_order,
        permutation=order.permutation,
        gold_slot=order.gold_slot(example),
        num_documents=len(example.documents),
        has_quoted_verdict=_has_quoted_verdict(example),
        models=_models(example),
        answers=order.answers(example),
        scoring=example.sized_task().rule,
        section=section,
        subset=subset or named,
        weight=WEIGHTS[section, subset] if section and subset else None,
    )


def _has_quoted_verdict(example: Example) -> bool:
    count, task = len(example.documents), TASKS[example.task]
    return bool(task.choice) and any(
        named_verdicts(one.text, count, has_tie=task.has_tie) for one in example.documents
    )


def _models(example: Example) -> tuple[str, ...]:
    """Return the systems of `meta.models`, one per document; nothing for another number of them."""
    models = example.meta.get("models")
    is_complete = isinstance(models, list) and len(models) == len(example.documents)
    return tuple(map(str, models)) if isinstance(models, list) and is_complete else ()


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


def resume_date(folder: Path, settings: Settings) -> Settings:
    """Return settings with the date that the prompts of the run in a folder have, if there is one."""
    kwargs = settings.chat_template_kwargs
    with suppress(InputError):
        begun = read_run(folder).chat_template_kwargs
        kwargs = {name: begun[name] for name in (CLOCK,) if name in begun} | kwargs
    return settings.model_copy(update={KWARGS: kwargs})


def discard_empty_run(folder: Path) -> None:
    """Delete the files of a run without records, such as one with a wrong address, to free its folder."""
    if not any(path.stat().st_size for path in record_files(folder)):
        for path in (folder / RUN_FILE, *record_files(folder)):
            path.unlink(missing_ok=True)


def read_run(folder: Path) -> RunInfo:
    """Return the settings of the run in a folder. Raises InputError if there is none."""
    file = folder / RUN_FILE
    if not file.is_file():
        raise InputError(f"{folder} is no run: it has no {RUN_FILE}; give a folder that `evaluate` has made")
    return parse_json(RunInfo, read_text(file), str(file))


def dtype_of_run(folder: Path) -> str | None:
    """Return the dtype with which the run in a folder began; None if there is no valid run."""
    with suppress(InputError):
        return read_run(folder).platform.dtype
    return None


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
