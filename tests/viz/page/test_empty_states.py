"""Before the first run every panel says what will be there; one that is far from its button offers it."""

import gradio as gr
import pytest

from tests.support.viz_reading import HOSTILE, assert_harmless, read_html
from tests.support.widgets import whole_page
from viz.drawing.markup import empty_panel


def test_a_panel_away_from_its_button_offers_it_and_no_button_is_there_twice() -> None:
    blocks = [block for block in whole_page().blocks.values() if isinstance(block, gr.HTML | gr.Button)]
    buttons = {block.elem_id for block in blocks if isinstance(block, gr.Button)}
    offered = {
        block.elem_id: pressed.attributes["data-press"]
        for block in blocks
        if isinstance(block, gr.HTML)
        for pressed in read_html(str(block.value or "")).all("button")
        if "data-press" in pressed.attributes
    }
    assert offered == {"inside-summary": "run"}
    assert set(offered.values()) <= buttons


@pytest.mark.parametrize("press", ["", "run"])
def test_an_empty_panel_shows_text_as_text(press: str) -> None:
    html = empty_panel(HOSTILE[0], press=press, label=HOSTILE[1])
    assert_harmless(html)
    assert HOSTILE[0] in read_html(html).text
    assert bool(read_html(html).all("button")) == bool(press)
