"""Evaluation on the page: its tab and its API call.

The page does not import this package. It asks for the names below (`pine_engine.additions`).
"""

from collections.abc import Callable
from typing import Any


def tabs() -> dict[str, Callable[..., Any]]:
    """Return the function that adds a tab to the open page, by the label of the tab."""
    from viz.lab.page.evaluate import add_tab

    return {"Evaluate": add_tab}


def api_calls() -> tuple[tuple[Callable[..., Any], Any], ...]:
    """Return the functions of API calls, and the models of their arguments."""
    from viz.lab.page.api import MeasureArguments, measure

    return ((measure, MeasureArguments),)


def api_results() -> dict[str, Any]:
    """Return the JSON schema of the result by name of the API call."""
    from viz.lab.page.api import measured_schema

    return {"measure": measured_schema()}
