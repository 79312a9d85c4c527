"""Selection of method, query, layer and head in a finished run, shared by all figures."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

import pine_engine as pine
from viz.drawing.identity import Segment, document_segment
from viz.drawing.markup import shorten, visible_text
from viz.figures.answer_tokens import first_difference
from viz.figures.head_decisiveness import decisiveness, most_decisive
from viz.figures.importance import Normalization
from viz.page.answers.run import Run

Aspect = Literal["document", "suffix"]
Rows = Literal["layer", "head"]


@dataclass(frozen=True)
class Query:
    """Selected query: the last token of a document, or a suffix token (including the answer).

    Written as "document 2" (slot, from 0) or "suffix 17" (offset in the suffix).
    """

    kind: Aspect
    index: int

    @classmethod
    def parse(cls, text: object) -> "Query | None":
        """Return the query of that name; None for an invalid name."""
        kind, _, number = text.partition(" ") if isinstance(text, str) else ("", "", "")
        if kind not in get_args(Aspect) or not number.isdecimal() or len(number) > 6:
            return None
        return cls("document" if kind == "document" else "suffix", int(number))

    def __str__(self) -> str:
        return f"{self.kind} {self.index}"


@dataclass(frozen=True)
class Selection:
    """Selection of method, query, layer and head, as plain values for links.

    layer, head: from 0; None is the mean. normalization: of importance. with_prefix: show attention on the
    prefix (sink). other: answer to compare with; None for the default. rows: of positions. with_sink: show
    attention on the first token.
    """

    method: str
    query: Query
    layer: int | None = None
    head: int | None = None
    normalization: Normalization = "share"
    with_prefix: bool = True
    other: str | None = None
    rows: Rows = "layer"
    with_sink: bool = False

    def picked(self, what: Mapping[str, Any], run: Run) -> "Selection":
        """Return the selection after a change from the browser (untrusted); invalid values are ignored.

        A query that the answer of a newly selected method does not have becomes its last one.
        """
        chosen: dict[str, Any] = {}
        num_layers, num_heads = layers_and_heads(run)
        for field, value in what.items():
            match field, value:
                case "method", str() if value in run.result.traces:
                    chosen["method"] = value
                case "layer", None | int() if _inside(value, num_layers):
                    chosen["layer"] = value
                case "head", None | int() if _inside(value, num_heads):
                    chosen["head"] = value
                case "normalization", str() if value in get_args(Normalization):
                    chosen["normalization"] = value
                case (("with_prefix" | "with_sink"), bool()):
                    chosen[field] = value
                case "other", str() if len(value) <= 64:
                    chosen["other"] = value
                case "rows", str() if value in get_args(Rows):
                    chosen["rows"] = value
        method = chosen.get("method", self.method)
        last = Query("suffix", num_suffix_queries(run, method) - 1)
        queries = (Query.parse(what.get("query")), self.query, last)
        chosen["query"] = next(query for query in queries if query and has_query(run, method, query))
        return replace(self, **chosen)


def as_picks(selection: Selection | None) -> dict[str, Any]:
    """Return the change of an initial selection that gives this one, for Selection.picked."""
    return {} if selection is None else {**vars(selection), "query": str(selection.query)}


def _inside(value: object, count: int) -> bool:
    """Check for None or an integer from 0 to count - 1; bool is rejected."""
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < count)


# The run


def run_documents(run: Run) -> tuple[Segment, ...]:
    """Return the documents of the run in input order."""
    return tuple(document_segment(identity, slot) for slot, identity in enumerate(run.order))


def layers_and_heads(run: Run) -> tuple[int, int]:
    """Return the number of layers and of heads; 1 of each without attention."""
    trace = next(iter(run.result.traces.values()))
    recorded = trace.suffix_starts if trace.suffix_attention is None else trace.suffix_attention
    return recorded.shape[0], recorded.shape[1]


def has_attention(run: Run) -> bool:
    """Check whether attention was recorded, unlike for a model that runs as it is."""
    return all(trace.suffix_attention is not None for trace in run.result.traces.values())


def ranked_trace(run: Run, method: str = "") -> "pine.Trace | None":
    """Return the trace of the method if it ranks documents, else the first that does; None if none does."""
    traces = [trace for trace in run.result.traces.values() if trace.suffix_importance is not None]
    return next((trace for trace in traces if trace.method == method), traces[0] if traces else None)


def plan_of(run: Run, method: str) -> "pine.AttentionPlan":
    """Return the attention plan of the method for the prompt of the run."""
    return pine.build_plan(pine.METHODS[method], run.result.layout)


# Queries of the run


def num_suffix_queries(run: Run, method: str) -> int:
    """Return the number of suffix tokens of a method that were queries, including those of its answer."""
    return int(run.result.traces[method].suffix_starts.shape[2])


def has_query(run: Run, method: str, query: Query) -> bool:
    """Check whether the run has that query under a method."""
    return query.index < (len(run.order) if query.kind == "document" else num_suffix_queries(run, method))


def traced_answer(run: Run, method: str) -> tuple[str, ...]:
    """Return the answer tokens of the method that its trace covers."""
    count = num_suffix_queries(run, method) - run.result.layout.suffix_length + 1
    return run.answer_records[method].tokens[:count]


def query_of_step(run: Run, step: int) -> Query:
    """Return the query that generates an answer token, from 0: the token before it."""
    return Query("suffix", run.result.layout.suffix_length - 1 + step)


def step_of(run: Run, query: Query) -> int | None:
    """Return the answer token that a query generates, from 0; None if it generates none."""
    step = query.index - (run.result.layout.suffix_length - 1)
    return step if query.kind == "suffix" and step >= 0 else None


def token_of(run: Run, query: Query) -> int:
    """Return the index of the token of a query in prompt and answer."""
    layout = run.result.layout
    if query.kind == "suffix":
        return layout.documents_end + query.index
    return int(layout.document_starts[query.index] + layout.lengths[query.index]) - 1


def query_at(run: Run, token: int, method: str) -> Query | None:
    """Return the query of a token: its document or itself; None if the method has no such query."""
    layout = run.result.layout
    if token < layout.prefix_length:
        return None
    if token < layout.documents_end:
        return Query("document", int(np.searchsorted(layout.document_starts, token, side="right")) - 1)
    query = Query("suffix", token - layout.documents_end)
    return query if has_query(run, method, query) else None


def query_choices(run: Run, method: str) -> list[tuple[str, str]]:
    """Return (label, value) of every query of a method: documents, question tokens, answer tokens.

    The query of an answer token is the token before it, which generates it.
    """
    choices = [
        (f"Document {segment.label}" + (f": {title}" if title else ""), str(Query("document", slot)))
        for slot, (segment, title) in enumerate(zip(run_documents(run), run.titles, strict=True))
    ]
    layout, answer = run.result.layout, traced_answer(run, method)
    question = run.prompt_tokens[layout.documents_end :]
    for index in range(num_suffix_queries(run, method)):
        query = Query("suffix", index)
        step = step_of(run, query)
        if step is None:
            label = f"Question token {index + 1}: {_visible(question[index])}"
        elif step < len(answer):
            label = f"Answer token {step + 1}: {_visible(answer[step])}"
        else:
            label = "End of the answer"
        choices.append((label, str(query)))
    return choices


def _visible(text: str) -> str:
    """Return the text with visible blanks, at most 12 characters."""
    return shorten(visible_text(text), 12)


def turned(run: Run, selection: Selection, step: int) -> tuple[str, Query]:
    """Return label and query `step` places (-1 or 1) further in the list, within its ends."""
    choices = query_choices(run, selection.method)
    place = [value for _, value in choices].index(str(selection.query)) + step
    label, value = choices[min(max(place, 0), len(choices) - 1)]
    found = Query.parse(value)
    assert found is not None
    return label, found


# Initial selection


def first_selection(run: Run) -> Selection:
    """Return the initial selection: the first token that differs, the most decisive layer and head."""
    ranked = ranked_trace(run)
    layer, head = (0, 0) if ranked is None else most_decisive(decisiveness(ranked))
    method = ranked.method if ranked else next(iter(run.result.traces))
    return Selection(method, query_of_step(run, _first_step(run, method)), layer, head)


def _first_step(run: Run, method: str) -> int:
    """Return the first answer token that differs from the first other method; else the decisive one."""
    other = next((record for name, record in run.answer_records.items() if name != method), None)
    differs = first_difference(run.answer_records[method], other) if other else None
    if differs is not None and has_query(run, method, query_of_step(run, differs)):
        return differs
    return run.origins[method].step if method in run.origins else 0


class Place(NamedTuple):
    """A layer and a head."""

    layer: int
    head: int


def shown_place(run: Run, selection: Selection) -> Place:
    """Return the selected layer and head; for a mean, the most decisive ones, for all methods."""
    layer, head = selection.layer or 0, selection.head or 0
    if selection.layer is not None and selection.head is not None:
        return Place(layer, head)
    trace = ranked_trace(run, selection.method)
    if trace is not None:
        spreads = decisiveness(trace)
        if selection.layer is not None:
            spreads = spreads[layer : layer + 1]
        if selection.head is not None:
            spreads = spreads[:, head : head + 1]
        # A dimension that is selected has size 1, so its index is 0.
        most = most_decisive(spreads)
        layer, head = layer + most[0], head + most[1]
    return Place(layer, head)
