"""State of the tab "Internals" of a session, and its changes by events."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import gradio as gr
from pydantic import FailFast, Field, TypeAdapter

from pine_engine.rows.untrusted_json import ListInput
from viz.page.answers.run import Run
from viz.page.common.untrusted_json import read_json
from viz.page.queries import query_at
from viz.page.selection import Selection, first_selection, turned

LAB, TUTORIAL = "Lab", "Tutorial"  # labels of tabs of the page
FIRST_TAB = "masks"  # initial tab, which needs no job
MEAN = "mean"  # choice of layer or head for the mean
MAX_SELECTIONS = 20  # maximum number of events handled at once

_Pick = Annotated[tuple[int, dict[str, Any]], FailFast()]
_PICKS = TypeAdapter(Annotated[ListInput[_Pick], Field(max_length=MAX_SELECTIONS)])
MAX_PICKS_CHARACTERS = 100_000  # maximum characters of the last selections as JSON


@dataclass
class View:
    """Selection of a session. Events update it at once; a drawing is dropped if a newer event has started."""

    page_tab: str = ""  # label of the open tab of the page; "" for the first one
    page_click: float = 0  # number of the click that opened it
    stale: set[str] = field(
        default_factory=lambda: {LAB, TUTORIAL}
    )  # tabs that show nothing or an earlier run
    why: int = 0  # hash of what Why shows
    tab: str = FIRST_TAB
    click: float = 0
    selection: Selection | None = None  # None before a run
    heard: int = 0  # number of the last selection handled
    begun: int = 0  # number of events that have started to draw


def new_picks(sent: str, heard: int) -> list[tuple[int, dict[str, Any]]]:
    """Return the selections after number `heard`, numbered. Raises InputError if they are invalid."""
    picks = read_json(_PICKS, sent or "[]", "Invalid selection", max_size=MAX_PICKS_CHARACTERS)
    return [(number, what) for number, what in picks if number > heard]


def after_pick(run: Run, selection: Selection, what: Mapping[str, Any]) -> tuple[Selection, str]:
    """Return the selection after a change from the browser (untrusted), and its announcement or ""."""
    if what.get("clear"):
        return first_selection(run), ""
    token = what.get("token")
    if isinstance(token, int | float) and math.isfinite(token):
        query = query_at(run, int(token), selection.method)
        return (selection if query is None else replace(selection, query=query)), ""
    step = what.get("turn")
    if isinstance(step, int) and abs(step) == 1:
        label, query = turned(run, selection, step)
        return replace(selection, query=query), label
    return selection.picked(what, run), ""


def after_control(
    run: Run, selection: Selection, method: str, query: str, layer: str, head: str
) -> Selection:
    """Return the selection after a change of a dropdown, whose values gradio has validated."""
    place = {"layer": layer, "head": head}
    indices = {name: None if value == MEAN else int(value) for name, value in place.items()}
    return selection.picked({"method": method, "query": query, **indices}, run)


def opened_tab(event: gr.EventData, click: object) -> tuple[str, float]:
    """Return the label of the tab that an event opens, and the number of the click; "" and 0 if invalid."""
    label = event._data.get("value", "") if isinstance(event._data, dict) else ""
    return str(label), click if isinstance(click, int | float) else 0
