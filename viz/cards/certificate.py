"""A certificate to print: what was asked, where it was computed, what the order of the documents changed."""

import math
from dataclasses import dataclass

from viz.drawing.identity import document_letter, document_segment
from viz.drawing.markup import render
from viz.drawing.numbers import format_difference, format_value
from viz.figures.chart import Strip, strip_chart


@dataclass(frozen=True)
class CertifiedMethod:
    """One method over all orders.

    answer, token_ids: of the first order. same: orders with that answer, the first among them. logprobs: its
    log-probability in every order, in nats. sha256: over all logits of the first order.
    """

    label: str
    promises_invariance: bool
    answer: str
    token_ids: tuple[int, ...]
    same: int
    distinct: int
    max_abs_logit_diff: float
    bitwise_equal: bool
    logprobs: tuple[float, ...]
    logprob_spread: float
    sha256: str

    @property
    def difference(self) -> str:
        """The largest logit difference as measured, in words."""
        return format_difference(self.max_abs_logit_diff)

    @property
    def spread(self) -> str:
        """Largest less smallest log-probability as measured, in words."""
        return format_difference(self.logprob_spread)

    @property
    def verdict(self) -> str:
        """What the numbers say, in a few words."""
        if self.promises_invariance:
            return "does not depend on the order ✓" if self.bitwise_equal else "broke its promise ✗"
        return "may depend on the order, did not here" if self.bitwise_equal else "depends on the order"


@dataclass(frozen=True)
class Sheet:
    """Everything that the page shows.

    facts: name and value of what the bits depend on: model, versions, hardware. documents: title, which may
    be empty, and text of A, B, C ... orders: those tried, the first as entered; the document at each place.
    seed: of the orders, None if they are all there are, or the first of these where somebody stopped.
    command: what repeats it.
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
    """One HTML file that needs nothing else, no script either. styles: figure_styles()."""
    orders = [[document_segment(index, slot) for slot, index in enumerate(order)] for order in sheet.orders]
    letters = [" ".join(map(document_letter, order)) for order in sheet.orders]
    strips = [
        Strip(
            label=method.label,
            values=method.logprobs,
            notes=tuple(
                f"{method.label}, order {order}: {format_value(value)} nats"
                for order, value in zip(letters, method.logprobs, strict=True)
            ),
            promise=method.promises_invariance,
        )
        for method in sheet.methods
    ]
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
        which=_which(sheet),
        chart=strip_chart(strips, x_title="log-probability (nats)"),
    )


def _which(sheet: Sheet) -> str:
    """Which orders were tried, in words."""
    if sheet.seed is not None:
        return f"as entered and random ones, seed {sheet.seed}"
    count = math.factorial(len(sheet.documents))
    return "all there are" if len(sheet.orders) == count else f"the first of all {count:,}"
