"""Table of inference methods: all that the engine does differently for two methods follows from it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from pine_engine.errors import InputError
from pine_engine.input_validation import Registry, as_tuple_of, describe

MaskKind = Literal["causal", "none", "bidirectional"]
"""Other documents that a document attends to: the earlier ones, none, or all."""

PositionKind = Literal[
    "input", "own_last", "own_at_end", "shared", "shared_right", "importance", "importance_reversed"
]
"""Positions of the documents for a query.

- `input`: those in the input.
- `own_last`: input order without gaps, but the query's document is last.
- `own_at_end`: those in the input, but the query's document is at the end, where it overlaps others.
- `shared`: all documents start at the same position.
- `shared_right`: as `shared`, except that all documents end at the same position for the suffix.
- `importance`, `importance_reversed`: ranked, the most important document closest to the query or farthest.
"""

ImportanceKind = Literal["mean", "sum", "max"]
"""Reduction of the attention on a document's tokens to its importance."""

KeyWeighting = Literal["nothing", "documents", "documents_and_prefix"]
"""Keys that the suffix weights by 1/k, where k is the number of documents."""

Role = Literal["method", "variant", "control"]
"""Published method, which `reproduce-paper` evaluates; variant of one; or one half of PINE as a control."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """Inference method.

    Attributes:
        name: Name in Python, JSON and on the command line.
        label: Name in figures and on the page.
        mask: Other documents that a document attends to.
        positions: Positions of the documents for a query.
        description: One sentence for users.
        cost: Computation compared with vanilla, in words.
        source: Paper and code that define the method.
        role: Published method, variant or control.
        key_weighting: Keys that the suffix weights by 1/k.
        importance: Reduction of attention to importance, for ranked positions.
        is_default: True if the method is compared by default.
        in_tutorial: True if the tutorial explains the method.
    """

    name: str
    label: str
    mask: MaskKind
    positions: PositionKind
    description: str
    cost: str
    source: str
    role: Role = "method"
    key_weighting: KeyWeighting = "nothing"
    importance: ImportanceKind = "mean"
    is_default: bool = False
    in_tutorial: bool = False

    @property
    def is_order_invariant(self) -> bool:
        """True if the output is independent of the document order (specification 2, last column)."""
        return self.mask != "causal" and self.positions.startswith(("shared", "importance"))

    @property
    def invariance(self) -> str:
        """`is_order_invariant` as a word, for tables."""
        return "yes" if self.is_order_invariant else "no"

    @property
    def document_encoding(self) -> tuple[MaskKind, PositionKind, ImportanceKind]:
        """Columns that affect the prefill of documents; methods with equal ones differ in the suffix only."""
        positions: PositionKind = "shared" if self.positions == "shared_right" else self.positions
        return self.mask, positions, self.importance


_ISOLATED = "less than vanilla: documents skip each other"
_ALL_PAIRS = "all pairs of documents, keys arranged again for each document"
_RANKED = "all pairs of documents twice: unrotated scores to rank, then attention"

_PINE = "Wang et al. 2025, wzq016/PINE"
_PCW = "Ratner et al. 2023, AI21Labs/Parallel-Context-Windows"
_SP = "Hao et al. 2022, microsoft/LMOps structured_prompting"

_METHODS = (
    Method(
        name="vanilla",
        label="Vanilla",
        mask="causal",
        positions="input",
        description="The unmodified model: tokens attend to all earlier tokens, positions count from "
        "the start.",
        cost="the reference",
        source="the model's own attention, documents tokenized separately",
        is_default=True,
        in_tutorial=True,
    ),
    Method(
        name="nia",
        label="NIA",
        mask="none",
        positions="input",
        description="No inter-document attention: documents do not attend to each other, positions stay.",
        cost=_ISOLATED,
        source="PINE paper, section 4 (no code released)",
        is_default=True,
        in_tutorial=True,
    ),
    Method(
        name="pcw",
        label="PCW",
        mask="none",
        positions="shared",
        description="Parallel context windows: documents do not attend to each other and share their "
        "positions.",
        cost=_ISOLATED,
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
        description="Structured prompting: as PCW, but the suffix weights documents by 1/k.",
        cost=_ISOLATED,
        source=f"{_SP}; documents by 1/N as the PINE paper states",
        in_tutorial=True,
    ),
    Method(
        name="pine",
        label="PINE",
        mask="bidirectional",
        positions="importance",
        description="Documents attend to each other both ways; every query places the important ones close.",
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
        description="PINE without re-assignment: other documents keep the input order, the query's document "
        "is last.",
        cost=_ALL_PAIRS,
        source="PINE paper, ablations (no code released)",
    ),
    Method(
        name="pine_reversed",
        label="PINE, reversed",
        mask="bidirectional",
        positions="importance_reversed",
        description="PINE reversed: every query places the important documents far.",
        cost=_RANKED,
        source="PINE paper, ablations (no code released)",
    ),
    Method(
        name="mask_only",
        label="Mask only",
        mask="bidirectional",
        positions="input",
        role="control",
        description="Documents attend to each other both ways, at vanilla's positions.",
        cost="all pairs of documents",
        source="specification 3.8",
    ),
    Method(
        name="reassignment_only",
        label="Re-assignment only",
        mask="causal",
        positions="importance",
        role="control",
        description="PINE's positions, but a document attends only to the earlier ones.",
        cost="earlier documents once, all pairs once to rank",
        source="specification 3.8",
    ),
    Method(
        name="pcw_right",
        label="PCW, right-aligned",
        mask="none",
        positions="shared_right",
        role="variant",
        description="As PCW, except that all documents end at the same position for the suffix.",
        cost=_ISOLATED,
        source=f"{_PCW}, right_indentation",
    ),
    Method(
        name="sp_right",
        label="SP, right-aligned",
        mask="none",
        positions="shared_right",
        key_weighting="documents",
        role="variant",
        description="As SP, except that all documents end at the same position for the suffix.",
        cost=_ISOLATED,
        source=f"{_SP}, fairseq version",
    ),
    Method(
        name="sp_prefix",
        label="SP, prefix scaled",
        mask="none",
        positions="shared",
        key_weighting="documents_and_prefix",
        role="variant",
        description="As SP, but the suffix weights the prefix by 1/k too.",
        cost=_ISOLATED,
        source=f"{_SP}, as released",
    ),
    Method(
        name="pine_literal_order",
        label="PINE, literal order",
        mask="bidirectional",
        positions="own_at_end",
        role="variant",
        description="PINE without re-assignment, literally: other documents keep their positions, even after "
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

METHODS: dict[str, Method] = Registry("method", _METHODS)

TUTORIAL_METHODS = tuple(method for method in _METHODS if method.in_tutorial)

ALL = "all"
"""Name that selects every method."""


def get_methods(methods: str | Method | Iterable[str | Method] | None = None) -> tuple[Method, ...]:
    """Return the named methods in their order.

    Args:
        methods: One or more names or methods; "all" for every method, None for the default ones.

    Raises:
        InputError: A name is unknown or occurs twice, or there is none.
    """
    if methods is None:
        return tuple(method for method in _METHODS if method.is_default)
    known = ", ".join(METHODS)
    methods = tuple(methods) if isinstance(methods, Mapping) else methods  # METHODS itself
    items = as_tuple_of(methods, (str, Method), "method", f"choose from: {known}", least=0)
    if not items:
        raise InputError(f"no method was chosen; choose at least one of: {known}", field="methods")
    names = [item.name if isinstance(item, Method) else item for item in items]
    if names == [ALL]:
        return _METHODS
    if ALL in names:
        raise InputError(f"{ALL!r} selects every method; name it alone", field="methods")
    if len(set(names)) < len(names):
        raise InputError(
            f"a method was named twice in {', '.join(names)}; name each method once", field="methods"
        )
    return tuple(METHODS[name] for name in names)


def get_method(method: str | Method) -> Method:
    """Return one method by its name; raise InputError if the name is unknown, or if there are several."""
    if isinstance(method, Method):
        return method
    if isinstance(method, str):
        return METHODS[method]
    raise InputError(f"the method is {describe(method)}; choose one of: {', '.join(METHODS)}", field="method")
