"""Forward passes that a run waits for: a run is a coroutine that yields them."""

from collections.abc import Generator, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True)
class PendingPrefill:
    """Prefill that the coroutine which yields it computes when it is resumed."""

    num_tokens: int
    is_divisible: bool = True  # True if others may compute between its layers

    def compute(self) -> None:
        """Compute nothing: the prefill follows."""


class PendingStep(Protocol):
    """Decode step that is computed before the coroutine which yields it is resumed."""

    @property
    def sharing_key(self) -> Hashable:
        """Key of steps that can be computed together; None if another batch size can change a logit."""

    @property
    def can_repeat(self) -> bool:
        """True if the step can be repeated after an error."""

    def lengths(self) -> list[int]:
        """Return the lengths by which `truncate` restores the state before the step."""

    def truncate(self, lengths: list[int]) -> None:
        """Restore the state before the step."""

    def compute(self, others: Sequence[Any] = ()) -> None:
        """Compute this step, and others of the same `sharing_key` in the same batch."""


Coroutine = Generator[PendingPrefill | PendingStep, None, Result]
"""Run that yields each prefill and decode step that it waits for."""


def compute_alone(coroutine: Coroutine[Result]) -> Result:
    """Return the result of a coroutine whose decode steps are not shared."""
    while True:
        try:
            pending = next(coroutine)
        except StopIteration as end:
            result: Result = end.value
            return result
        pending.compute()
