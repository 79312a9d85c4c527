"""Content of a tab of "Internals": HTML, and figures by place."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass(frozen=True)
class TabContent:
    """HTML above the figures; figures by place, see inside_panel.FIGURES. Missing places are empty."""

    html: str
    figures: "dict[str, Figure]" = field(default_factory=dict)


def of_method(figure: "Figure", label: str) -> "Figure":
    """Prefix the title of the figure with its method."""
    title = figure.layout.title.text
    return figure.update_layout(title_text=f"{label}: {title[:1].lower()}{title[1:]}")
