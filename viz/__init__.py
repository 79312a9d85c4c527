"""Figures and panels. Plain data in, plotly figures and HTML out; no model, and no import of torch or of the
engine.

Every `plot_...` takes records of the engine as they are and returns a plotly.graph_objects.Figure:
`viz.plot_importance(run.traces["pine"])`. `import viz` alone imports nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from viz.figures.answer_position import plot_answer_position
    from viz.figures.attention import plot_attention
    from viz.figures.attention_shares import plot_attention_shares
    from viz.figures.bias_curve import plot_bias_curve
    from viz.figures.change_bars import plot_answer_shares, plot_likely_tokens
    from viz.figures.head_spread import plot_head_spread
    from viz.figures.importance_map import plot_importance
    from viz.figures.mask_maps import plot_masks
    from viz.figures.order_effects import plot_order_effects
    from viz.figures.order_spread import plot_order_spread
    from viz.figures.position_bars import plot_method_positions, plot_positions
    from viz.figures.position_map import plot_position_map
    from viz.figures.read import plot_read
    from viz.figures.shuffle_matrix import plot_shuffle
    from viz.figures.shuffle_positions import plot_shuffle_positions
    from viz.figures.written_map import plot_written

_HOMES = {
    "plot_answer_position": "answer_position",
    "plot_answer_shares": "change_bars",
    "plot_attention": "attention",
    "plot_attention_shares": "attention_shares",
    "plot_bias_curve": "bias_curve",
    "plot_head_spread": "head_spread",
    "plot_importance": "importance_map",
    "plot_likely_tokens": "change_bars",
    "plot_masks": "mask_maps",
    "plot_method_positions": "position_bars",
    "plot_order_effects": "order_effects",
    "plot_order_spread": "order_spread",
    "plot_position_map": "position_map",
    "plot_positions": "position_bars",
    "plot_read": "read",
    "plot_shuffle": "shuffle_matrix",
    "plot_shuffle_positions": "shuffle_positions",
    "plot_written": "written_map",
}
"""The file of each name, in viz/figures."""

__all__ = [
    "plot_answer_position",
    "plot_answer_shares",
    "plot_attention",
    "plot_attention_shares",
    "plot_bias_curve",
    "plot_head_spread",
    "plot_importance",
    "plot_likely_tokens",
    "plot_masks",
    "plot_method_positions",
    "plot_order_effects",
    "plot_order_spread",
    "plot_position_map",
    "plot_positions",
    "plot_read",
    "plot_shuffle",
    "plot_shuffle_positions",
    "plot_written",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.figures.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
