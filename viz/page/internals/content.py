"""Contents of a tab of "Internals": HTML and figures of a run for one selection."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import plotly.graph_objects as go

from viz.cards.tutorial import CONTENT, paragraphs
from viz.drawing.markup import render
from viz.drawing.pictures import switch

NO_ATTENTION = (
    "This model runs as it is, so its attention is not recorded. Masks and positions are those of vanilla."
)


@dataclass(frozen=True)
class TabContent:
    """HTML above the figures; figures by place, see FIGURES. Missing places are empty."""

    html: str
    figures: dict[str, go.Figure] = field(default_factory=dict)


def of_method(figure: go.Figure, label: str) -> go.Figure:
    """Prefix the title of the figure with its method."""
    title = figure.layout.title.text
    return figure.update_layout(title_text=f"{label}: {title[:1].lower()}{title[1:]}")


def field_switch(label: str, name: str, options: Mapping[Any, str], chosen: object) -> str:
    """Render a switch of one field of the selection: labels by value."""
    return switch(label, [(text, {name: value}) for value, text in options.items()], options.get(chosen, ""))


def how_to_read(tab: str) -> str:
    """Render the folded explanation."""
    return render("how_to_read.html", name=tab, sentences=paragraphs(CONTENT["how_to_read"][tab]))
