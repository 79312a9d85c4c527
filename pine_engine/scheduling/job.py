"""Job of a run: what it computes, before and after its prompts are tokenized."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pine_engine.scheduling.work import Work

View = TypeVar("View")


@dataclass(frozen=True)
class PreparedJob(Generic[View]):
    """Job whose prompts are tokenized. It can be pickled.

    Attributes:
        work: Planned work, which defines the memory and the estimated time of the run.
        views: Generator of views on an engine; closing it stops the model.
    """

    work: Work
    views: Callable[[Any], Generator[View, None, None]]


@dataclass(frozen=True)
class Job:
    """Computation of a run. Jobs on one model with equal `prepare` and `arguments` are computed once.

    Attributes:
        operation: Operation in the log.
        methods: Methods in the log.
        prepare: Return the prepared job on an engine. Raises InputError for invalid input.
        arguments: Further arguments of `prepare`.
    """

    operation: str
    methods: Sequence[str]
    prepare: Callable[..., PreparedJob[Any]]
    arguments: Mapping[str, Any] = field(default_factory=dict)
