"""Figure of the clusters of document orders, by the hidden state of the last prompt token."""

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from viz.drawing.identity import document_segment
from viz.drawing.text import shorten
from viz.figures.frame import new_figure, plain
from viz.figures.shuffle import answer_color
from viz.theme import INK

if TYPE_CHECKING:
    from pine_engine.lab.debias.clusters import Clusters


def plot_clusters(clusters: "Clusters") -> go.Figure:
    """Plot the first two principal components of each order's hidden state, one series per cluster.

    x and y have no unit, float32 (orders of the cluster,), never NaN. A star is the order that answers.

    Args:
        clusters: Clusters of a DebiasResult.
    """
    figure = new_figure(
        name="order-clusters",
        title="Hidden state of the last prompt token, by document order",
        caption="Shade: cluster. Star: the order nearest to its center, whose answer is in the legend.",
        height=400,
    )
    labels, points = np.array(clusters.labels), np.array(clusters.points, dtype=np.float32)
    for cluster, nearest in enumerate(clusters.representatives):
        members = np.flatnonzero(labels == cluster)
        answer = clusters.answers[cluster] if clusters.answers else ""
        figure.add_scatter(
            x=points[members, 0],
            y=points[members, 1],
            mode="markers",
            name=plain(f"{len(members)} orders: {shorten(answer, 60) or 'no answer'}"),
            marker={
                "color": answer_color(cluster),
                "line": {"color": INK, "width": 1},
                "symbol": ["star" if member == nearest else "circle" for member in members],
                "size": [16 if member == nearest else 9 for member in members],
            },
            customdata=[
                " ".join(document_segment(document).label for document in clusters.orders[member])
                for member in members
            ],
            hovertemplate="%{customdata}, %{fullData.name}: %{x:.3g}, %{y:.3g}<extra></extra>",
        )
    figure.update_xaxes(title="first principal component")
    figure.update_yaxes(title="second principal component", showgrid=True)
    return figure
