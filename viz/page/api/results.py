"""Schemas of the JSON results of the API endpoints."""

from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field

from pine_engine.evaluation.records import Record
from pine_engine.methods.table import METHODS

if TYPE_CHECKING:
    MethodName = str
else:
    MethodName = Literal[tuple(METHODS)]  # an enum of the schema

RIGHT = Field(description="Whether it holds an accepted answer; null where none was given.")


class ApiResult(BaseModel):
    """Fields of every result."""

    model: str = Field(description="The model that answered.")
    dtype: str = Field(description="Its number format, such as float32.")
    stop_reason: str | None = Field(
        default=None, description="Why the call had to end before it was done; null if it was done."
    )


class MethodAnswer(BaseModel):
    """Answer of one method."""

    method: MethodName
    text: str
    is_correct: bool | None = RIGHT
    tokens: int = Field(description="Of the answer.")
    prefill_s: float = Field(description="Seconds that reading the prompt took.")
    decode_s_per_token: float = Field(description="Seconds that each token of the answer took.")


class Compared(ApiResult):
    """Result of /compare."""

    results: list[MethodAnswer] = Field(description="One for each method.")


class OrderAnswer(BaseModel):
    """Answer of one method in one order, compared with its answer in the first order."""

    method: MethodName
    text: str
    is_correct: bool | None = RIGHT
    same_as_first: bool = Field(description="Whether it is, token by token, the answer of the first order.")
    max_abs_logit_diff: float | None = Field(
        description="Largest difference of a logit from the first order; null if logits are no numbers."
    )
    bitwise_identical: bool = Field(description="True if all logits and tokens are bitwise identical.")


class AnswersInOrder(BaseModel):
    """One document order with the answers of all methods."""

    order: list[int] = Field(
        description="order[p] is the document at place p, both counted from 0 as they were sent."
    )
    answers: list[OrderAnswer]


class MethodOrders(BaseModel):
    """One method over all orders."""

    method: MethodName
    orders: int = Field(description="How many were tried, the documents as sent among them.")
    num_distinct_answers: int = Field(description="Different answers; 1 if the order changes nothing.")
    num_correct: int | None = Field(description="Orders with a right answer; null where none was given.")
    max_abs_logit_diff: float | None = Field(
        description="Largest difference of a logit from the first order; null if logits are no numbers."
    )
    bitwise_identical: bool = Field(description="True if all orders are bitwise identical.")
    invariance_held: bool | None = Field(
        description="Whether a method that promises equal bits kept it; null for one that promises nothing."
    )


class Shuffled(ApiResult):
    """Result of /shuffle."""

    methods: list[MethodOrders]
    orders: list[AnswersInOrder] = Field(description="In the order tried, the documents as sent first.")


class DocumentSeen(BaseModel):
    """A document as the last prompt token attends to it, over all layers and heads of a method."""

    tokens: int
    starts: tuple[int, float, int] = Field(
        description="Position of its first token: smallest, mean and largest."
    )
    importance: float | None = Field(description="Mean; null for methods that do not rank.")
    attention: float | None = Field(description="Mean share of attention, 0 to 1.")


class MethodTrace(BaseModel):
    """Trace of one method. The arrays are null unless requested."""

    method: MethodName
    text: str = Field(description="Its answer.")
    documents: list[DocumentSeen]
    prefix_attention: float | None = Field(description="Mean share of attention on what precedes documents.")
    suffix_attention: float | None = Field(description="Mean share of attention on what follows them.")
    starts: list[list[list[int]]] | None = Field(description="[layer][head][document], in tokens.")
    importance: list[list[list[float]]] | None = Field(description="[layer][head][document].")
    attention: list[list[list[float]]] | None = Field(
        description="[layer][head][prefix, each document, suffix], shares that sum to 1."
    )


class Traced(ApiResult):
    """Result of /trace."""

    prefix_tokens: int
    suffix_tokens: int
    results: list[MethodTrace]


class Measured(ApiResult):
    """Result of /measure."""

    summary: dict[str, Any] = Field(description="Estimates with intervals, as in `evaluate --json`.")
    records: list[Record]


RESULTS: dict[str, type[ApiResult]] = {
    "compare": Compared,
    "shuffle": Shuffled,
    "trace": Traced,
    "measure": Measured,
}
"""Result type of each endpoint."""
