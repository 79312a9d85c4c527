"""Written record of a run: form, model, answers by document order, and the selections of the page.

Links, drafts, session files, the ZIP of a run and the recorded examples contain it (`viz/page/session.py`).
Records from outside are untrusted: their answers count as those of someone else until a run checks them.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    FiniteFloat,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from pine_engine.errors import InputError
from pine_engine.rows.untrusted_json import TupleInput
from viz.cards.answers import Source
from viz.figures.answer_origin import AnswerOrigin
from viz.figures.positions_by_order import DocumentPositions
from viz.page.answers.order_answers import Order, OrderAnswers, named_model, origin_sentence
from viz.page.common.failures import first_problem
from viz.page.common.limits import MAX_ORDERS
from viz.page.form.documents import KNOWN_TASK, SentEntries
from viz.page.form.form import MAX_NEW_TOKENS, MIN_NEW_TOKENS, Form
from viz.page.form.options import OFFERED

MAX_TOKEN_CHARACTERS = 200
Text = Annotated[str, StringConstraints(max_length=200_000)]
ShortText = Annotated[str, StringConstraints(max_length=2_000)]
AnswerText = Annotated[str, StringConstraints(max_length=MAX_NEW_TOKENS * MAX_TOKEN_CHARACTERS)]
NAME = re.compile(r"[\w./:@+-]{1,100}( [\w.]{1,20})?", re.ASCII)
Name = Annotated[ShortText, AfterValidator(lambda name: name if NAME.fullmatch(name) else "")]
"""Model, dtype or revision, shown in sentences of the page; other texts are left out."""

Position = Annotated[int, Field(ge=0, le=10_000_000)]
Length = Annotated[int, Field(ge=1, le=10_000_000)]
Count = Annotated[int, Field(ge=0, le=10_000_000)]
LEFT_OUT = Field(exclude_if=lambda value: not value)  # from the JSON if it is empty


class MethodAnswers(BaseModel, frozen=True, extra="forbid", ser_json_inf_nan="strings"):
    """Answers of one method."""

    method: Annotated[str, StringConstraints(max_length=100)]
    texts: TupleInput[AnswerText]  # in each order
    starts: TupleInput[TupleInput[Position]] = ()
    """First position of each document, in the order of the letters, in each order; empty if unknown."""
    queries: TupleInput[Position] = ()
    """Position of the query in each order, for which `starts` are; empty if unknown."""
    origins: TupleInput[AnswerOrigin | None] = ()
    """Decisive word in each order, None for an answer without one; empty if unknown."""
    cut_off: TupleInput[bool] = ()
    """True in each order where the answer ends at the limit of tokens; empty for none."""
    texts_without: Annotated[TupleInput[TupleInput[AnswerText | None]], LEFT_OUT] = ()
    """Answers without each document, in the order of the letters, in each order; empty if unknown."""
    falls: Annotated[TupleInput[TupleInput[FiniteFloat]], LEFT_OUT] = ()
    """Fall of the answer's log-probability without each document, in nats, as `texts_without`."""
    # Of the answer in the order of the form, as far as they are known.
    num_tokens: Count = 0
    token_ids: TupleInput[Count] = ()
    tokens: TupleInput[ShortText] = ()
    logprobs: TupleInput[float] = ()  # in nats
    thinking: AnswerText = ""
    times: dict[ShortText, float] = Field(default_factory=dict, max_length=5)  # in seconds


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


