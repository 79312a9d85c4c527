"""Answers to the same documents in another order."""

from dataclasses import dataclass

from viz.figures.answer_tokens import AnswerTokens


@dataclass(frozen=True)
class TriedOrder:
    """Answers to the same documents in another order."""

    order: tuple[int, ...]
    """Identity of the document in each slot."""

    label: str
    """Name of the order, such as "C A B"."""

    answer_records: dict[str, AnswerTokens]
    """Answer of each method."""
