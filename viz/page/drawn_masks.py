"""Tab "Masks": who may read whom under each method of a run."""

import numpy as np
from numpy.typing import NDArray

from pine_engine.methods import METHODS
from pine_engine.plan import AttentionPlan, who_sees_whom
from viz.identity import prompt_segments
from viz.masks import SegmentMask, mask_cards, mask_states
from viz.page.answering import FinishedRun
from viz.page.reading import plan_of
from viz.page.selection import Selection


def draw_masks(run: FinishedRun, selection: Selection) -> str:
    """HTML: one document-level mask per method of the run."""
    layout = run.result.layout
    has_prefix = layout.prefix_length > 0
    segments = prompt_segments(run.order, has_prefix=has_prefix)
    masks = {
        method: SegmentMask(
            METHODS[method].label,
            segments,
            mask_states(plan_of(run, method).visible.numpy(), has_prefix=has_prefix),
        )
        for method in run.result.traces
    }
    return mask_cards(list(masks.values()), reference=masks.get("vanilla"))


def token_visibility(plan: AttentionPlan) -> NDArray[np.bool_]:
    """Which prompt token may attend to which, bool (n, n)."""
    return who_sees_whom(plan).numpy()
