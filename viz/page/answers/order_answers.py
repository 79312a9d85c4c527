"""Answers of all methods in one document order, and where they were computed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pine_engine as pine
from pine_engine.engine.events import RunResult
from pine_engine.methods.table import METHODS
from viz.cards.answers import Source
from viz.figures.answer_origin import AnswerOrigin, answer_origin
from viz.figures.answer_tokens import AnswerTokens, answer_tokens
from viz.figures.positions_by_order import DocumentPositions, default_head, document_positions
from viz.page.form.form import Form

if TYPE_CHECKING:  # imports torch
    from pine_engine.backend import Backend

Order = tuple[int, ...]
"""Document, as entered, in each slot."""

_ORIGINS: dict[Source, str] = {
    "recorded": "Precomputed with {}",
    "shared": "Computed by someone else with {}",
}


def named_model(model: str, *facts: str) -> str:
    """Return a model with those of its facts, such as dtype and revision, that are known."""
    known = ", ".join(filter(None, facts))
    named = model or "an unnamed model"
    return f"{named} ({known})" if known else named


def origin_sentence(source: Source, model: str) -> str:
    """Return where recorded or shared answers were computed; "" for those of this session."""
    return _ORIGINS.get(source, "").format(model)


@dataclass(frozen=True)
class OrderAnswers:
    """Answers of all methods in one document order.

    Attributes:
        texts: Answers by method.
        records: Answers token by token, if traced.
        origins: Decisive word of each answer, by method; traced, recorded or shared answers only.
        positions: Positions of the documents for the decisive token of each method, if known.
        comparison: Answers compared with the first order of a shuffle test.
        cut_off: Methods whose answer ends at the limit of tokens.
        texts_without: Answers of each method without each document, as entered; None for an unknown one.
        falls: Fall of the log-probability of each answer without each document, in nats, if known.
        source: Where they were computed; "checked" if they replace shared ones.
        model: Model of recorded or shared answers, its dtype and revision; () for those of this session.
        replaces: Recorded or shared answers before those of this session.
    """

    texts: Mapping[str, str]
    records: Mapping[str, AnswerTokens] = field(default_factory=dict, compare=False)
    origins: Mapping[str, AnswerOrigin] = field(default_factory=dict, compare=False)
    positions: DocumentPositions | None = field(default=None, compare=False)
    comparison: "pine.OrderResult | None" = None
    cut_off: frozenset[str] = frozenset()
    texts_without: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict, compare=False)
    falls: Mapping[str, tuple[float, ...]] = field(default_factory=dict, compare=False)
    source: Source = "own"
    model: tuple[str, ...] = ()
    replaces: "OrderAnswers | None" = None

    @property
    def is_own(self) -> bool:
        """True if they were computed in this session."""
        return self.source in ("own", "checked")

    @property
    def origin(self) -> str:
        """Source of recorded or shared answers in words; "" for those of this session."""
        return origin_sentence(self.source, named_model(*self.model or ("",)))

    @property
    def changed(self) -> frozenset[str]:
        """Methods whose answer is another than the recorded or shared one that it replaces."""
        before = self.replaces.texts if self.replaces else {}
        return frozenset(method for method, text in before.items() if text != self.texts[method])


def order_answers(
    engine: "Backend",
    form: Form,
    result: RunResult,
    order: Order,
    *,
    head: tuple[int, int] | None = None,
    comparison: "pine.OrderResult | None" = None,
) -> OrderAnswers:
    """Return the answers of a result; if traced, token by token, with origins and positions."""
    traces = result.traces
    head = head or default_head(traces.values())
    records = {
        method: answer_tokens(engine.decode_tokens, result, method, order, METHODS[method].label, head)
        for method in traces
    }
    documents = [entry.text for entry in form.entries]
    place: dict[str, Any] = {"order": order, "head": head, "question": form.question, "documents": documents}
    found = {method: answer_origin(record, traces[method], **place) for method, record in records.items()}
    origins = {method: origin for method, origin in found.items() if origin}
    first = result.layout.suffix_length - 1
    queries = {name: (one.layer, one.head, first + one.step) for name, one in origins.items()}
    return OrderAnswers(
        texts={method: answer.text for method, answer in result.answers.items()},
        records=records,
        origins=origins,
        positions=document_positions(order, traces, *head, queries) if traces else None,
        comparison=comparison,
        cut_off=frozenset(name for name, one in result.answers.items() if one.finish_reason == "length"),
    )