class RunRecord(BaseModel, frozen=True, extra="forbid"):
    """Form and its run, if it was run, with the selections of the page."""

    format: Literal["pine-explorer session"] = "pine-explorer session"
    version: Literal[1] = 1
    task: Annotated[ShortText, KNOWN_TASK]
    question: Text = ""
    instruction: Text = ""
    chat_template_kwargs: Annotated[ShortText, LEFT_OUT] = ""  # as JSON
    accepted: Text = ""  # accepted answers, one per line
    methods: Annotated[TupleInput[ShortText], Field(max_length=len(OFFERED))]
    max_new_tokens: Annotated[int, Field(ge=MIN_NEW_TOKENS, le=MAX_NEW_TOKENS)]
    documents: SentEntries  # in slot order
    ran: bool = False  # True if there were answers
    model: Name = ""  # model of the answers; opening the record shows its name and loads nothing
    dtype: Annotated[Name, LEFT_OUT] = ""
    revision: Annotated[Name, LEFT_OUT] = ""
    source: Annotated[Source, Field(exclude_if=lambda source: source == "shared")] = "shared"
    selection: dict[ShortText, str | int | bool | None] = Field(default_factory=dict, max_length=20)
    """Selection in the figures, as Selection takes changes."""

    tab: ShortText = ""  # selected tab of figures; "" for the first
    orders: Annotated[TupleInput[TupleInput[int]], Field(max_length=MAX_ORDERS), LEFT_OUT] = ()
    answers: Annotated[TupleInput[MethodAnswers], LEFT_OUT] = ()  # of all methods, in these document orders
    lengths: Annotated[TupleInput[Length], LEFT_OUT] = ()
    """Length of each document in tokens, in the order of the letters."""

    @model_validator(mode="before")
    @classmethod
    def _open_earlier(cls, content: Any) -> Any:
        """Return the fields of a record of earlier releases, whose answers are in an object `results`."""
        if not isinstance(content, dict) or not isinstance(content.get("results"), dict):
            return content
        return {name: value for name, value in content.items() if name != "results"} | content["results"]

    @field_validator("methods")
    @classmethod
    def _known_methods(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := sorted(set(names) - set(OFFERED)):
            raise InputError(f"Unknown method: {unknown[0]!r}. Choose from: {', '.join(OFFERED)}")
        return names

    @model_validator(mode="after")
    def _check_answers(self) -> Self:
        if not self.orders and not self.answers and not self.lengths:
            return self
        letters = list(range(len(self.documents)))
        if not self.orders or any(sorted(order) != letters for order in self.orders):
            raise InputError(f"Invalid answers: expected orders of {len(letters)} documents.")
        if len(set(self.orders)) < len(self.orders):
            raise InputError("Invalid answers: an order is repeated.")
        if [answers.method for answers in self.answers] != list(self.methods):
            raise InputError("Invalid answers: expected those of the methods of the session.")
        for answers in self.answers:
            counts, sizes = {len(answers.texts)}, {len(letters)}
            if answers.starts:
                counts.add(len(answers.starts))
                sizes |= {len(self.lengths), *map(len, answers.starts)}
            counts |= {
                len(known)
                for known in (
                    *(answers.queries, answers.origins, answers.cut_off),
                    *(answers.texts_without, answers.falls),
                )
                if known
            }
            sizes |= {len(known) for known in (*answers.texts_without, *answers.falls) if known}
            if counts != {len(self.orders)} or sizes != {len(letters)}:
                raise InputError(f"Invalid answers: those of {answers.method!r} do not match the orders.")
            for text, origin in zip(answers.texts, answers.origins, strict=False):
                if origin and not _is_possible(origin, text, len(letters)):
                    raise InputError(f"Invalid answers: decisive word of {answers.method!r} out of range.")
        return self

    @property
    def form(self) -> Form:
        """Return the form."""
        prompt = self.task, self.question, self.instruction
        return Form(*prompt, self.methods, self.max_new_tokens, self.documents, self.chat_template_kwargs)

    def without(self, *fields: Literal["answers", "origins", "starts", "texts_without"]) -> Self:
        """Return the record without its answers, or without these parts of them, which takes less room."""
        if "answers" in fields:
            return self.model_copy(update={"orders": (), "answers": (), "lengths": ()})
        joined = {"starts": "queries", "texts_without": "falls"}
        left_out = (*fields, *(joined[name] for name in fields if name in joined))
        answers = tuple(one.model_copy(update=dict.fromkeys(left_out, ())) for one in self.answers)
        lengths = () if "starts" in fields else self.lengths
        return self.model_copy(update={"answers": answers, "lengths": lengths})

    @property
    def named_model(self) -> str:
        """Return the model with its dtype and revision, as far as they are known."""
        return named_model(self.model, self.dtype, self.revision)

    @property
    def origin(self) -> str:
        """Return where the answers were computed; "" if in this session."""
        return origin_sentence(self.source, self.named_model)

    def _known(self, name: str, place: int) -> dict[str, Any]:
        """Return a field of the answers in one order by method, without those that are empty."""
        fields = {one.method: getattr(one, name)[place : place + 1] for one in self.answers}
        return {method: values[0] for method, values in fields.items() if values and values[0]}

    def by_order(self) -> dict[Order, OrderAnswers]:
        """Return the answers by document order."""
        found: dict[Order, OrderAnswers] = {}
        for place, order in enumerate(self.orders):
            starts = {one.method: np.array(one.starts[place]) for one in self.answers if one.starts}
            queries = {one.method: one.queries[place] for one in self.answers if one.queries}
            origins = {one.method: one.origins[place] for one in self.answers if one.origins}
            found[order] = OrderAnswers(
                {one.method: one.texts[place] for one in self.answers},
                origins={method: origin for method, origin in origins.items() if origin},
                positions=DocumentPositions(order, np.array(self.lengths), starts, queries)
                if starts
                else None,
                cut_off=frozenset(one.method for one in self.answers if one.cut_off and one.cut_off[place]),
                texts_without=self._known("texts_without", place),
                falls=self._known("falls", place),
                source=self.source,
                model=(self.model, self.dtype, self.revision),
            )
        return found


def record_of(form: Form, **others: Any) -> RunRecord:
    """Return the record of a form. Raises InputError if it is too large or has invalid Unicode.

    others: further fields of the record, such as the accepted answers.
    """
    fields = asdict(form) | others
    fields["documents"] = fields.pop("entries")
    try:
        return RunRecord.model_validate_json(json.dumps(fields))
    except ValidationError as error:
        raise InputError(f"Cannot save the session: {first_problem(error)}.") from error


def with_answers(record: RunRecord, orders: Mapping[Order, OrderAnswers]) -> RunRecord:
    """Return the record with the answers of its methods in these orders."""
    found = list(orders.values())
    positions = [answers.positions for answers in found]
    lengths = positions[0].lengths.tolist() if positions and positions[0] else ()
    answers = tuple(
        MethodAnswers(
            method=method,
            texts=tuple(answers.texts[method] for answers in found),
            **_places(method, positions),
            origins=_if_any(answers.origins.get(method) for answers in found),
            cut_off=_if_any(method in answers.cut_off for answers in found),
            texts_without=_if_any(answers.texts_without.get(method, ()) for answers in found),
            falls=_if_any(
                tuple(round(fall, 2) for fall in answers.falls.get(method, ())) for answers in found
            ),
        )
        for method in record.methods
    )
    return record.model_copy(update={"orders": tuple(orders), "answers": answers, "lengths": tuple(lengths)})


def _places(method: str, positions: Sequence[DocumentPositions | None]) -> dict[str, Any]:
    """Return `starts` and `queries` of a method; {} unless its documents have positions in all orders."""
    known = [one for one in positions if one and method in one.starts and (one.starts[method] >= 0).all()]
    if len(known) < len(positions):
        return {}
    queries = tuple(one.queries[method] for one in known if method in one.queries)
    starts = tuple(tuple(map(int, one.starts[method])) for one in known)
    return {"starts": starts, "queries": queries if len(queries) == len(known) else ()}


def _if_any(values: Iterable[Any]) -> tuple[Any, ...]:
    kept = tuple(values)
    return kept if any(kept) else ()
