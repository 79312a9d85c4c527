"""The table of inference methods: one frozen row each, with its source.

Methods differ by data, not by branches. Everything the engine does differently for two methods is
read from the columns of this table.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from pine_engine.errors import InputError
from pine_engine.input_validation import Registry, as_tuple_of, describe

MaskKind = Literal["causal", "none", "bidirectional"]
"""Which other documents a document's tokens see: the earlier ones, none, or all of them. Inside a document
attention is always causal, and the suffix always sees every document."""

PositionKind = Literal[
    "input", "own_last", "own_at_end", "shared", "shared_right", "importance", "importance_reversed"
]
"""Where each document stands as seen from a query.

input: at its place in the input. own_last: in input order, but the query's own document last, without
gaps. own_at_end: at its place in the input, but the query's own document at the end, over whatever
stands there. shared: all documents start at the same position. shared_right: the same, but for the suffix
all of them end at the same position. importance: ranked, the most important one closest to the query;
importance_reversed: farthest. A query's own document is always closest to it, except under input."""

ImportanceKind = Literal["mean", "sum", "max"]
"""What a ranked document's importance takes of the attention on its tokens: the mean, which does not know how
many there are, their sum, or the largest."""

KeyWeighting = Literal["nothing", "documents", "documents_and_prefix"]
"""What weighs 1/k as seen from the suffix, k being the number of documents."""

