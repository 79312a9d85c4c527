"""What plotly is told when a figure leaves the page."""

from typing import Any


def plot_config(filename: str = "pine-explorer") -> dict[str, Any]:
    """Config for plotly's to_html and for the page: no upload button, no logo, SVG download."""
    return {
        "showSendToCloud": False,
        "displaylogo": False,
        "responsive": True,
        "toImageButtonOptions": {"format": "svg", "filename": filename},
        "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d", "zoom2d", "pan2d"],
    }
