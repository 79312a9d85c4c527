"""Settings of a run: the options on which its records depend, checked without a model."""

import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pine_engine.endpoint import is_greedy
from pine_engine.errors import InputError
from pine_engine.invariance.platform_facts import Platform, platform_of
from pine_engine.lab.debias.measured import MeasuredMethod, measured_methods
from pine_engine.lab.debias.wrappers import check_base, check_wrapper
from pine_engine.lab.evaluation.document_orders import AS_IS, check_orders, check_some, names_of
from pine_engine.lab.evaluation.record import Key, rename_keys
from pine_engine.lab.evaluation.run_model import RunModel, model_of
from pine_engine.prompts.chat_templates import KWARGS, ChatTemplateKwargs
from pine_engine.prompts.examples import Example
from pine_engine.prompts.orders import num_orders
from pine_engine.prompts.request import TaskName
from pine_engine.prompts.scoring import Verdict
from pine_engine.prompts.tasks import TASKS
from pine_engine.rows.parse_errors import format_validation_errors

if TYPE_CHECKING:  # imports torch
    from pine_engine.backend import Backend


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
    columns: dict[str, str] = Field({}, exclude_if=lambda columns: not columns)  # field by column of the data

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
        if method.base.needs_scores and any(document.score is None for document in example.documents):
            message = f"{name} needs the score of each document by a retriever: {example.id} lacks some"
            raise InputError(f"{message}; add them to the data, or leave the method out", field="methods")
        if wrapper is None:
            return
        check_base(wrapper, method.base)
        count, choices = len(example.documents), len(example.scored_choices)
        problem = ""
        if not method.generates and not choices:
            problem = f"needs choices: got the task {task.name}, which has none"
        elif (wrapper.learns or wrapper.must_agree or wrapper.aggregation) and not task.has_letters:
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
        elif wrapper.max_documents and count > wrapper.max_documents:
            problem = f"needs at most {wrapper.max_documents} documents: got {count} in {example.id}"
        elif wrapper.must_agree and task.ranks:
            problem = f"needs one chosen document: got the task {task.name}"
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


def check_outputs(backend: "Backend", settings: Settings, examples: Sequence[Example]) -> None:
    """Raise PineError for what a backend without log-probabilities of given texts cannot measure.

    These are methods and wrappers that need them, and metrics if there are no choices to score.
    """
    if not backend.misfit("logprobs"):
        return
    backend.select_methods(dict.fromkeys(method.base for method in settings.measured))
    for method in settings.measured:
        if method.wrapper:
            check_wrapper(backend, method.wrapper)
    if settings.logprobs and not any(example.scored_choices for example in examples):
        message = f"an endpoint has log-probabilities of choices only, and the task {settings.task} has none"
        raise InputError(f"{message}; give --metrics generate, or choices in the data", field="metrics")


def max_visited(method: MeasuredMethod, examples: Sequence[Example]) -> int:
    """Return the largest number of orders of the base method, over the examples that can be evaluated."""
    kind = method.wrapper.orders if method.wrapper else None
    counts = [0]
    for example in examples:
        with suppress(InputError):
            counts.append(num_orders(len(example.documents), kind))
    return max(counts)


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
    def model(self) -> RunModel:
        """Model of the run."""
        return model_of(self.platform, self.address, self.extra_body)

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
            "endpoint": self.model.options.get("endpoint", "none"),
            "extra-body": json.dumps(self.extra_body),
            "dtype": platform.dtype,
            "device": platform.device.partition(":")[0],
            "data": f"{self.data} (SHA-256 {self.data_sha256[:12]})",
            "sample": "none" if self.sample is None else self.sample,
            "column": ", ".join(f"{field}={name}" for name, field in self.columns.items()) or "none",
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


def run_info(settings: Settings, backend: "Backend", *, data: str, data_sha256: str) -> RunInfo:
    """Return the settings of a run that begins now, with the date if the chat template prints it."""
    kwargs = TASKS[settings.task].with_date(backend.tokenizer, settings.chat_template_kwargs)
    return RunInfo(
        **settings.model_dump() | {KWARGS: kwargs},
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        data=data,
        data_sha256=data_sha256,
        address=backend.model_ref,
        extra_body=dict(backend.extra_body),
        platform=platform_of(backend),
    )
