"""Results in a session: answers that someone else computed; they are untrusted until a run checks them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, Field, StringConstraints, model_validator

from pine_engine.errors import InputError
from pine_engine.rows.untrusted_json import TupleInput
from viz.cards.answers import AnswerCard
from viz.figures.answer_origin import AnswerOrigin
from viz.figures.positions_by_order import DocumentPositions
from viz.page.answers.run import Inputs, Order, OrderAnswers, Shown
from viz.page.form.form import Form

MAX_SHARED_ORDERS = 24
MAX_TOKEN_CHARACTERS = 200
Position = Annotated[int, Field(ge=0, le=10_000_000)]
Length = Annotated[int, Field(ge=1, le=10_000_000)]
AnswerText = Annotated[str, StringConstraints(max_length=8_000)]


class SharedAnswers(BaseModel, frozen=True, extra="forbid"):
    """Answers of one method."""

    method: Annotated[str, StringConstraints(max_length=100)]
    texts: TupleInput[AnswerText]  # in each order
    starts: TupleInput[TupleInput[Position]] = ()
    """First position of each document, in the order of the letters, in each order; empty if unknown."""
    origins: TupleInput[AnswerOrigin | None] = ()
    """Decisive word in each order, None for an answer without one; empty if unknown."""
    cut_off: TupleInput[bool] = ()
    """True in each order where the answer ends at the limit of tokens; empty for none."""


def _is_possible(origin: AnswerOrigin, text: str, num_documents: int) -> bool:
    """Check whether an origin fits an answer and its number of documents."""
    numbers = (origin.step, origin.layer, origin.head)
    return (
        0 <= origin.start < origin.stop <= len(text)
        and len(origin.token) <= MAX_TOKEN_CHARACTERS
        and all(0 <= number < 10_000 for number in numbers)
        and len(origin.shares) == num_documents
        and all(0 <= share <= 1 for share in origin.shares)
        and origin.document in range(num_documents)
        and origin.shares[origin.document] == max(origin.shares)
    )


class SharedResults(BaseModel, frozen=True, extra="forbid"):
    """Answers of all methods in some document orders."""

    orders: Annotated[TupleInput[TupleInput[int]], Field(min_length=1, max_length=MAX_SHARED_ORDERS)]
    answers: TupleInput[SharedAnswers]
    lengths: TupleInput[Length] = ()  # length of each document in tokens, in the order of the letters

    @model_validator(mode="after")
    def _same_sizes(self) -> Self:
        num_documents = len(self.orders[0])
        if len(set(self.orders)) < len(self.orders):
            raise InputError("Invalid results: an order is repeated.")
        for answers in self.answers:
            counts, sizes = {len(answers.texts)}, {num_documents}
            if answers.starts:
                counts.add(len(answers.starts))
                sizes |= {len(self.lengths), *map(len, answers.starts)}
            counts |= {len(known) for known in (answers.origins, answers.cut_off) if known}
            if counts != {len(self.orders)} or sizes != {num_documents}:
                raise InputError(f"Invalid results: answers of {answers.method!r} do not match the orders.")
            for text, origin in zip(answers.texts, answers.origins, strict=False):
                if origin and not _is_possible(origin, text, num_documents):
                    raise InputError(f"Invalid results: decisive word of {answers.method!r} out of range.")
        return self

    def check_form(self, form: Form) -> None:
        """Raise InputError for results of other documents or methods than those of a form."""
        letters = list(range(len(form.entries)))
        if any(sorted(order) != letters for order in self.orders):
            raise InputError(f"Invalid results: expected orders of {len(letters)} documents.")
        if [answers.method for answers in self.answers] != list(form.methods):
            raise InputError("Invalid results: expected answers of the methods of the session.")

    def by_order(self, recorded: str, *, shared: str = "") -> dict[Order, OrderAnswers]:
        """Return the answers by document order; see `OrderAnswers` for their source."""
        found = {}
        for place, order in enumerate(self.orders):
            starts = {one.method: np.array(one.starts[place]) for one in self.answers if one.starts}
            origins = {one.method: one.origins[place] for one in self.answers if one.origins}
            found[order] = OrderAnswers(
                {one.method: one.texts[place] for one in self.answers},
                origins={method: origin for method, origin in origins.items() if origin},
                positions=DocumentPositions(order, np.array(self.lengths), starts) if starts else None,
                cut_off=frozenset(one.method for one in self.answers if one.cut_off and one.cut_off[place]),
                recorded=recorded,
                shared=shared,
            )
        return found

    def without(self, *fields: Literal["origins", "starts"]) -> Self:
        """Return the results without these parts of the answers, which take less room."""
        answers = tuple(one.model_copy(update=dict.fromkeys(fields, ())) for one in self.answers)
        lengths = () if "starts" in fields else self.lengths
        return self.model_copy(update={"answers": answers, "lengths": lengths})


def results_of(shown: Shown, now: Inputs) -> SharedResults | None:
    """Return the answers on the page to these inputs, except precomputed ones; None if there are none.

    Further orders than the maximum are left out.
    """
    methods = now[0].methods
    orders = [
        order
        for order in shown.finished_orders(now, methods)
        if not shown.orders[order].recorded or shown.orders[order].shared
    ]
    if not orders:
        return None
    orders = orders[:MAX_SHARED_ORDERS]
    found = [shown.orders[order] for order in orders]
    positions = [answers.positions for answers in found]
    lengths = positions[0].lengths.tolist() if positions[0] else ()
    return SharedResults(
        orders=tuple(orders),
        answers=tuple(
            SharedAnswers(
                method=method,
                texts=tuple(answers.texts[method] for answers in found),
                starts=_starts(method, positions) if lengths else (),
                origins=_if_any(answers.origins.get(method) for answers in found),
                cut_off=_if_any(method in answers.cut_off for answers in found),
            )
            for method in methods
        ),
        lengths=tuple(lengths),
    )


def _starts(method: str, positions: Sequence[DocumentPositions | None]) -> tuple[tuple[int, ...], ...]:
    """Return the positions of a method in each order; () if they are not known in all of them."""
    starts = [one.starts.get(method) for one in positions if one]
    if len(starts) < len(positions) or any(one is None or (one < 0).any() for one in starts):
        return ()
    return tuple(tuple(map(int, one)) for one in starts if one is not None)


def _if_any(values: Iterable[Any]) -> tuple[Any, ...]:
    kept = tuple(values)
    return kept if any(kept) else ()


def shown_of(form: Form, results: SharedResults, model: str) -> Shown:
    """Return shared results as answers on the page, marked as computed by someone else."""
    model = model or "an unnamed model"
    orders = results.by_order(f"Computed by someone else with {model}", shared=model)
    order = form.order if form.order in orders else results.orders[0]
    lettered = {entry.letter: entry for entry in form.entries}
    form = replace(form, entries=tuple(lettered[letter] for letter in order))
    cards = tuple(
        AnswerCard(method, state="finished", text=orders[order].texts[method], recorded="by someone else")
        for method in form.methods
    )
    return Shown(form, cards, earlier=orders)
