"""What PriDe learns, row after row: so that a prior is the same however a run is cut (specification 8.3).

A row is learnt from if the hash of its id falls into PRIOR_FRACTION, and if nothing was learnt before it. All
others are divided by the mean prior of those before them. So it matters neither how many rows follow, nor
which process measures which, nor where a run was killed.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from pine_engine.debias.measured import MeasuredMethod
from pine_engine.debias.orders import PRIOR_FRACTION
from pine_engine.debias.permutation import mean_prior
from pine_engine.evaluation.combining import Prior
from pine_engine.evaluation.examples import Example
from pine_engine.evaluation.records import Record

SEED = 0
"""Of the hash."""

Learn = Callable[[Example, MeasuredMethod], Prior | None]
"""Measures a row's own prior; None if the row cannot be measured."""


def is_learnt_from(row: str) -> bool:
    """Whether the prior is learnt from the row of that id, wherever it stands."""
    digest = hashlib.sha256(f"{SEED}:{row}".encode()).digest()
    return int.from_bytes(digest[:8]) < PRIOR_FRACTION * 2**64


def known_priors(records: Iterable[Record]) -> dict[tuple[str, str], Prior]:
    """The priors in records, by method and row; of a row that is learnt from, its own."""
    return {
        (record.method, record.example): tuple(record.prior.values()) for record in records if record.prior
    }


class Priors:
    """The priors of one run.

    rows: all of the run, in its order. known: see known_priors. learn: for rows of which none is known.
    """

    def __init__(self, rows: Sequence[Example], known: Mapping[tuple[str, str], Prior], learn: Learn) -> None:
        self._rows = rows
        self._chosen = {row.id for row in rows if is_learnt_from(row.id)}
        self._own: dict[tuple[str, str], Prior | None] = dict(known)
        self._learn = learn

    def before(self, example: Example, method: MeasuredMethod) -> Prior | None:
        """The prior that this row is divided by; None if it is learnt from."""
        learnt: list[Prior] = []
        for row in self._rows:
            is_chosen = not learnt or row.id in self._chosen
            if row.id == example.id:
                return None if is_chosen else mean_prior(learnt)
            if is_chosen and (prior := self._own_of(row, method)):
                learnt.append(prior)
        raise AssertionError(f"{example.id} is no row of the run")

    def see(self, record: Record) -> None:
        """Takes over what was measured, so that it need not be measured again."""
        self._own.update(known_priors([record]))

    def _own_of(self, row: Example, method: MeasuredMethod) -> Prior | None:
        key = (method.name, row.id)
        if key not in self._own:
            self._own[key] = self._learn(row, method)
        return self._own[key]
