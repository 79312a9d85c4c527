"""Selection in a run, shared by all figures."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from viz.figures.importance import Normalization

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
class Bounds:
    """Sizes of a run; num_suffix includes the tokens of the longest answer."""

    methods: tuple[str, ...]
    num_layers: int
    num_heads: int
    num_documents: int
    num_suffix: int

    def has(self, query: Query) -> bool:
        """Check whether the run has that query."""
        return query.index < (self.num_documents if query.kind == "document" else self.num_suffix)


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

    def picked(self, what: Mapping[str, Any], bounds: Bounds) -> "Selection":
        """Return the selection after a change from the browser (untrusted); invalid values are ignored."""
        chosen: dict[str, Any] = {}
        for field, value in what.items():
            match field, value:
                case "query", str() if (query := Query.parse(value)) and bounds.has(query):
                    chosen["query"] = query
                case "method", str() if value in bounds.methods:
                    chosen["method"] = value
                case "layer", None | int() if _inside(value, bounds.num_layers):
                    chosen["layer"] = value
                case "head", None | int() if _inside(value, bounds.num_heads):
                    chosen["head"] = value
                case "normalization", str() if value in get_args(Normalization):
                    chosen["normalization"] = value
                case (("with_prefix" | "with_sink"), bool()):
                    chosen[field] = value
                case "other", str() if len(value) <= 64:
                    chosen["other"] = value
                case "rows", str() if value in get_args(Rows):
                    chosen["rows"] = value
        return replace(self, **chosen)


def as_picks(selection: Selection | None) -> dict[str, Any]:
    """Return the change of an initial selection that gives this one, for Selection.picked."""
    return {} if selection is None else {**vars(selection), "query": str(selection.query)}


def _inside(value: object, count: int) -> bool:
    """Check for None or an integer from 0 to count - 1; bool is rejected."""
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < count)
