"""Every update of a row reaches the page as it was meant, also one that the browser reads late."""

import copy
from collections.abc import Sequence
from typing import Any

import gradio as gr
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.widgets import built
from viz.page.gradio_patches.blocks import GuardedBlocks

UPDATES = st.one_of(
    st.text(max_size=3),
    st.none(),
    st.lists(st.integers(0, 2), max_size=3),
    st.dictionaries(st.sampled_from("abc"), st.one_of(st.booleans(), st.text(max_size=2)), max_size=3),
)


def page_of(kind: type[gr.Blocks]) -> gr.Blocks:
    """A page with a function of two outputs."""

    def build() -> gr.Blocks:
        with kind(analytics_enabled=False) as page:
            page.load(lambda: None, None, [gr.HTML(), gr.HTML()])
        assert isinstance(page, gr.Blocks)
        return page

    return built(build)


PAGES = {kind: page_of(kind) for kind in (gr.Blocks, GuardedBlocks)}


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
    page = PAGES[kind]
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


@pytest.mark.parametrize("kind", PAGES)
def test_growing_text_is_sent_as_difference(kind: type[gr.Blocks]) -> None:
    page = PAGES[kind]
    for text, sent in (("one", "one"), ("one two", [["append", [], " two"]]), ("one two", [])):
        assert page.handle_streaming_diffs(page.fns[0], [text, None], "visitor", "end", False)[0] == sent
    page.handle_streaming_diffs(page.fns[0], [None, None], "visitor", "end", True)
