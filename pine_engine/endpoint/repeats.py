"""Repeated requests: where their answers change, a change under another document order proves nothing."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Repeats:
    """Number of requests that were sent twice, and of those whose second answer was another."""

    requests: int
    changed: int

    @classmethod
    def count(cls, repeats: Iterable[bool | None]) -> Self:
        """Count requests by `Reply.is_repeatable`, which is None if a request was not repeated."""
        known = [is_repeatable for is_repeatable in repeats if is_repeatable is not None]
        return cls(len(known), known.count(False))

    def notes(self) -> list[str]:
        """Return the sentence, none if no request was repeated."""
        return [str(self)] if self.requests else []

    def __str__(self) -> str:
        sentence = f"answers that change when the request is repeated: {self.changed} of {self.requests}"
        return f"{sentence}; there, a change under another order proves nothing" if self.changed else sentence