Role = Literal["method", "variant", "control"]
"""A published method, which the subcommand `reproduce-paper` measures; another reading or option of one; or
one that isolates half of PINE."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """One inference method; see the types above for its columns.

    cost: what it computes, in words, compared with vanilla. is_default: compared when nobody chose, on the
    page too. in_tutorial: drawn by the lesson, in the example of eight tokens and in every run's masks, and
    recorded for them.
    """

    name: str
    label: str
    mask: MaskKind
    positions: PositionKind
    role: Role
    description: str
    cost: str
    source: str
    key_weighting: KeyWeighting = "nothing"
    importance: ImportanceKind = "mean"
    is_default: bool = False
    in_tutorial: bool = False

    @property
    def is_order_invariant(self) -> bool:
        """True if the output must not depend on the order of the documents (specification 2, last column)."""
        return self.mask != "causal" and self.positions in (
            "shared",
            "shared_right",
            "importance",
            "importance_reversed",
        )

    @property
    def document_encoding(self) -> tuple[MaskKind, PositionKind, ImportanceKind]:
        """What decides how documents are read; methods that agree in it differ for the suffix only."""
        positions: PositionKind = "shared" if self.positions == "shared_right" else self.positions
        return self.mask, positions, self.importance

    @property
    def invariance(self) -> str:
        """The promise in a word, for tables."""
        return "yes" if self.is_order_invariant else "no"


_ALONE = "less than vanilla: documents skip each other"
_ALL_PAIRS = "all pairs of documents, keys laid out anew for each document"
_RANKED = "all pairs of documents twice: unrotated scores to rank, then attention"

_PINE = "Wang et al. 2025, wzq016/PINE"
_PCW = "Ratner et al. 2023, AI21Labs/Parallel-Context-Windows"
_SP = "Hao et al. 2022, microsoft/LMOps structured_prompting"

_ROWS = (
    Method(
        name="vanilla",
        label="Vanilla",
        mask="causal",
        positions="input",
        role="method",
        description="The unmodified model: every token sees all earlier tokens, positions count from "
        "the start.",
        cost="the measure of all others",
        source="the model's own attention, documents tokenized separately",
        is_default=True,
        in_tutorial=True,
    ),
    Method(
        name="nia",
        label="NIA",
        mask="none",
        positions="input",
        role="method",
        description="No inter-document attention: documents do not see each other, positions stay.",
        cost=_ALONE,
        source="PINE paper, section 4 (no code released)",
        is_default=True,
        in_tutorial=True,
    ),
    Method(
        name="pcw",
        label="PCW",
        mask="none",
        positions="shared",
        role="method",
        description="Parallel context windows: documents do not see each other and share their positions.",
        cost=_ALONE,
        source=_PCW,
        is_default=True,
        in_tutorial=True,
    ),
    Method(
        name="sp",
        label="SP",
        mask="none",
        positions="shared",
        key_weighting="documents",
        role="method",
        description="Structured prompting: as PCW, but documents weigh 1/k for the suffix.",
        cost=_ALONE,
        source=f"{_SP}; documents by 1/N as the PINE paper states",
        in_tutorial=True,
    ),
    Method(
        name="pine",
        label="PINE",
        mask="bidirectional",
        positions="importance",
        role="method",
        description="Documents see each other in both directions; every query places the important ones "
        "close.",
        cost=_RANKED,
        source=_PINE,
        is_default=True,
        in_tutorial=True,
    ),
    Method(
        name="pine_input_order",
        label="PINE, input order",
        mask="bidirectional",
        positions="own_last",
        role="method",
        description="PINE without re-assignment: other documents keep the input order, the query's own goes "
        "last.",
        cost=_ALL_PAIRS,
        source="PINE paper, ablations (no code released)",
    ),
    Method(
        name="pine_reversed",
        label="PINE, reversed",
        mask="bidirectional",
        positions="importance_reversed",
        role="method",
        description="PINE the other way round: every query places the important documents far.",
        cost=_RANKED,
        source="PINE paper, ablations (no code released)",
    ),
    Method(
        name="mask_only",
        label="Mask only",
        mask="bidirectional",
        positions="input",
        role="control",
        description="Documents see each other in both directions, at vanilla's positions.",
        cost="all pairs of documents",
        source="specification 3.8",
    ),
    Method(
        name="reassignment_only",
        label="Re-assignment only",
        mask="causal",
        positions="importance",
        role="control",
        description="PINE's positions, but a document sees only the earlier ones.",
        cost="earlier documents once, all pairs once to rank",
        source="specification 3.8",
    ),
    Method(
        name="pcw_right",
        label="PCW, right-aligned",
        mask="none",
        positions="shared_right",
        role="variant",
        description="As PCW, but for the suffix all documents end at the same position.",
        cost=_ALONE,
        source=f"{_PCW}, right_indentation",
    ),
    Method(
        name="sp_right",
        label="SP, right-aligned",
        mask="none",
        positions="shared_right",
        key_weighting="documents",
        role="variant",
        description="As SP, but for the suffix all documents end at the same position.",
        cost=_ALONE,
        source=f"{_SP}, fairseq version",
    ),
    Method(
        name="sp_prefix",
        label="SP, prefix scaled",
        mask="none",
        positions="shared",
        key_weighting="documents_and_prefix",
        role="variant",
        description="As SP, but the prefix weighs 1/k too.",
        cost=_ALONE,
        source=f"{_SP}, as released",
    ),
    Method(
        name="pine_literal_order",
        label="PINE, literal order",
        mask="bidirectional",
        positions="own_at_end",
        role="variant",
        description="PINE without re-assignment, literally: other documents keep their positions, even "
        "behind "
        "the query.",
        cost=_ALL_PAIRS,
        source="specification 3.6",
    ),
    Method(
        name="pine_sum",
        label="PINE, summed importance",
        mask="bidirectional",
        positions="importance",
        role="variant",
        description="PINE with importance as the sum of attention on a document: longer documents come "
        "closer.",
        cost=_RANKED,
        source="PINE paper, footnote 3 (no code released)",
        importance="sum",
    ),
    Method(
        name="pine_max",
        label="PINE, largest importance",
        mask="bidirectional",
        positions="importance",
        role="variant",
        description="PINE with importance as the largest attention on one of a document's tokens.",
        cost=_RANKED,
        source="PINE paper, footnote 3 (no code released)",
        importance="max",
    ),
)

METHODS: dict[str, Method] = Registry("method", _ROWS)

TUTORIAL_METHODS = tuple(row for row in _ROWS if row.in_tutorial)

ALL = "all"
"""Stands for every row where names are asked for."""


def get_methods(methods: str | Method | Iterable[str | Method] | None = None) -> tuple[Method, ...]:
    """The rows named, in the order given; the default ones for None, every row for "all".

    methods: names or rows, several or a single one. Raises InputError for an unknown name, for none at all,
    and for a name given twice.
    """
    if methods is None:
        return tuple(row for row in _ROWS if row.is_default)
    known = ", ".join(METHODS)
    methods = tuple(methods) if isinstance(methods, Mapping) else methods  # METHODS itself
    given = as_tuple_of(methods, (str, Method), "method", f"choose from: {known}", least=0)
    if not given:
        raise InputError(f"no method was chosen; choose at least one of: {known}")
    names = [row.name if isinstance(row, Method) else row for row in given]
    if names == [ALL]:
        return _ROWS
    for name in names:
        if name not in METHODS:
            raise InputError(f"unknown method {name!r}; choose from: {known}, or {ALL!r} alone")
    if len(set(names)) < len(names):
        raise InputError(f"a method was named twice in {', '.join(names)}; name each method once")
    return tuple(METHODS[name] for name in names)


def get_method(method: str | Method) -> Method:
    """The row named, or the row itself. Raises InputError for an unknown name, and for several."""
    if isinstance(method, str | Method):
        return METHODS[method] if isinstance(method, str) else method
    raise InputError(f"the method is {describe(method)}; choose one of: {', '.join(METHODS)}")
