"""Record of a run: form, model and results by document order; and what the page shows of it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pine_engine as pine
from pine_engine.endpoint.repeats import Repeats
from pine_engine.engine.events import RunResult
from pine_engine.invariance.certificate import summarize_methods
from pine_engine.scheduling.work import Work
from viz.cards.answers import AnswerCard, Source
from viz.drawing.identity import document_letter
from viz.drawing.text import join_words
from viz.figures.answer_origin import AnswerOrigin
from viz.figures.answer_tokens import AnswerTokens
from viz.page.answers.order_answers import Order, OrderAnswers, named_model, order_answers, origin_sentence
from viz.page.form.form import Form
from viz.page.jobs.sources import Choice

if TYPE_CHECKING:  # imports torch
    from pine_engine.backend import Backend

Inputs = tuple[Form, Choice | None]
"""Form and selected model of results; None is the model of the host."""


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
        results = summarize_methods([row.comparisons for row in self.comparisons], hashes)
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


@dataclass(frozen=True)
class Shown:
    """Answers on the page, and view of a job that computes them.

    Attributes:
        form: Form of the answers.
        cards: Answers in the order of the form.
        planned: Document orders of the job.
        run: Run so far; None before its first order is finished.
        earlier: Answers of earlier runs with the same inputs, or recorded ones.
        model: Selected model.
        sentence: Progress in one line.
        done: Work so far.
    """

    form: Form
    cards: tuple[AnswerCard, ...]
    planned: tuple[Order, ...] = ()
    run: Run | None = None
    earlier: Mapping[Order, OrderAnswers] = field(default_factory=dict)
    model: Choice | None = None
    sentence: str = field(default="", compare=False)
    done: Work = field(default=Work(), compare=False)

    @property
    def progress(self) -> tuple[int, int]:
        """Number of finished prefills, and of all."""
        return self.done.prompts, len(self.cards) * len(self.planned)

    @property
    def is_complete(self) -> bool:
        """True if all orders are finished."""
        return self.run is not None and len(self.run.orders) == len(self.planned)

    @property
    def has_text(self) -> bool:
        """True if an answer has begun; before, the results of an earlier run stay on the page."""
        return self.run is not None or any(card.text or card.thinking for card in self.cards)

    @property
    def inputs(self) -> Inputs | None:
        """Form and selected model of the answers; None before a run."""
        return (self.form, self.model) if self.has_text else None

    def changes(self, now: Inputs) -> list[str]:
        """Describe how the inputs have changed since; answers are of all orders.

        Methods and length of recorded and shared answers are fixed.
        """
        is_fixed = any(card.source != "own" for card in self.cards)
        ignored = ("order", "methods", "max new tokens") if is_fixed else ("order",)
        return changes(self.inputs, now, ignored=ignored)

    def finished_orders(self, now: Inputs, methods: Collection[str], *, live: bool = False) -> list[Order]:
        """Return the orders with answers of these methods to these inputs; `live` omits those of others."""
        if self.changes(now):
            return []
        wanted = set(methods)
        return [
            order
            for order, answers in self.orders.items()
            if answers.texts.keys() == wanted or (not answers.is_own and answers.texts.keys() > wanted)
            if answers.is_own or not live
        ]

    @property
    def recorded(self) -> str:
        """Model of recorded cards in a sentence; "" for others."""
        answers = self.orders.get(self.form.order)
        has_cards = any(card.source == "recorded" for card in self.cards)
        return answers.origin if answers and answers.source == "recorded" and has_cards else ""

    @property
    def orders(self) -> dict[Order, OrderAnswers]:
        """Answers by document order: earlier ones, replaced by those of the run."""
        orders = dict(self.earlier)
        for order, answers in self.run.orders.items() if self.run else ():
            orders[order] = _replace_answers(orders.get(order), answers)
        return orders

    @property
    def all_orders(self) -> tuple[Order, ...]:
        """Document orders with answers, then those without."""
        return tuple(dict.fromkeys((*self.orders, *self.planned)))


def _replace_answers(before: OrderAnswers | None, answers: OrderAnswers) -> OrderAnswers:
    replaced = before if before is None or not before.is_own else before.replaces
    if replaced is None:
        return answers
    source: Source = "checked" if replaced.source == "shared" else "own"
    return replace(answers, source=source, replaces=replaced)


def keep_earlier(before: Shown | None, view: Shown) -> Shown:
    """Return a view of a job beside the answers of the same methods before it."""
    methods: Collection[str] = {card.method for card in view.cards}
    if before is None or any(answers.texts.keys() != methods for answers in before.orders.values()):
        return view
    run = view.run.joined(before.run) if view.run else None
    return replace(view, run=run, earlier=before.orders, planned=(*before.planned, *view.planned))


def changes(before: Inputs | None, now: Inputs, *, ignored: Collection[str] = ()) -> list[str]:
    """Describe the differences between the inputs of results and those of the page; empty without results."""
    if before is None or before == now:
        return []
    (old, old_model), (new, model) = before, now
    nouns = new.row.nouns
    if old.task != new.task:
        return ["task"]
    then, texts = ({one.letter: (one.title, one.text) for one in form.entries} for form in (old, new))
    both = sorted(then.keys() & texts)
    edited = [document_letter(letter) for letter in both if then[letter] != texts[letter]]
    different = {
        f"number of {nouns.documents}": len(then) != len(texts),
        f"text of {join_words(edited)}": bool(edited),
        "order": len(then) == len(texts) and old.order != new.order,
        nouns.question: old.question.strip() != new.question.strip(),
        "instruction": old.used_instruction != new.used_instruction,
        "chat template arguments": old.chat_template_kwargs != new.chat_template_kwargs,
        "methods": old.methods != new.methods,
        "max new tokens": old.max_new_tokens != new.max_new_tokens,
        "model": old_model != model,
    }
    return [name for name, is_different in different.items() if is_different and name not in ignored]
