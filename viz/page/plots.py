"""How a plotly figure reaches the page: with our config, which gr.Plot alone would drop."""

import json

import plotly.graph_objects as go
from gradio.components.plot import PlotData

from viz.export import plot_config


def plot_value(figure: go.Figure, filename: str) -> PlotData:
    """The value of a gr.Plot that shows the figure without logo or upload, and saves it as SVG.

    gr.Plot itself sends figure.to_json(), which has no config.
    """
    drawn = json.loads(figure.to_json())
    return PlotData(type="plotly", plot=json.dumps(drawn | {"config": plot_config(filename)}))
