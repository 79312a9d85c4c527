"""Results of a prompt in several document orders, compared with the first: records without torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

from pine_engine.engine.events import Answer, RunResult, to_frame
from pine_engine.methods.table import METHODS, Method
from pine_engine.reprs import html_table, plot, short_repr, shorten
from pine_engine.rows.untrusted_json import ListInput

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class OrderComparison:
    """Answer of one method in one order, compared with its answer in the first order."""

    answer: Answer
    same_text: bool  # True if the tokens, or the texts after a thinking part, are equal
    first_difference: int | None  # index of the first different token, None if all are equal
    max_abs_logit_diff: float  # of the suffix, and of the steps up to this token
    bitwise_identical: bool | None  # True if all of these logits and all tokens are; None for an endpoint
    reference_logprob: float  # of the answer of the first order, in nats, without its end; 0 if it is empty
    token_text: str | None = None  # of the first different token, None if the answer ended before it
    reference_token_text: str | None = None  # of the token of the first order at this index

    __repr__ = short_repr

    @property
    def text(self) -> str:
        """Text of the answer."""
        return self.answer.text

    @property
    def is_unchanged(self) -> bool:
        """True if nothing that is known changed: logits and tokens, or the text of an endpoint."""
        return self.same_text if self.bitwise_identical is None else self.bitwise_identical


@dataclass(frozen=True)
class OrderResult:
    """Answers of all methods in one order, compared with the first order."""

    order: tuple[int, ...]  # document in each slot
    comparisons: dict[str, OrderComparison]  # by method
    result: RunResult

    def __repr__(self) -> str:
        answers = (f"{method}={shorten(one.text)}" for method, one in self.comparisons.items())
        return f"OrderResult({', '.join([str(self.order), *answers])})"


class OrderStats(BaseModel):
    """Answers of one method in all orders, compared with the first order; certificates contain it."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")

    method: str
    num_distinct_answers: PositiveInt
    num_matching_answers: PositiveInt  # answers equal to that of the first order
    max_abs_logit_diff: float  # NaN if that of an order is NaN
    bitwise_identical: bool | None  # None for an endpoint, whose logits are not known
    logprobs: ListInput[float]  # of the first order's answer in each order, in nats
    logprob_spread: float  # largest minus smallest
    first_answer: str
    first_token_ids: ListInput[NonNegativeInt]
    logits_sha256: str = Field(default="", pattern="^([0-9a-f]{64})?$")
    """hash_logits() of the first order; empty outside a certificate."""

    @property
    def orders(self) -> int:
        """Number of orders."""
        return len(self.logprobs)


def summarize_orders(rows: Sequence[Mapping[str, OrderComparison]]) -> dict[str, OrderStats]:
    """Return the statistics of each method.

    Args:
        rows: `OrderResult.comparisons` of each order.
    """
    statistics = {}
    for method, first in rows[0].items():
        comparisons = [row[method] for row in rows]
        logprobs = [one.reference_logprob for one in comparisons]
        is_identical = [one.bitwise_identical for one in comparisons]
        statistics[method] = OrderStats(
            method=method,
            num_distinct_answers=len({one.answer.content for one in comparisons}),
            num_matching_answers=sum(one.same_text for one in comparisons),
            max_abs_logit_diff=float(np.max([one.max_abs_logit_diff for one in comparisons])),
            bitwise_identical=None if first.bitwise_identical is None else all(is_identical),
            logprobs=logprobs,
            logprob_spread=max(logprobs) - min(logprobs),
            first_answer=first.text,
            first_token_ids=list(first.answer.token_ids),
        )
    return statistics


@dataclass(frozen=True)
class ShuffleResult:
    """Answers to one prompt in several document orders, each compared with the first."""

    results: tuple[OrderResult, ...]
    methods: tuple[Method, ...] = ()  # of the run; needed for those that are in no table

    @property
    def orders(self) -> tuple[tuple[int, ...], ...]:
        """The orders, the reference first; `orders[i][slot]` is a document."""
        return tuple(result.order for result in self.results)

    @property
    def comparisons(self) -> list[dict[str, OrderComparison]]:
        """Comparisons of each order, by method."""
        return [result.comparisons for result in self.results]

    @property
    def answers(self) -> dict[str, list[str]]:
        """Text of each method's answers, in all orders."""
        return {method: [row[method].text for row in self.comparisons] for method in self.summary}

    @cached_property
    def summary(self) -> dict[str, OrderStats]:
        """Statistics of each method."""
        return summarize_orders(self.comparisons)

    @property
    def invariance_held(self) -> dict[str, bool | None]:
        """For each method, True if no order changed what is known; None if it is not order-invariant.

        None, too, if there is no second order, as of a single document. All logits and tokens are known, or
        the text of an endpoint.
        """
        rows = {**METHODS, **{method.name: method for method in self.methods}}
        return {
            method: (
                all(row[method].is_unchanged for row in self.comparisons)
                if rows[method].is_order_invariant and len(self.comparisons) > 1
                else None
            )
            for method in self.summary
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the answers as JSON, one entry per order and method.

        Each entry has the order, the method, the text of the answer, and the comparison with the answer in
        the first order.
        """
        answers = [
            {
                "order": list(result.order),
                "method": method,
                "text": one.text,
                "same_text": one.same_text,
                "bitwise_identical": one.bitwise_identical,
                "max_abs_logit_diff": one.max_abs_logit_diff,
                "reference_logprob": one.reference_logprob,
            }
            for result in self.results
            for method, one in result.comparisons.items()
        ]
        return {"results": answers}

    def to_frame(self) -> "DataFrame":
        """Return the entries of `to_dict` as a pandas DataFrame, one row per order and method.

        Raises:
            InputError: pandas is not installed.
        """
        return to_frame(self.to_dict()["results"])

    def show(self) -> None:
        """Open a figure with the answer of each method in each order, in a notebook or in the browser."""
        plot("plot_shuffle", self.results).show()

    @property
    def first(self) -> RunResult:
        """The run in the first order."""
        return self.results[0].result

    def __repr__(self) -> str:
        parts = [f"{len(self.results)} order{'s' * (len(self.results) != 1)}"]
        for method, stats in self.summary.items():
            count = stats.num_distinct_answers
            parts.append(f"{method}: {count} answer{'s' * (count != 1)}, {_describe_logits(stats)}")
        return f"ShuffleResult({'; '.join(parts)})"

    def _repr_html_(self) -> str:
        rows = [
            (" ".join(map(str, result.order)), *(one.text for one in result.comparisons.values()))
            for result in self.results
        ]
        statistics = self.summary.values()
        held = {True: "held", False: "violated", None: "not claimed"}
        rows += [
            ("different answers", *(str(stats.num_distinct_answers) for stats in statistics)),
            ("logits", *map(_describe_logits, statistics)),
            ("order invariance", *(held[value] for value in self.invariance_held.values())),
        ]
        return html_table(("order", *self.summary), rows)


def _describe_logits(stats: OrderStats) -> str:
    if stats.bitwise_identical:
        return "bitwise identical"
    return f"differ by up to {stats.max_abs_logit_diff:.3g}"
