"""Figures and panels. Plain data in, plotly figures and HTML out; no model, and no import of torch or of the
engine.

Every `plot_...` takes records of the engine as they are and returns a plotly.graph_objects.Figure:
`viz.plot_importance(run.traces["pine"])`. `import viz` alone imports nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from viz.figures.answer_position import plot_position_sweep
    from viz.figures.attention import plot_attention
    from viz.figures.attention_shares import plot_attention_shares
    from viz.figures.bias_curve import plot_bias_curve
    from viz.figures.change_bars import plot_answer_attention, plot_next_token_candidates
    from viz.figures.head_spread import plot_head_decisiveness
    from viz.figures.importance_map import plot_importance
    from viz.figures.mask_maps import plot_masks
    from viz.figures.order_effects import plot_order_effects
    from viz.figures.order_spread import plot_logprob_by_order
    from viz.figures.position_bars import plot_method_positions, plot_positions
    from viz.figures.position_map import plot_position_map
    from viz.figures.read import plot_query_attention
    from viz.figures.shuffle_matrix import plot_shuffle
    from viz.figures.shuffle_positions import plot_positions_by_order
    from viz.figures.written_map import plot_answer_importance

_LAZY_IMPORTS = {
    "plot_position_sweep": "answer_position",
    "plot_answer_attention": "change_bars",
    "plot_attention": "attention",
    "plot_attention_shares": "attention_shares",
    "plot_bias_curve": "bias_curve",
    "plot_head_decisiveness": "head_spread",
    "plot_importance": "importance_map",
    "plot_next_token_candidates": "change_bars",
    "plot_masks": "mask_maps",
    "plot_method_positions": "position_bars",
    "plot_order_effects": "order_effects",
    "plot_logprob_by_order": "order_spread",
    "plot_position_map": "position_map",
    "plot_positions": "position_bars",
    "plot_query_attention": "read",
    "plot_shuffle": "shuffle_matrix",
    "plot_positions_by_order": "shuffle_positions",
    "plot_answer_importance": "written_map",
}
"""The file of each name, in viz/figures."""

__all__ = [
    "plot_answer_attention",
    "plot_answer_importance",
    "plot_attention",
    "plot_attention_shares",
    "plot_bias_curve",
    "plot_head_decisiveness",
    "plot_importance",
    "plot_logprob_by_order",
    "plot_masks",
    "plot_method_positions",
    "plot_next_token_candidates",
    "plot_order_effects",
    "plot_position_map",
    "plot_position_sweep",
    "plot_positions",
    "plot_positions_by_order",
    "plot_query_attention",
    "plot_shuffle",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY_IMPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.figures.{_LAZY_IMPORTS[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_LAZY_IMPORTS]
