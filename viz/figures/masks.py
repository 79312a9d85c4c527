"""Figure of attention masks token by token, one panel per distinct mask."""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import plotly.graph_objects as go

import pine_engine as pine
from viz.figures.frame import FloatArray, new_figure, plain
from viz.figures.panels import add_panels, prompt_parts
from viz.theme import ALLOWED, GRID, MASKED

_MAX_COLUMNS = 3

MaskSource: TypeAlias = (
    "pine.RunResult | pine.TokenLayout | pine.AttentionPlan | Iterable[pine.AttentionPlan]"
)


def plot_masks(
    source: MaskSource, *, query: int | None = None, order: Sequence[int] | None = None
) -> go.Figure:
    """Plot which tokens may attend to which, queries in rows, keys in columns, one panel per distinct mask.

    z is 1 where the query may attend to the key and NaN where it may not. In prompts of more tokens than
    cells, a cell is 1 where any of its tokens may. The panels zoom together.

    Args:
        source: Result of `Engine.run`, for its methods; a token layout, for all methods; one attention plan;
            or several of the same prompt. Methods with equal masks share a panel. Methods that reorder the
            documents or prefill each alone have no mask over the prompt, and are left out.
        query: Index of a token whose row is marked.
        order: Document, as entered, in each slot.

    Raises:
        InputError: If the source is none of these, or the plans belong to different prompts.
    """
    plans = _plans(source)
    masks = _masks_info(plans)
    colors = [(0, MASKED), (0.5, MASKED), (0.5, ALLOWED), (1, ALLOWED)]
    color_bar = {
        **{"tickvals": [0.25, 0.75], "ticktext": ["masked", "allowed"]},
        **{"len": 260, "lenmode": "pixels", "thickness": 12, "outlinewidth": 1, "outlinecolor": GRID},
    }
    figure = new_figure(
        name="token-masks",
        title="Attention masks by token",
        caption="Blue: the query (row) can attend to the key (column). Gray: masked. Look for blocks of "
        "documents that are blue in one panel only. Panels zoom together.",
        height=430,
        coloraxis={"colorscale": colors, "cmin": 0, "cmax": 1, "colorbar": color_bar},
        margin={"b": 44},
    )
    layout = plans[0].layout
    add_panels(
        figure,
        list(masks.values()),
        list(map(plain, masks)),
        prompt_parts(layout, layout.num_tokens, order),
        hover="query %{y} attends to key %{x}",
        query=query,
        columns=min(_MAX_COLUMNS, len(masks)),
    )
    return figure


def _plans(source: MaskSource) -> "Sequence[pine.AttentionPlan]":
    if isinstance(source, pine.RunResult):
        methods = [pine.METHODS[name] for name in source.answers]
        source = [pine.build_plan(method, source.layout) for method in methods if method.has_plan]
    if isinstance(source, pine.TokenLayout):
        return [pine.build_plan(method, source) for method in pine.METHODS.values() if method.has_plan]
    plans = [source] if isinstance(source, pine.AttentionPlan) else list(source)
    if not plans or not all(isinstance(plan, pine.AttentionPlan) for plan in plans):
        message = f"invalid source of masks: got {source!r}, expected a RunResult, layout or plan"
        raise pine.InputError(message, field="source")
    if any(plan.layout != plans[0].layout for plan in plans):
        raise pine.InputError("plans have different token layouts: expected one prompt", field="source")
    return plans


def _masks_info(plans: "Sequence[pine.AttentionPlan]") -> dict[str, FloatArray]:
    """Return (N, N), 1 or NaN where masked, by the labels of the methods that share it."""
    groups: dict[tuple[bytes, int], list[pine.AttentionPlan]] = {}
    for plan in plans:
        key = plan.visible.tobytes(), plan.num_visible_prefix_tokens
        groups.setdefault(key, []).append(plan)
    masks = {}
    for group in groups.values():
        tokens = np.arange(group[0].layout.num_tokens)
        visible = group[0].attention_mask(tokens, tokens)
        label = "; ".join(plan.method.label for plan in group)  # some labels contain commas
        masks[label] = np.where(visible, 1, np.nan).astype(np.float32)
    return masks
