"""Answer cards before and after a run."""

from collections.abc import Sequence
from dataclasses import replace

from pine_engine.methods import METHODS
from viz.answers import AnswerCard


def waiting_cards(methods: Sequence[str]) -> tuple[AnswerCard, ...]:
    """Cards of methods that have not begun."""
    rows = [METHODS[name] for name in methods]
    return tuple(AnswerCard(row.name, row.label, row.meaning, row.promises_invariance) for row in rows)


def stopped_cards(cards: Sequence[AnswerCard]) -> tuple[AnswerCard, ...]:
    """The cards after Stop: those that were not finished say so, and keep their text."""
    return tuple(card if card.state == "finished" else replace(card, state="stopped") for card in cards)
