"""Settings of an evaluation: options of `evaluate` on which its records depend, checked without a model."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pine_engine.debias.table import MeasuredMethod, measured_methods
from pine_engine.errors import InputError
from pine_engine.evaluation.document_orders import AS_IS, check_orders, names_of
from pine_engine.evaluation.examples import Example, check_some
from pine_engine.prompts.orders import num_orders
from pine_engine.prompts.parse_errors import format_validation_errors
from pine_engine.prompts.tasks import TASKS

Key = tuple[str, str, str]
"""Example, method and order of a record. A run has one record for each."""


class Settings(BaseModel):
    """Options that all records of a run have in common."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: str = ""
    sample: int | None = None  # seed with which the examples were drawn, None for the first ones
    methods: tuple[str, ...]  # with or without wrappers
    order_names: tuple[str, ...] = (AS_IS,)
    generate: bool = True
    logprobs: bool = True  # log-probabilities of the first accepted answer and of the task's choices
    max_new_tokens: int | None = Field(None, ge=1)  # None for the limit of the task
    recompute: bool = False  # compute also what is the same in all orders

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
        elif wrapper.has_prior and not task.has_letters:
            problem = f"needs documents with letters: got the task {task.name}, which has none"
        elif not method.generates and not self.logprobs:
            problem = "needs log-probabilities: got generated answers alone"
        elif not method.scores_choices and not self.generate:
            problem = "needs generated answers: got log-probabilities alone"
        elif wrapper.orders and self.logprobs and task.has_letters and choices not in (0, count):
            problem = f"needs a choice per document: got {choices} for {count} documents in {example.id}"
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
