"""Schemas of the JSON results of the API endpoints."""

import math
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field

from pine_engine.methods.table import METHODS
from viz.page.api.result import ApiResult, known

if TYPE_CHECKING:
    MethodName = str
else:
    MethodName = Literal[tuple(METHODS)]  # an enum of the schema

LogitDiff = Annotated[
    float | None,
    BeforeValidator(lambda value: value if math.isfinite(value) else None),
    Field(
        description="Maximum absolute logit difference to the first order; null if logits contain NaN, and "
        "for an endpoint."
    ),
]
RIGHT = Field(description="True if the text contains an accepted answer as whole words; null without any.")


class MethodAnswer(BaseModel):
    """Answer of one method."""

    method: MethodName
    text: str
    is_correct: bool | None = RIGHT
    tokens: int = Field(description="Number of answer tokens.")
    prefill_s: float | None = known("Prefill time in seconds; not of an endpoint.")
    decode_s_per_token: float | None = known("Decode time per token in seconds; not of an endpoint.")
    seconds: float | None = known("Time of the request to an endpoint, in seconds.")


class Compared(ApiResult):
    """Result of /compare."""

    results: list[MethodAnswer] = Field(description="One result per method.")


class OrderAnswer(BaseModel):
    """Answer of one method in one order, compared with its answer in the first order."""

    method: MethodName
    text: str
    is_correct: bool | None = RIGHT
    same_as_first: bool = Field(
        description="True if the tokens match the answer of the first order; the text for an endpoint."
    )
    max_abs_logit_diff: LogitDiff
    bitwise_identical: bool | None = Field(
        description="True if all logits and tokens are bitwise identical; null for an endpoint."
    )


class AnswersInOrder(BaseModel):
    """One document order with the answers of all methods."""

    order: list[int] = Field(
        description="order[i] is the index of the document in slot i (0-based, input order)."
    )
    answers: list[OrderAnswer]


class MethodOrders(BaseModel):
    """One method over all orders."""

    method: MethodName
    orders: int = Field(description="Number of orders, including the input order.")
    num_distinct_answers: int = Field(description="Number of distinct answers.")
    num_correct: int | None = Field(
        description="Number of orders with a correct answer; null without accepted answers."
    )
    max_abs_logit_diff: LogitDiff
    bitwise_identical: bool | None = Field(
        description="True if all orders are bitwise identical; null for an endpoint."
    )
    invariance_held: bool | None = Field(
        description="True if the order-invariant method was bitwise identical, for an endpoint if its text "
        "was; null for other methods."
    )


class Shuffled(ApiResult):
    """Result of /shuffle."""

    methods: list[MethodOrders]
    orders: list[AnswersInOrder] = Field(description="Results in run order; the input order is first.")


class DocumentSeen(BaseModel):
    """A document as the last prompt token attends to it, over all layers and heads of a method."""

    tokens: int
    starts: tuple[int, float, int] = Field(
        description="Position of the first token: minimum, mean, maximum over heads."
    )
    importance: float | None = Field(description="Mean importance; null for methods without ranking.")
    attention: float | None = Field(description="Mean attention share (0–1).")


class MethodTrace(BaseModel):
    """Trace of one method. The arrays are null unless requested."""

    method: MethodName
    text: str = Field(description="Generated answer.")
    documents: list[DocumentSeen]
    prefix_attention: float | None = Field(description="Mean attention share of the prefix.")
    suffix_attention: float | None = Field(description="Mean attention share of the suffix.")
    starts: list[list[list[int]]] | None = Field(description="[layer][head][document], in tokens.")
    importance: list[list[list[float]]] | None = Field(description="[layer][head][document].")
    attention: list[list[list[float]]] | None = Field(
        description="Attention shares, [layer][head][prefix, documents..., suffix]; sum to 1."
    )


class MethodLeftOut(BaseModel):
    """Answer of one method, scored with all documents and without each of them."""

    method: MethodName
    text: str = Field(description="Generated answer.")
    logprob: float = Field(description="Log-probability with all documents, in nats.")
    differences: list[float] = Field(
        description="Fall of the log-probability without each document, in input order, in nats."
    )


class LeftOut(ApiResult):
    """Result of /leave_one_out."""

    results: list[MethodLeftOut]


class Traced(ApiResult):
    """Result of /trace."""

    prefix_tokens: int
    suffix_tokens: int
    results: list[MethodTrace]


RESULTS: dict[str, type[ApiResult]] = {
    "compare": Compared,
    "shuffle": Shuffled,
    "trace": Traced,
    "leave_one_out": LeftOut,
}
"""Result type of each endpoint of the page; `viz.lab` adds its own."""
