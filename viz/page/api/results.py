"""JSON results of the API endpoints: their schemas, and their values for the state of a run."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, Field

import pine_engine as pine
from pine_engine.engine.events import trace_report
from pine_engine.methods.table import METHODS
from pine_engine.prompts.tasks import TASKS, USUAL_TASK
from viz.page.answers.shown import Shown
from viz.page.api.result import ApiResult, known
from viz.page.internals.left_out_job import LeftOutView

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


def compared(view: Shown, accepted: Sequence[str]) -> Compared | None:
    """Return the answers of all methods; None before the end of the run."""
    run = view.run
    if run is None:
        return None
    report = run.result.to_dict()
    for answer in report["results"]:
        answer["is_correct"] = _is_correct(answer["text"], accepted)
    header = {"model": run.model, "dtype": run.dtype, "repeated": run.repeats}
    return Compared.model_validate(header | report)


def shuffled(view: Shown, accepted: Sequence[str]) -> Shuffled | None:
    """Return the answers of the finished orders; None before the first."""
    run = view.run
    if run is None:
        return None
    orders = [
        AnswersInOrder(
            order=list(row.order),
            answers=[
                OrderAnswer(
                    method=method,
                    text=cell.answer.text,
                    is_correct=_is_correct(cell.answer.text, accepted),
                    same_as_first=cell.same_text,
                    max_abs_logit_diff=cell.max_abs_logit_diff,
                    bitwise_identical=cell.bitwise_identical,
                )
                for method, cell in row.comparisons.items()
            ],
        )
        for row in run.comparisons
    ]
    methods = []
    stats = pine.summarize_orders([row.comparisons for row in run.comparisons])
    for place, (method, found) in enumerate(stats.items()):
        right = [bool(order.answers[place].is_correct) for order in orders]
        methods.append(
            MethodOrders(
                method=method,
                num_correct=sum(right) if accepted else None,
                invariance_held=(
                    all(row.comparisons[method].is_unchanged for row in run.comparisons)
                    if METHODS[method].is_order_invariant
                    else None
                ),
                **vars(found),
            )
        )
    return Shuffled(model=run.model, dtype=run.dtype, repeated=run.repeats, methods=methods, orders=orders)


def traced(view: Shown, *, arrays: bool) -> Traced | None:
    """Return the trace over all layers and heads, optionally with arrays; None before the end of the run."""
    run = view.run
    if run is None:
        return None
    report = trace_report(run.result)
    lengths = report.pop("document_tokens")
    results = [_method_trace(seen, lengths, arrays=arrays) for seen in report.pop("results")]
    return Traced(model=run.model, dtype=run.dtype, **report, results=results)


def _method_trace(seen: dict[str, Any], lengths: Sequence[int], *, arrays: bool) -> MethodTrace:
    starts = np.array(seen["starts"])
    importance, attention = (
        None if seen[name] is None else np.array(seen[name]).mean((0, 1))
        for name in ("importance", "attention")
    )
    shares = [None] * (len(lengths) + 2) if attention is None else attention.tolist()
    documents = [
        DocumentSeen(
            tokens=length,
            starts=(
                int(starts[..., place].min()),
                float(starts[..., place].mean()),
                int(starts[..., place].max()),
            ),
            importance=None if importance is None else float(importance[place]),
            attention=shares[1 + place],
        )
        for place, length in enumerate(lengths)
    ]
    return MethodTrace(
        method=seen["method"],
        text=seen["text"],
        documents=documents,
        prefix_attention=shares[0],
        suffix_attention=shares[-1],
        **{name: seen[name] if arrays else None for name in ("starts", "importance", "attention")},
    )


def left_out(view: LeftOutView) -> LeftOut | None:
    """Return the scores of the methods that are complete; None before the first."""
    done = [MethodLeftOut.model_validate(one.to_dict()) for one in view.complete]
    return LeftOut(model=view.model, dtype=view.complete[0].dtype, results=done) if done else None


def _is_correct(text: str, accepted: Sequence[str]) -> bool | None:
    """Check whether an answer contains an accepted one as whole words; None without accepted answers."""
    return TASKS[USUAL_TASK].score(text, accepted) == 1 if accepted else None
