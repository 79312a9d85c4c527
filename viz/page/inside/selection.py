"""What the page shows of a run: one selection, set in any picture and seen in all."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from viz.figures.importance import Normalization

Aspect = Literal["document", "suffix"]
Rows = Literal["layer", "head"]


@dataclass(frozen=True)
class Query:
    """Whose view is drawn: a document's last token, or a token of the suffix (answer tokens included).

    Written as "document 2" (a slot, from 0) or "suffix 17" (from the start of the suffix) in the page.
    """

    kind: Aspect
    index: int

    @classmethod
    def parse(cls, text: object) -> "Query | None":
        """The query of that name; None for anything else."""
        kind, _, number = text.partition(" ") if isinstance(text, str) else ("", "", "")
        if kind not in get_args(Aspect) or not number.isdecimal() or len(number) > 6:
            return None
        return cls("document" if kind == "document" else "suffix", int(number))

    def __str__(self) -> str:
        return f"{self.kind} {self.index}"


@dataclass(frozen=True)
class Bounds:
    """What a run lets one choose. num_suffix: suffix tokens, those of the longest answer among them."""

    methods: tuple[str, ...]
    num_layers: int
    num_heads: int
    num_documents: int
    num_suffix: int

    def has(self, query: Query) -> bool:
        """True if the run has that query."""
        return query.index < (self.num_documents if query.kind == "document" else self.num_suffix)


@dataclass(frozen=True)
class Selection:
    """What is shown. Everything is a plain value, so that it can travel in a link.

    method: the one that pictures of a single method show. query: whose view. layer, head: from 0; None is
    the mean over all. normalization: of importance. with_prefix: whether attention on the prefix (the
    sink) is shown. other: what the answer is compared with; None for the default. rows: of positions.
    with_sink: whether attention on the first token is drawn.
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
        """The selection after a pick; whatever is not a field, or not in the run, is left as it was.

        what: comes from the browser and is not to be trusted.
        """
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
    """What makes this selection of the first one of a run, by Selection.picked; nothing for None."""
    return {} if selection is None else {**vars(selection), "query": str(selection.query)}


def _inside(value: object, count: int) -> bool:
    """True for None and for whole numbers from 0 to count - 1; False is not a number here."""
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < count)
