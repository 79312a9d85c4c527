"""Blocks of the page: updates as gradio sends them, without losing or rebuilding widgets."""

import asyncio
import copy
import inspect
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from gradio.state_holder import SessionState
from hypothesis import given, strategies as st

from tests.support.widgets import built
from viz.page.gradio_patches import file_of
from viz.page.gradio_patches.blocks import GuardedBlocks

# start


def test_gradio_reads_no_source_of_a_class_without_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspect, "getfile", file_of)
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: pytest.fail("a source was read"))
    metaclass: Any = type(gr.HTML)
    assert metaclass("Plain", (gr.HTML,), {}).EVENTS
    assert inspect.getfile(inspect) == inspect.__file__


# whole updates

UPDATES = st.one_of(
    st.text(max_size=3),
    st.none(),
    st.lists(st.integers(0, 2), max_size=3),
    st.dictionaries(st.sampled_from("abc"), st.one_of(st.booleans(), st.text(max_size=2)), max_size=3),
)


@cache
def page_of(kind: type[gr.Blocks]) -> gr.Blocks:
    """A page with a function of two outputs."""

    def build() -> gr.Blocks:
        with kind(analytics_enabled=False) as page:
            page.load(lambda: None, None, [gr.HTML(), gr.HTML()])
        assert isinstance(page, gr.Blocks)
        return page

    return built(build)


def edited(value: Any, action: str, path: Sequence[Any], new: Any) -> Any:
    """As gradio's page in the browser edits a value: inside of it, unless all of it is meant."""
    if not path:
        return new if action == "replace" else value + new
    inner = value
    for step in path[:-1]:
        inner = inner[step]
    last = path[-1]
    if action == "append":
        inner[last] += new
    elif action == "delete":
        del inner[last]
    elif action == "add" and isinstance(inner, list):
        inner.insert(last, new)
    else:
        inner[last] = new
    return value


def read_late(kind: type[gr.Blocks], updates: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Return the values in a browser after all updates of two widgets."""
    page = page_of(kind)
    held: list[Any] = []
    read = []
    for number, values in enumerate(updates):
        sent = page.handle_streaming_diffs(page.fns[0], copy.deepcopy(list(values)), "visitor", "run", False)
        sent = copy.deepcopy(sent)  # by way of the network
        if number == 0:
            held = sent
        else:
            for place, edits in enumerate(sent):
                for edit in edits:
                    held[place] = edited(held[place], *edit)
        read.append(list(held))
    assert page.handle_streaming_diffs(page.fns[0], [None, None], "visitor", "run", True) == updates[-1]
    return read


@given(st.lists(st.lists(UPDATES, min_size=2, max_size=2), min_size=1, max_size=5))
def test_a_late_browser_shows_every_update(updates: list[list[Any]]) -> None:
    assert read_late(GuardedBlocks, updates) == updates


def test_gradio_loses_properties_of_a_single_update() -> None:
    updates = [[{"interactive": True}, "a"], [{}, "ab"]]
    assert read_late(gr.Blocks, updates)[0] != updates[0]
    assert read_late(GuardedBlocks, updates) == updates


@pytest.mark.parametrize("kind", [gr.Blocks, GuardedBlocks])
def test_growing_text_is_sent_as_difference(kind: type[gr.Blocks]) -> None:
    page = page_of(kind)
    for text, sent in (("one", "one"), ("one two", [["append", [], " two"]]), ("one two", [])):
        assert page.handle_streaming_diffs(page.fns[0], [text, None], "visitor", "end", False)[0] == sent
    page.handle_streaming_diffs(page.fns[0], [None, None], "visitor", "end", True)


# unchanged widgets

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
    "value of one widget": lambda _: "new",
    "one widget skipped": lambda _: gr.skip(),
    "one widget hidden": lambda _: gr.update(visible=False),
    "one": lambda widgets: {widgets[0]: "new"},
    "properties": lambda widgets: {widgets[1]: gr.update(interactive=False, value="wait")},
    "a state": lambda widgets: {widgets[2]: 7},
    "two, not in order": lambda widgets: {widgets[3]: "x", widgets[0]: gr.update(visible=False)},
    "one skipped": lambda widgets: {widgets[0]: gr.skip(), widgets[2]: None},
    "all": lambda widgets: {widget: "new" for widget in widgets},
    "none": lambda _: gr.skip(),
    "a list": lambda _: ["new", gr.skip(), 3, gr.update(value="y")],
}


@pytest.mark.parametrize(
    "form", [pytest.param(form, marks=pytest.mark.slow if form == "one skipped" else ()) for form in FORMS]
)
def test_sent_data_equals_data_of_gradio(form: str) -> None:
    page, function, widgets = page_with(1 if "one widget" in form else 4)
    frugal, usual = SessionState(page), SessionState(page)
    sent = asyncio.run(page.postprocess_data(function, FORMS[form](widgets), frugal))
    expected = asyncio.run(gr.Blocks.postprocess_data(page, function, FORMS[form](widgets), usual))
    assert without_its_props(sent) == without_its_props(expected)
    assert frugal.state_data == usual.state_data


def test_unmentioned_widgets_are_not_rebuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    page, function, (html, button, _, _) = page_with(4)
    state = SessionState(page)
    made: list[Any] = []
    monkeypatch.setattr(state, "_update_config", made.append)
    asyncio.run(page.postprocess_data(function, {html: "new", button: gr.update(interactive=False)}, state))
    assert made == [button._id]


@pytest.mark.parametrize("count", [0, 2])
def test_wrong_number_of_arguments_is_named(count: int) -> None:
    def build() -> gr.Blocks:
        with GuardedBlocks(analytics_enabled=False) as page:
            page.load(lambda _: None, gr.Textbox(), None)
        assert isinstance(page, gr.Blocks)
        return page

    page = built(build)
    with pytest.raises(gr.Error, match=f"got {count}, expected 1"):
        asyncio.run(page.preprocess_data(page.fns[0], ["a"] * count, SessionState(page)))


def test_widget_that_is_no_output_is_rejected() -> None:
    page, function, (*_, other) = page_with(2)
    with pytest.raises(ValueError, match="not specified as output"):
        asyncio.run(page.postprocess_data(function, {other: "new"}, SessionState(page)))
