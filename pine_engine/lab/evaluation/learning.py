"""Corrections that a wrapper learns from some examples of a run, for the other examples."""

from collections.abc import Sequence
from itertools import pairwise

from pine_engine.lab.debias.estimators import Correction
from pine_engine.lab.debias.measured import MeasuredMethod
from pine_engine.lab.debias.plan import is_learned_example
from pine_engine.lab.evaluation.record import Record
from pine_engine.prompts.examples import Example


class Corrections:
    """Numbers learned from examples, and the corrections that follow from them.

    A wrapper learns from the first example that can be measured, and from a share of the others, selected by
    their ids. The correction of all other examples is learned from those before them, so it is independent
    of shards, of a limit of the examples, and of interruptions. Examples with different numbers of documents
    have different labels, and are learned from apart.
    """

    def __init__(self, dataset: Sequence[Example]) -> None:
        """Begin without numbers. dataset: examples of the whole run, in order."""
        self._dataset = dataset
        self._known: dict[tuple[str, str], tuple[float, ...] | None] = {}

    def learn(self, item: object) -> None:
        """Take the numbers of a record in the stored order or a rotation of it; ignore other items."""
        if isinstance(item, Record) and item.prior and _visits_stored_order(item):
            self._known[item.method, item.example] = tuple(item.prior.values())

    def next_unknown(self, example: Example, method: MeasuredMethod) -> Example | None:
        """Return the first example before this one that has to be run, so that the wrapper learns from it.

        None if all have been run. The returned one counts as run, without numbers.
        """
        _, unknown, _ = self._before(example, method)
        if unknown:
            self._known[method.name, unknown.id] = None
        return unknown

    def correction(self, example: Example, method: MeasuredMethod) -> Correction | None:
        """Return the correction for an example, None if the wrapper learns from it."""
        assert method.wrapper and method.wrapper.estimator
        numbers, _, is_learned = self._before(example, method)
        return None if is_learned else method.wrapper.estimator.fit(numbers)

    def _before(
        self, example: Example, method: MeasuredMethod
    ) -> tuple[list[tuple[float, ...]], Example | None, bool]:
        """Return the numbers of the examples before one, up to the first that has not been run, and this.

        The last value is True if the wrapper learns from that example, or without one from the given one.
        """
        assert method.wrapper
        numbers: list[tuple[float, ...]] = []
        for row in self._dataset:
            if len(row.documents) != len(example.documents):  # other labels
                continue
            is_learned = not numbers or is_learned_example(row.id, method.wrapper.learned_share)
            if row.id == example.id:
                return numbers, None, is_learned
            if is_learned and (method.name, row.id) not in self._known:
                return numbers, row, is_learned
            if is_learned and (found := self._known[method.name, row.id]):
                numbers.append(found)
        raise AssertionError(f"{example.id} is not an example of the run")


def _visits_stored_order(record: Record) -> bool:
    """Check whether the rotations of the documents are those of the stored order.

    Numbers of other rotations would depend on the orders of the run, and on the shard of the example.
    """
    count, slots = len(record.slots), record.slots
    return all((after - before) % count == 1 % count for before, after in pairwise(slots))
