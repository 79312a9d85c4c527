"""What is measured of each example: the settings of a run, checked before a model is there."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from pine_engine.debias.measured import MeasuredMethod, measured_methods
from pine_engine.debias.orders import Order, document_orders
from pine_engine.errors import InputError
from pine_engine.evaluation.document_orders import check_arrangements
from pine_engine.evaluation.examples import Example, check_some
from pine_engine.evaluation.order_names import AS_IS
from pine_engine.evaluation.records import RunInfo
from pine_engine.invariance.certificate import platform_of
from pine_engine.prompts.tasks import get_task

if TYPE_CHECKING:
    from pine_engine.engine.engine import Engine


@dataclass(frozen=True)
class Settings:
    """What is measured of each example.

    order_names: names, see ORDERS in order_names.py. generate: an answer is written and scored. logprobs:
    the first accepted answer and the task's choices are scored by their log-probability. max_new_tokens: of
    an answer, None for the task's own. recompute: what cannot differ is computed all the same.
    """

    methods: tuple[MeasuredMethod, ...]
    order_names: tuple[str, ...]
    generate: bool
    logprobs: bool
    max_new_tokens: int | None
    recompute: bool

    def run_info(
        self, engine: "Engine", *, task: str, data: str, data_sha256: str, sample: int | None = None
    ) -> RunInfo:
        """What a run that starts now measures, and with what; data, data_sha256, sample: as in RunInfo."""
        return RunInfo(
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            data=data,
            data_sha256=data_sha256,
            sample=sample,
            task=task,
            methods=tuple(method.name for method in self.methods),
            order_names=self.order_names,
            generate=self.generate,
            logprobs=self.logprobs,
            max_new_tokens=self.max_new_tokens,
            recompute=self.recompute,
            address=engine.model_ref,
            platform=platform_of(engine),
        )

    def check(self, method: MeasuredMethod, example: Example) -> None:
        """Raises InputError if the method can say nothing of the example, or not what is asked for."""
        task, name, wrapper = get_task(example.task), method.name, method.wrapper
        if wrapper is None:
            return
        if not method.writes and not task.choices:
            raise InputError(
                f"{name} weighs the choices of a task, and {task.name} has none; leave it out, or take a "
                "permutation, calibration_first or calibration_every"
            )
        if not method.writes and not self.logprobs:
            raise InputError(f"{name} writes no answers; measure log-probabilities too, or leave it out")
        if not method.weighs_choices and not self.generate:
            raise InputError(f"{name} is about written answers; measure these too, or leave it out")
        count, choices = len(example.documents), len(task.choices)
        visited_orders(method, count)
        if wrapper.orders and self.logprobs and task.has_letters and choices not in (0, count):
            raise InputError(
                f"{name} needs a choice for each document, and {example.id} has {count} documents and "
                f"{choices} choices; leave it out, or this example"
            )


def choose(
    examples: Sequence[Example],
    *,
    methods: Sequence[str] | None = None,
    order_names: Sequence[str] = (AS_IS,),
    generate: bool = True,
    logprobs: bool = True,
    max_new_tokens: int | None = None,
    recompute: bool = False,
) -> Settings:
    """The settings, checked. methods: names, perhaps with wrappers; the default methods for None.

    Raises InputError for an unknown method or wrapper, an order_name that is unknown or that none of the
    examples can be brought into, a wrapper that can do nothing with any of them, such as one of more orders
    than MAX_ORDERS, an answer length below 1, and if nothing is to be measured.
    """
    if not generate and not logprobs:
        raise InputError("nothing is to be measured; ask for generated answers, log-probabilities, or both")
    if max_new_tokens is not None and max_new_tokens < 1:
        raise InputError(f"the answer length is {max_new_tokens}; give 1 or more tokens")
    check_arrangements(order_names, examples)
    chosen = measured_methods(methods)
    settings = Settings(chosen, tuple(order_names), generate, logprobs, max_new_tokens, recompute)
    for method in chosen:
        check_some(examples, partial(settings.check, method))
    return settings


def visited_orders(method: MeasuredMethod, num_documents: int) -> list[Order]:
    """The orders in which the base method is run at most; only the one that is given if none are visited.

    Raises InputError for more than MAX_ORDERS.
    """
    if method.wrapper is None or method.wrapper.orders is None:
        return [tuple(range(num_documents))]
    return document_orders(num_documents, method.wrapper.orders)


def most_visited(method: MeasuredMethod, examples: Sequence[Example]) -> int:
    """How many orders the base method is run in at most, of those examples that can be measured."""
    counts = []
    for example in examples:
        try:
            counts.append(len(visited_orders(method, len(example.documents))))
        except InputError:
            continue
    return max(counts, default=0)
