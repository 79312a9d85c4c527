"""A wrapper over whole comparisons: what is run, planned and checked without a model."""

from collections.abc import Sequence
from dataclasses import dataclass

from pine_engine.debias.orders import MAX_ORDERS, Order, document_orders, pride_samples
from pine_engine.debias.table import CONTENT_FREE, DEBIASERS, Wrapper, get_wrapper
from pine_engine.errors import InputError
from pine_engine.methods.table import get_method
from pine_engine.prompts.request import LabeledRequest


@dataclass(frozen=True)
class DebiasPlan:
    """What is run: comparisons under one wrapper, and the orders of each, none where they stay in order.

    max_new_tokens: of generated answers, 0 where none is.
    """

    wrapper: Wrapper
    base: str
    comparisons: tuple[LabeledRequest, ...]
    orders: tuple[tuple[Order, ...], ...]
    majority: bool
    max_new_tokens: int
    seed: int

    @property
    def num_prompts(self) -> int:
        """How many prompts are read in all."""
        count = len(self.comparisons)
        if self.wrapper.orders is None:
            return count * (1 + len(CONTENT_FREE))
        in_all_orders = pride_samples(count, seed=self.seed) if self.wrapper.has_prior else range(count)
        return sum(len(own) if index in in_all_orders else 1 for index, own in enumerate(self.orders))


def plan_debias(
    comparisons: Sequence[LabeledRequest],
    *,
    wrapper: str,
    base: str = "vanilla",
    majority: bool = False,
    max_new_tokens: int = 64,
    samples: int = 10,
    seed: int = 0,
    max_orders: int = MAX_ORDERS,
) -> DebiasPlan:
    """Says what is run, or why it cannot be.

    majority: documents are voted for by generated answers, not averaged by the next token's probabilities.
    samples, seed, max_orders: see document_orders; the seed also chooses what PriDe learns from.
    Raises InputError for an unknown wrapper or method, no comparison, labels that do not fit, and too many
    orders.
    """
    row = get_wrapper(wrapper)
    get_method(base)
    if not comparisons:
        raise InputError("there is nothing to answer; give at least one comparison")
    if majority and not row.votes:
        names = [other.name for other in DEBIASERS.values() if other.votes]
        raise InputError(f"{wrapper} takes no majority of answers; choose from: {', '.join(names)}")
    _check_labels(row, comparisons)
    kind = row.orders
    orders = [
        document_orders(len(one.documents), kind, samples=samples, seed=seed, max_orders=max_orders)
        if kind
        else []
        for one in comparisons
    ]
    return DebiasPlan(
        wrapper=row,
        base=base,
        comparisons=tuple(comparisons),
        orders=tuple(map(tuple, orders)),
        majority=majority,
        max_new_tokens=max_new_tokens if majority or row.calibrated in ("first", "every") else 0,
        seed=seed,
    )


def _check_labels(wrapper: Wrapper, comparisons: Sequence[LabeledRequest]) -> None:
    for comparison in comparisons:
        labels, documents = len(comparison.labels), len(comparison.documents)
        if not labels and (wrapper.orders or wrapper.calibrated == "labels"):
            raise InputError(
                f"{wrapper.name} needs the labels that the model may answer; give some, such as A and B"
            )
        if wrapper.orders and labels != documents:
            raise InputError(
                f"there are {labels} labels for {documents} documents; give one label per document"
            )
    if wrapper.has_prior and len({tuple(comparison.labels) for comparison in comparisons}) > 1:
        raise InputError(
            f"{wrapper.name} learns about labels, which differ here; give the same labels throughout"
        )
