"""Finished run in memory: form, model, and results by document order."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pine_engine as pine
from pine_engine.endpoint.repeats import Repeats
from pine_engine.engine.events import RunResult
from pine_engine.invariance.certificate import certified_stats
from viz.cards.answers import Source
from viz.figures.answer_origin import AnswerOrigin
from viz.figures.answer_tokens import AnswerTokens
from viz.page.answers.order_answers import Order, OrderAnswers, named_model, order_answers, origin_sentence
from viz.page.form.form import Form

if TYPE_CHECKING:  # imports torch
    from pine_engine.backend import Backend


@dataclass(frozen=True)
class Run:
    """Form, model and results of a run.

    Attributes:
        result: Result in the order of the form.
        orders: Answers by document order, those in the order of the form first.
        prompt_tokens: Text of each token of the prompt.
        address: Name that loads the model.
        revision: Version of the model; "" if it has none.
        source: Where it was computed.
        caption: Settings of a shuffle test, in words.
        first_certificate: Certificate of the first order of a shuffle test.
        repeats: Repeated requests of an endpoint; None for a loaded model.
        left_out: Scores without each document, by method; those that were computed after the run.
    """

    form: Form
    model: str
    dtype: str
    address: str
    result: RunResult = field(compare=False)
    prompt_tokens: tuple[str, ...] = field(compare=False)
    orders: Mapping[Order, OrderAnswers]
    revision: str = ""
    source: Source = "own"
    caption: str = ""
    first_certificate: "pine.Certificate | None" = field(default=None, compare=False)
    left_out: "Mapping[str, pine.LeaveOneOut]" = field(default_factory=dict, compare=False)
    repeats: Repeats | None = None

    @property
    def origin(self) -> str:
        """Model of a recorded run in a sentence; "" for a run of this session."""
        return origin_sentence(self.source, named_model(self.model, self.dtype, self.revision))

    @property
    def has_internals(self) -> bool:
        """True unless the model returns texts only."""
        return self.repeats is None

    @property
    def order(self) -> Order:
        """Document, as entered, in each slot of the prompt."""
        return self.form.order

    @property
    def titles(self) -> tuple[str, ...]:
        """Title in each slot; may be empty."""
        return tuple(map(self.form.title, self.form.entries))

    @property
    def answer_records(self) -> Mapping[str, AnswerTokens]:
        """Answer of each traced method in the order of the form, token by token."""
        return self.orders[self.order].records

    @property
    def origins(self) -> Mapping[str, AnswerOrigin]:
        """Decisive word of each traced answer in the order of the form, by method."""
        return self.orders[self.order].origins

    @property
    def other_orders(self) -> list[tuple[Order, OrderAnswers]]:
        """Answers in the orders besides that of the form."""
        return [(order, answers) for order, answers in self.orders.items() if order != self.order]

    @property
    def comparisons(self) -> list["pine.OrderResult"]:
        """Results of a shuffle test, the first order first."""
        return [answers.comparison for answers in self.orders.values() if answers.comparison]

    def joined(self, earlier: "Run | None") -> "Run":
        """Return the run with the orders of an earlier shuffle test that has the same first answers."""
        if earlier is None or self._reference is None or self._reference != earlier._reference:
            return self
        return replace(self, orders={self.order: self.orders[self.order], **earlier.orders, **self.orders})

    @property
    def _reference(self) -> object:
        """First answers, with which the others are compared; None for a run of one order."""
        if self.first_certificate:
            return self.first_certificate.orders, self.first_certificate.hashes
        return (self.order, self.orders[self.order].texts) if self.comparisons else None

    @property
    def certificate(self) -> "pine.Certificate | None":
        """Certificate of the finished orders of a shuffle test."""
        if (first := self.first_certificate) is None:
            return None
        hashes = dict(zip(first.methods, first.hashes, strict=True))
        results = certified_stats([row.comparisons for row in self.comparisons], hashes)
        return first.model_copy(update={"orders": list(map(list, self.orders)), "results": results})


def finish_run(
    engine: "Backend",
    form: Form,
    result: RunResult,
    comparison: "pine.OrderResult | None" = None,
    *,
    repeats: Repeats | None = None,
) -> Run:
    """Return the run of a form in one order, without the logits, which take more memory than all the rest."""
    return Run(
        form=form,
        model=engine.model_name,
        dtype=engine.dtype,
        address=engine.model_ref,
        result=replace(result, logits={}),
        prompt_tokens=tuple(engine.decode_tokens(result.layout.ids)),
        orders={form.order: order_answers(engine, form, result, form.order, comparison=comparison)},
        revision=engine.revision or "",
        repeats=repeats,
    )
