"""Printable certificate: the request, the results in every document order, and the platform."""

import math
from dataclasses import dataclass

from viz.drawing.identity import document_segment
from viz.drawing.markup import render
from viz.drawing.numbers import format_difference, format_value


@dataclass(frozen=True)
class CertifiedMethod:
    """Results of one method over all orders.

    Attributes:
        answer: Answer in the first order.
        token_ids: Token ids of that answer.
        same: Number of orders with that answer, including the first.
        distinct: Number of distinct answers.
        logprobs: Log-probability of the answer of the first order in every order, in nats.
        logprob_spread: Largest minus smallest of `logprobs`.
        sha256: SHA-256 over all logits of the first order.
    """

    label: str
    is_order_invariant: bool
    answer: str
    token_ids: tuple[int, ...]
    same: int
    distinct: int
    max_abs_logit_diff: float
    bitwise_identical: bool
    logprobs: tuple[float, ...]
    logprob_spread: float
    sha256: str

    @property
    def difference(self) -> str:
        """The largest logit difference, formatted."""
        return format_difference(self.max_abs_logit_diff)

    @property
    def spread(self) -> str:
        """Largest minus smallest log-probability, formatted."""
        return format_difference(self.logprob_spread)

    @property
    def verdict(self) -> str:
        """Conclusion from the numbers, in a few words."""
        if self.is_order_invariant:
            return "does not depend on the order ✓" if self.bitwise_identical else "broke its promise ✗"
        return "may depend on the order, did not here" if self.bitwise_identical else "depends on the order"


@dataclass(frozen=True)
class Sheet:
    """Content of the page.

    Attributes:
        facts: Names and values of everything that bitwise identity depends on: model, versions, hardware.
        documents: Title, which may be empty, and text of the documents A, B, C, ...
        orders: Document orders that were run, each as the document in each slot; the first as entered.
        seed: Seed of the orders. None if they are all possible orders, or the first of these after a stop.
        command: Command that reproduces the certificate.
    """

    made: str
    facts: tuple[tuple[str, str], ...]
    task: str
    question: str
    instruction: str
    documents: tuple[tuple[str, str], ...]
    orders: tuple[tuple[int, ...], ...]
    seed: int | None
    max_new_tokens: int
    methods: tuple[CertifiedMethod, ...]
    command: str


def certificate_page(sheet: Sheet, *, styles: str) -> str:
    """Return the certificate as an HTML document without scripts, which needs no other file.

    Args:
        sheet: Content of the page.
        styles: Style sheet, as figure_styles() returns it.
    """
    orders = [[document_segment(index, slot) for slot, index in enumerate(order)] for order in sheet.orders]
    return render(
        "certificate.html",
        sheet=sheet,
        styles=styles,
        documents=[
            (document_segment(index, index), title, text)
            for index, (title, text) in enumerate(sheet.documents)
        ],
        orders=[
            (order, [format_value(method.logprobs[index]) for method in sheet.methods])
            for index, order in enumerate(orders)
        ],
        which=_describe_orders(sheet),
    )


def _describe_orders(sheet: Sheet) -> str:
    """Return which orders were run, in words."""
    if sheet.seed is not None:
        return f"as entered and random ones, seed {sheet.seed}"
    count = math.factorial(len(sheet.documents))
    return "all there are" if len(sheet.orders) == count else f"the first of all {count:,}"
