"""Where the answer stands: how likely an answer is with a chosen document in each slot, a line per method."""

from collections.abc import Sequence
from dataclasses import dataclass

from viz.drawing.identity import document_segment
from viz.drawing.numbers import format_difference
from viz.drawing.picture import Numbers, picture
from viz.drawing.tokens import shorten
from viz.figures.chart import Series, line_chart

_QUOTED = 60
"""Longest answer, in characters, that a caption repeats whole."""

_REST = "Point at a mark, or walk over them with the arrow keys, to read its value."
_UNIT = "log-probability, nats"


@dataclass(frozen=True)
class Standing:
    """One method's log-probabilities of the answer, in nats, one per slot; None where not computed yet.

    mark: index of its marker.
    """

    method: str
    label: str
    values: tuple[float | None, ...]
    mark: int

    @property
    def known(self) -> tuple[float, ...]:
        """The values computed so far."""
        return tuple(value for value in self.values if value is not None)

    @property
    def spread(self) -> float:
        """Largest less smallest value, in nats; 0 if there are none."""
        return max(self.known, default=0.0) - min(self.known, default=0.0)


@dataclass(frozen=True)
class Effects:
    """What moves vanilla, nats per slot: RoPE alone (NIA) and causal attention, each less its own mean.

    total: vanilla less its mean, the sum of both.
    """

    total: tuple[float, ...]
    rope: tuple[float, ...]
    causal: tuple[float, ...]


@dataclass(frozen=True)
class Sweep:
    """What was run. document: index of the moved one as entered. setting: model, dtype and device.

    standings: one per method, all computed in the same slots.
    """

    document: int
    answer: str
    setting: str
    standings: tuple[Standing, ...]


def standing_picture(sweep: Sweep) -> str:
    """HTML: one line per method over the slots of the moved document."""
    name = document_segment(sweep.document).name
    chart = line_chart(
        [Series(one.label, one.values, one.mark) for one in sweep.standings],
        _slots(len(sweep.standings[0].values)),
        x_title="slot",
        y_title=_UNIT,
    )
    rows = [
        (one.label, slot, value, value - one.known[0] if value is not None else None)
        for one in sweep.standings
        for slot, value in enumerate(one.values, 1)
    ]
    return picture(
        chart,
        name="where-the-answer-stands",
        title=f"How likely the answer is with {name} in each slot",
        caption=standing_caption(sweep),
        readout=_REST,
        numbers=Numbers(
            ("method", "slot", "log-probability of the answer (nats)", "less that of the first slot (nats)"),
            tuple(rows),
        ),
    )


def effects_picture(sweep: Sweep, effects: Effects) -> str:
    """HTML: what vanilla does over the slots, and the two parts whose sum it is."""
    chart = line_chart(
        [
            Series("Vanilla", effects.total, 0),
            Series("RoPE (NIA)", effects.rope, 1),
            Series("causal", effects.causal, 6),
        ],
        _slots(len(effects.total)),
        x_title="slot",
        y_title="nats above or below the mean",
    )
    return picture(
        chart,
        name="rope-and-causal-attention",
        title=f"What moves vanilla with {document_segment(sweep.document).name}: RoPE, and causal attention",
        caption=effects_caption(sweep, effects),
        readout=_REST,
        numbers=Numbers(
            (
                "slot",
                "vanilla less its mean (nats)",
                "RoPE alone: NIA less its mean (nats)",
                "causal attention: vanilla less NIA, less the mean (nats)",
            ),
            tuple(
                (slot, *values)
                for slot, values in enumerate(
                    zip(effects.total, effects.rope, effects.causal, strict=True), 1
                )
            ),
        ),
    )


def standing_caption(sweep: Sweep) -> str:
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


def effects_caption(sweep: Sweep, effects: Effects) -> str:
    """One sentence: how much of vanilla's movement is RoPE's and how much causal attention's."""
    whole, rope, causal = (_spread(values) for values in (effects.total, effects.rope, effects.causal))
    return (
        f"Vanilla moves by {format_difference(whole)} nats: RoPE alone, which is all that a slot changes "
        f"under NIA, moves it by {format_difference(rope)}, and what causal attention between documents adds "
        f"(vanilla less NIA) by {format_difference(causal)}; every line is less its own mean, and in each "
        f"slot the two parts add up to vanilla ({sweep.setting})."
    )


def _slots(count: int) -> list[str]:
    return [str(slot) for slot in range(1, count + 1)]


def _slot_of(one: Standing, value: float) -> int:
    return one.values.index(value) + 1


def _spread(values: Sequence[float]) -> float:
    return max(values) - min(values)


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
