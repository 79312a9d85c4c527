"""Answers on the page, of a job, of earlier runs and of records; and how inputs differ from theirs."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from pine_engine.engine.events import Answer
from pine_engine.scheduling.work import Work
from viz.cards.answers import AnswerCard, Source
from viz.drawing.identity import document_letter
from viz.drawing.text import join_words
from viz.page.answers.order_answers import Order, OrderAnswers
from viz.page.answers.run import Run
from viz.page.form.form import Form
from viz.page.jobs.sources import Choice

Inputs = tuple[Form, Choice | None]
"""Form and selected model of results; None is the model of the host."""

FREE_INPUTS = ("order", "methods", "max new tokens")
"""Inputs of which answers to the same texts may have others."""


@dataclass(frozen=True)
class Shown:
    """Answers on the page, and view of a job that computes them.

    Attributes:
        form: Form of the answers.
        cards: Answers in the order of the form.
        planned: Document orders of the job.
        run: Run so far; None before its first order is finished.
        earlier: Answers of earlier runs with the same inputs, or recorded ones.
        early: Finished answers in orders that are not finished. They are shown, but not shared.
        model: Selected model.
        sentence: Progress in one line.
        done: Work so far.
    """

    form: Form
    cards: tuple[AnswerCard, ...]
    planned: tuple[Order, ...] = ()
    run: Run | None = None
    earlier: Mapping[Order, OrderAnswers] = field(default_factory=dict)
    early: Mapping[Order, OrderAnswers] = field(default_factory=dict)
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
        ignored = FREE_INPUTS if is_fixed else ("order",)
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
    def shown_orders(self) -> dict[Order, OrderAnswers]:
        """Answers by document order, with those in orders that are not finished."""
        orders = self.orders
        return orders | {order: answers for order, answers in self.early.items() if order not in orders}

    def with_early(self, order: Order, answer: Answer) -> "Shown":
        """Return the view with a finished answer in an order that is not finished."""
        known = self.early.get(order, OrderAnswers({}))
        cut_off = known.cut_off | ({answer.method} if answer.finish_reason == "length" else set())
        answers = replace(known, texts={**known.texts, answer.method: answer.text}, cut_off=cut_off)
        return replace(self, early={**self.early, order: answers})

    def with_texts_without(
        self,
        order: Order,
        texts: Mapping[str, tuple[str | None, ...]],
        falls: Mapping[str, tuple[float, ...]] = MappingProxyType({}),
    ) -> "Shown":
        """Return the view with answers without each document added to one order; None keeps a known one.

        falls: of the log-probabilities of the answers.
        """
        kept = self.run.orders if self.run and order in self.run.orders else self.earlier
        known = kept[order].texts_without
        joined = {
            method: tuple(map(lambda new, old: old if new is None else new, found, known.get(method, found)))
            for method, found in texts.items()
        }
        orders = {
            **kept,
            order: replace(kept[order], texts_without=joined, falls={**kept[order].falls, **falls}),
        }
        if self.run and kept is self.run.orders:
            return replace(self, run=replace(self.run, orders=orders))
        return replace(self, earlier=orders)

    @property
    def all_orders(self) -> tuple[Order, ...]:
        """Document orders with answers, then those without."""
        return tuple(dict.fromkeys((*self.shown_orders, *self.planned)))


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
