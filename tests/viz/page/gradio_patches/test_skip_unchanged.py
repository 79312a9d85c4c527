"""Updates of the page: equal to those of gradio, without rebuilding unchanged widgets."""

import asyncio
from collections.abc import Callable
from typing import Any

import gradio as gr
import pytest
from gradio.state_holder import SessionState

from tests.support.widgets import built
from viz.page.gradio_patches.blocks import GuardedBlocks

Widgets = tuple[gr.HTML, gr.Button, gr.State, gr.HTML]


def page_with(outputs: int) -> tuple[GuardedBlocks, Any, Widgets]:
    """A page with a function that changes that many widgets; the function, and all widgets."""

    def build() -> tuple[GuardedBlocks, Widgets]:
        with GuardedBlocks(analytics_enabled=False) as page:
            widgets = gr.HTML("text"), gr.Button("press"), gr.State(1), gr.HTML("other")
            page.load(lambda: None, None, list(widgets[:outputs]))
        assert isinstance(page, GuardedBlocks)
        return page, widgets

    page, widgets = built(build)
    return page, page.fns[0], widgets


def without_its_props(sent: list[Any]) -> list[Any]:
    """Return an update without the empty "props" that gradio adds to an unchanged HTML."""
    empty = {"props": {"__type__": "update"}}
    return [
        {name: value for name, value in one.items() if {name: value} != empty}
        if isinstance(one, dict)
        else one
        for one in sent
    ]


FORMS: dict[str, Callable[[Widgets], Any]] = {
    "one": lambda widgets: {widgets[0]: "new"},
    "properties": lambda widgets: {widgets[1]: gr.update(interactive=False, value="wait")},
    "a state": lambda widgets: {widgets[2]: 7},
    "two, not in order": lambda widgets: {widgets[3]: "x", widgets[0]: gr.update(visible=False)},
    "one told to stay": lambda widgets: {widgets[0]: gr.skip(), widgets[2]: None},
    "all": lambda widgets: {widget: "new" for widget in widgets},
    "none": lambda _: gr.skip(),
    "a list": lambda _: ["new", gr.skip(), 3, gr.update(value="y")],
}


@pytest.mark.parametrize(
    "form",
    [pytest.param(form, marks=pytest.mark.slow if form == "one told to stay" else ()) for form in FORMS],
)
def test_sent_data_equals_data_of_gradio(form: str) -> None:
    page, function, widgets = page_with(4)
    frugal, usual = SessionState(page), SessionState(page)
    sent = asyncio.run(page.postprocess_data(function, FORMS[form](widgets), frugal))
    expected = asyncio.run(gr.Blocks.postprocess_data(page, function, FORMS[form](widgets), usual))
    assert without_its_props(sent) == without_its_props(expected)
    assert frugal.state_data == usual.state_data


@pytest.mark.parametrize("value", ["new", gr.skip(), gr.update(visible=False)])
def test_sent_data_of_one_widget_equals_gradio(value: Any) -> None:
    page, function, _ = page_with(1)
    sent = asyncio.run(page.postprocess_data(function, value, SessionState(page)))
    expected = asyncio.run(gr.Blocks.postprocess_data(page, function, value, SessionState(page)))
    assert without_its_props(sent) == without_its_props(expected)


def test_unmentioned_widgets_are_not_rebuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    page, function, (html, button, _, _) = page_with(4)
    state = SessionState(page)
    made: list[Any] = []
    monkeypatch.setattr(state, "_update_config", made.append)
    asyncio.run(page.postprocess_data(function, {html: "new", button: gr.update(interactive=False)}, state))
    assert made == [button._id]


def test_widget_that_is_no_output_is_rejected() -> None:
    page, function, (*_, other) = page_with(2)
    with pytest.raises(ValueError, match="not specified as output"):
        asyncio.run(page.postprocess_data(function, {other: "new"}, SessionState(page)))
