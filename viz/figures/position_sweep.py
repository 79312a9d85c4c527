"""Where the answer stands, in a sentence: by how much each method moves with the slot of a document."""

from collections.abc import Sequence
from dataclasses import dataclass

from viz.drawing.identity import document_segment
from viz.drawing.numbers import format_difference
from viz.drawing.tokens import shorten

_QUOTED = 60
"""Longest answer, in characters, that is repeated whole."""


@dataclass(frozen=True)
class Standing:
    """One method's log-probabilities of the answer, in nats, one per slot; None where not computed yet."""

    label: str
    values: tuple[float | None, ...]

    @property
    def known(self) -> tuple[float, ...]:
        """The values computed so far."""
        return tuple(value for value in self.values if value is not None)

    @property
    def spread(self) -> float:
        """Largest less smallest value, in nats; 0 if there are none."""
        return max(self.known, default=0.0) - min(self.known, default=0.0)


@dataclass(frozen=True)
class Sweep:
    """What was run. document: index of the moved one as entered. setting: model, dtype and device.

    standings: one per method, all computed in the same slots.
    """

    document: int
    answer: str
    setting: str
    standings: tuple[Standing, ...]


def standing_sentence(sweep: Sweep) -> str:
    """One sentence: by how much each method moves, the one that moves most first."""
    name = document_segment(sweep.document).name
    tried, slots = len(sweep.standings[0].known), len(sweep.standings[0].values)
    if tried < 2:
        return f"So far {name} has been in {tried} of {slots} slots ({sweep.setting})."
    moving = sorted((one for one in sweep.standings if one.spread), key=lambda one: -one.spread)
    still = [one.label for one in sweep.standings if not one.spread]
    subject = f"the log-probability of “{shorten(' '.join(sweep.answer.split()), _QUOTED)}”"
    clauses = []
    if moving:
        first, *others = moving
        parts = [
            f"by {format_difference(first.spread)} nats under {first.label} (most likely in slot "
            f"{_slot_of(first, max(first.known))}, least likely in slot {_slot_of(first, min(first.known))})",
            *(f"by {format_difference(one.spread)} under {one.label}" for one in others),
        ]
        clauses.append(f"{subject} moves {_listed(parts)}")
        subject = "it"
    if still:
        clauses.append(f"{subject} does not move at all (0.0) under {_listed(still)}")
    through = f"all {slots} slots" if tried == slots else f"{tried} of {slots} slots"
    return f"As {name} goes through {through}, {'; '.join(clauses)} ({sweep.setting})."


def _slot_of(one: Standing, value: float) -> int:
    return one.values.index(value) + 1


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
