"""Selection of method, query, layer and head in a finished run, shared by all figures."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

from viz.figures.answer_tokens import first_difference
from viz.figures.head_decisiveness import decisiveness, most_decisive
from viz.figures.importance import Normalization
from viz.page.answers.run import Run
from viz.page.queries import Query, has_query, num_suffix_queries, query_choices, query_of_step
from viz.page.traced_run import layers_and_heads, ranked_trace

Rows = Literal["layer", "head"]


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


def turned(run: Run, selection: Selection, step: int) -> tuple[str, Query]:
    """Return label and query `step` places (-1 or 1) further in the list, within its ends."""
    choices = query_choices(run, selection.method)
    place = [value for _, value in choices].index(str(selection.query)) + step
    label, value = choices[min(max(place, 0), len(choices) - 1)]
    found = Query.parse(value)
    assert found is not None
    return label, found


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
