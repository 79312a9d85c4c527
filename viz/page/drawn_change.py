"""Tab "What changed": two answers beside each other, and the documents that carried them."""

from viz.importance import empty_panel
from viz.page.answering import FinishedRun
from viz.page.selection import Selection


def draw_change(run: FinishedRun, selection: Selection) -> str:
    """HTML: the selected method's answer against another."""
    return empty_panel("Choose two answers.")
