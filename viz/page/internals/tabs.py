"""Tabs of "Internals": labels, places of figures, and drawing functions."""

from collections.abc import Callable

from viz.page.answers.run import Run
from viz.page.internals.comparison import draw_change
from viz.page.internals.content import TabContent
from viz.page.internals.importance import draw_importance
from viz.page.internals.masks import draw_masks
from viz.page.internals.positions import draw_positions
from viz.page.selection import Selection

TABS = (
    ("attention", "Attention"),
    ("masks", "Attention masks"),
    ("positions", "RoPE positions"),
    ("importance", "Document importance"),
    ("change", "Compare answers"),
)
"""Name and label of each tab; `DRAWING` maps names to functions, except for "Attention"."""

FIGURES: dict[str, tuple[tuple[str, ...], ...]] = {
    "attention": (("attention",),),
    "masks": (("token-masks",),),
    "positions": (("positions",), ("position-map", "method-positions")),
    "importance": (
        ("decisive-heads", "importance"),
        ("answer-importance", "attention-shares", "leave-one-out"),
    ),
    "change": (("likely-tokens",), ("token-shares",), ("answer-shares",)),
}
"""Figures of each tab, in columns."""

DRAWING: dict[str, Callable[[Run, Selection], TabContent]] = {
    "masks": draw_masks,
    "positions": draw_positions,
    "importance": draw_importance,
    "change": draw_change,
}
"""Drawing function of each tab."""
