"""What a tab of "Internals" shows: HTML, and figures in places of their own."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass(frozen=True)
class TabContent:
    """html: stands first. figures: by place, see inside_panel.FIGURES; a place that is not named is empty."""

    html: str
    figures: "dict[str, Figure]" = field(default_factory=dict)


def of_method(figure: "Figure", label: str) -> "Figure":
    """The figure with the method it is of before its title."""
    title = figure.layout.title.text
    return figure.update_layout(title_text=f"{label}: {title[:1].lower()}{title[1:]}")
