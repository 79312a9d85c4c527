"""The table of inference methods: one frozen row each, with its source.

Methods differ by data, not by branches. Everything the engine does differently for two methods is
read from the columns of this table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pine_engine.errors import InputError

MaskKind = Literal["causal", "none", "bidirectional"]
PositionKind = Literal["input", "shared", "importance"]


@dataclass(frozen=True)
class Method:
    """One inference method.

    mask: which other documents a document's tokens see: the earlier ones, none, or all of them.
        Inside a document attention is always causal, and the suffix always sees every document.
    positions: where each document stands as seen from a query: at its place in the input, all
        at the same start, or ranked by importance with the most important one closest.
    """

    name: str
    label: str
    mask: MaskKind
    positions: PositionKind
    meaning: str
    source: str

    @property
    def promises_invariance(self) -> bool:
        """True if the output must not depend on the order of the documents (specification 2, last column)."""
        return self.mask != "causal" and self.positions != "input"


_ROWS = (
    Method(
        "vanilla",
        "Vanilla",
        "causal",
        "input",
        "The unmodified model: every token sees all earlier tokens, positions count from the start.",
        "the model's own attention, documents tokenized separately",
    ),
    Method(
        "nia",
        "NIA",
        "none",
        "input",
        "No inter-document attention: documents do not see each other, positions stay.",
        "PINE paper, section 4 (no code released)",
    ),
    Method(
        "pcw",
        "PCW",
        "none",
        "shared",
        "Parallel context windows: documents do not see each other and share their positions.",
        "Ratner et al. 2023, AI21Labs/Parallel-Context-Windows",
    ),
    Method(
        "pine",
        "PINE",
        "bidirectional",
        "importance",
        "Documents see each other in both directions; every query places the important ones close.",
        "Wang et al. 2025, wzq016/PINE",
    ),
)

METHODS: dict[str, Method] = {row.name: row for row in _ROWS}


def get_methods(names: Sequence[str] | None = None) -> tuple[Method, ...]:
    """The rows named, in the order given; all rows for None.

    Raises InputError for an unknown name, for none at all, and for a name given twice.
    """
    if names is None:
        return _ROWS
    known = ", ".join(METHODS)
    if not names:
        raise InputError(f"no method was chosen; choose at least one of: {known}")
    for name in names:
        if name not in METHODS:
            raise InputError(f"unknown method {name!r}; choose from: {known}")
    if len(set(names)) < len(names):
        raise InputError(f"a method was named twice in {', '.join(names)}; name each method once")
    return tuple(METHODS[name] for name in names)
