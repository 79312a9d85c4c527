"""Figures: records of the engine in, plotly figures out, without importing torch.

`viz.plot_importance(run.traces["pine"])` returns a plotly.graph_objects.Figure. `import viz` alone imports
nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from viz.figures.answer_attention import plot_answer_attention
    from viz.figures.answer_importance import plot_answer_importance
    from viz.figures.attention import plot_attention
    from viz.figures.attention_shares import plot_attention_shares
    from viz.figures.bias_curve import plot_bias_curve
    from viz.figures.head_decisiveness import plot_head_decisiveness
    from viz.figures.importance import plot_importance
    from viz.figures.logprob_by_order import plot_logprob_by_order
    from viz.figures.masks import plot_masks
    from viz.figures.method_positions import plot_method_positions
    from viz.figures.next_token_candidates import plot_next_token_candidates
    from viz.figures.order_effects import plot_order_effects
    from viz.figures.position_map import plot_position_map
    from viz.figures.position_sweep import plot_position_sweep
    from viz.figures.positions import plot_positions
    from viz.figures.positions_by_order import plot_positions_by_order
    from viz.figures.query_attention import plot_query_attention
    from viz.figures.shuffle import plot_shuffle

__all__ = [
    "plot_answer_attention", "plot_answer_importance", "plot_attention", "plot_attention_shares",
    "plot_bias_curve", "plot_head_decisiveness", "plot_importance", "plot_logprob_by_order", "plot_masks",
    "plot_method_positions", "plot_next_token_candidates", "plot_order_effects", "plot_position_map",
    "plot_position_sweep", "plot_positions", "plot_positions_by_order", "plot_query_attention",
    "plot_shuffle",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.figures.{name.removeprefix('plot_')}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
