"""Differences between two orders under PINE: there are none."""

import numpy as np

from viz.page.answers.run import Run


def num_different_cells(one: Run, other: Run) -> tuple[int, int]:
    """Count the importances and positions under PINE that differ between two orders, and all of them."""
    pairs = list(zip(_by_document(one), _by_document(other), strict=True))
    different = [(left != right) & ~(np.isnan(left) & np.isnan(right)) for left, right in pairs]
    return sum(int(cells.sum()) for cells in different), sum(cells.size for cells in different)


def _by_document(run: Run) -> list[np.ndarray]:
    """Return importances and starts with the documents as entered, each (A, H, Q, D)."""
    trace, slots = run.result.traces["pine"], np.argsort(run.order)
    last = run.result.layout.suffix_length - 1
    assert trace.document_importance is not None and trace.suffix_importance is not None
    between = [trace.document_importance, trace.document_starts]
    from_question = [trace.suffix_importance, trace.suffix_starts]
    return [array[:, :, slots][..., slots] for array in between] + [
        array[:, :, last : last + 1][..., slots] for array in from_question
    ]
