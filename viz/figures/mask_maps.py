"""Attention masks, token by token over a whole prompt, one panel per distinct mask."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from viz.figures.frame import new_figure, plain
from viz.figures.masks import ALLOWED, CAUSAL, mask_states
from viz.figures.panels import Parts, add_panels
from viz.theme import ALLOWED as ALLOWED_COLOR
from viz.theme import GRID
from viz.theme import MASKED as MASKED_COLOR

if TYPE_CHECKING:
    from pine_engine.engine.events import RunResult
    from pine_engine.methods.plan import AttentionPlan
    from pine_engine.prompts.layout import TokenLayout

_COLUMNS = 3


def plot_masks(
    source: "RunResult | TokenLayout | AttentionPlan | Iterable[AttentionPlan]",
    *,
    query: int | None = None,
    order: Sequence[int] | None = None,
) -> go.Figure:
    """Plot which tokens may attend to which, queries down and keys across, one panel per distinct mask.

    z is 1 where the query may attend to the key and NaN where it may not. In prompts of more tokens than
    cells, a cell is 1 where any of its tokens may. The panels zoom together.

    Args:
        source: Result of `Engine.run`, for its methods; a token layout, for all methods; one attention plan;
            or several of the same prompt. Methods with equal masks share a panel.
        query: Index of a token whose row is marked.
        order: Document, as entered, in each slot.

    Returns:
        The figure.

    Raises:
        InputError: If the source is none of these, or the plans belong to different prompts.
    """
    plans = _plans(source)
    groups: dict[bytes, list[AttentionPlan]] = {}
    for plan in plans:
        groups.setdefault(plan.visible.tobytes(), []).append(plan)
    layout = plans[0].layout
    figure = new_figure(
        name="token-masks",
        title="Attention masks by token: queries in rows, keys in columns",
        caption="Blue: the query may attend to the key; gray: it may not. All panels zoom together.",
        height=430,
        coloraxis={
            "colorscale": [[0, MASKED_COLOR], [0.5, MASKED_COLOR], [0.5, ALLOWED_COLOR], [1, ALLOWED_COLOR]],
            "cmin": 0,
            "cmax": 1,
            "colorbar": {
                "tickvals": [0.25, 0.75],
                "ticktext": ["masked", "may attend"],
                "len": 260,
                "lenmode": "pixels",
                "thickness": 12,
                "outlinewidth": 1,
                "outlinecolor": GRID,
            },
        },
        margin={"b": 44},
    )
    add_panels(
        figure,
        [
            np.where(token_states(mask_states(plan.visible), plan.segments), 1, np.nan).astype(np.float32)
            for plan, *_ in groups.values()
        ],
        [plain(_names(group)) for group in groups.values()],
        Parts.of(layout, layout.num_tokens, order),
        hover="query %{y} may attend to key %{x}",
        query=query,
        columns=min(_COLUMNS, len(groups)),
    )
    return figure


def _plans(
    source: "RunResult | TokenLayout | AttentionPlan | Iterable[AttentionPlan]",
) -> "tuple[AttentionPlan, ...]":
    """Return the attention plans of a run result, a token layout, or plans."""
    from pine_engine.engine.events import RunResult
    from pine_engine.errors import InputError
    from pine_engine.input_validation import as_tuple_of
    from pine_engine.methods.plan import AttentionPlan, build_plan
    from pine_engine.methods.table import METHODS
    from pine_engine.prompts.layout import TokenLayout

    if isinstance(source, RunResult):
        return tuple(build_plan(METHODS[name], source.layout) for name in source.answers)
    if isinstance(source, TokenLayout):
        return tuple(build_plan(method, source) for method in METHODS.values())
    advice = "pass a RunResult, a TokenLayout, or one or more AttentionPlans"
    plans: tuple[AttentionPlan, ...] = as_tuple_of(source, AttentionPlan, "plan", advice)
    if any(plan.layout != plans[0].layout for plan in plans):
        raise InputError(
            "plans have different token layouts: expected one prompt. Plot each prompt by itself"
        )
    return plans


def token_states(states: NDArray[np.uint8], segments: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
    """Which token may attend to which: the states of their segments, token by token.

    states: uint8 (R, R), as of mask_states. segments: int (N,), which of the R segments each token belongs
    to, in input order. Returns bool (N, N).
    """
    cells = states[np.ix_(segments, segments)]
    allowed: NDArray[np.bool_] = (cells == ALLOWED) | ((cells == CAUSAL) & np.tri(len(segments), dtype=bool))
    return allowed


def _names(plans: "Sequence[AttentionPlan]") -> str:
    """Join the labels with semicolons, since some labels contain commas."""
    return "; ".join(plan.method.label for plan in plans)
