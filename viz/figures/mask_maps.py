"""Who may read whom, token by token over a whole prompt, one panel a mask."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from viz.figures.frame import new_figure, plain
from viz.figures.masks import ALLOWED, CAUSAL, mask_states
from viz.figures.panels import Parts, add_panels
from viz.theme import ALLOWED as ALLOWED_COLOR

if TYPE_CHECKING:
    from pine_engine.methods.plan import AttentionPlan

_COLUMNS = 3
_NAMED = 3
"""Most methods that a panel names."""


def plot_masks(
    plans: "Iterable[AttentionPlan]",
    *,
    query: int | None = None,
    order: Sequence[int] | None = None,
) -> go.Figure:
    """Heatmaps of who may read whom, queries down and keys across, that zoom together.

    plans: of one prompt under each method, as `build_plan` makes them; those with the same mask share a
    panel. query: a token whose row is marked. order: which document, as entered, stands in each slot.

    z is 1 where the query may read the key and NaN where it may not; of prompts of more tokens than cells, 1
    where any token of a cell may.
    """
    alike: dict[bytes, list[AttentionPlan]] = {}
    for plan in plans:
        alike.setdefault(plan.visible.tobytes(), []).append(plan)
    groups = list(alike.values())
    layout = groups[0][0].layout
    matrices = [
        np.where(token_states(mask_states(plan.visible), plan.segments), 1, np.nan).astype(np.float32)
        for plan, *_ in groups
    ]
    columns = min(_COLUMNS, len(groups))
    rows = -(-len(groups) // columns)
    figure = new_figure(
        name="token-masks",
        title="Who may read whom, token by token",
        caption="Blue: the query (down) may read the key (across). All panels zoom together.",
        height=80 + rows * 390,
        coloraxis={
            "showscale": False,
            "colorscale": [[0, ALLOWED_COLOR], [1, ALLOWED_COLOR]],
            "cmin": 0,
            "cmax": 1,
        },
        margin={"b": 24},
    )
    add_panels(
        figure,
        matrices,
        [plain(_names(group)) for group in groups],
        Parts.of(layout, layout.num_tokens, order),
        hover="query %{y} may read key %{x}",
        query=query,
        columns=columns,
    )
    return figure


def token_states(states: NDArray[np.uint8], segments: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
    """Which token may attend to which: the states of their segments, token by token.

    states: uint8 (R, R), as of mask_states. segments: int (N,), which of the R segments each token belongs
    to, in input order. Returns bool (N, N).
    """
    cells = states[np.ix_(segments, segments)]
    allowed: NDArray[np.bool_] = (cells == ALLOWED) | ((cells == CAUSAL) & np.tri(len(segments), dtype=bool))
    return allowed


def _names(plans: "Sequence[AttentionPlan]") -> str:
    labels = [plan.method.label for plan in plans]
    return ", ".join(labels[:_NAMED]) + (f" and {len(labels) - _NAMED} more" if len(labels) > _NAMED else "")
