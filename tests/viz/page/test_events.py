"""Widgets and events of the whole page: the queue, states that other events follow, empty panels."""

from typing import Any

import gradio as gr
import pytest

from tests.support.viz_reading import read_html
from tests.support.widgets import whole_page
from viz.page.answers.recordings import recorded_of
from viz.page.answers.tutorial_recording import tutorial_recording
from viz.page.form.examples import load_examples
from viz.page.form.options import DEFAULT_METHODS
from viz.page.internals.view import LAB, View

CASTLE, HARBOR = (recorded_of(example.form(DEFAULT_METHODS)) for example in load_examples()[:2])


@pytest.fixture(scope="module")
def page() -> gr.Blocks:
    return whole_page()


def followed_states(page: gr.Blocks) -> set[int]:
    """Ids of the states whose change starts an event."""
    sources = {source for event in page.fns.values() for source, kind in event.targets if kind == "change"}
    return {source for source in sources if source and isinstance(page.blocks[source], gr.State)}


def test_only_runs_and_uploads_wait_in_the_queue(page: gr.Blocks) -> None:
    followed = followed_states(page)
    queued = [
        event
        for event in page.fns.values()
        if event.queue
        and not followed & {output._id for output in event.outputs}
        and "unload" not in {kind for _, kind in event.targets}
    ]
    assert {event.concurrency_limit for event in queued} == {None}  # they wait in a line of the page's own
    assert {event.name for event in queued} == {
        "compare",
        "shuffle",
        "trace",
        "measure",
        "leave_one_out",
        "run",
        "_open_stream",
        "upload",
        "upload_rows",
        "read_rows",
    }


def test_events_that_replace_the_answers_stop_those_without_documents(page: gr.Blocks) -> None:
    stop = next(one for one in page.blocks.values() if getattr(one, "elem_id", "") == "stop-without")
    stopping = [
        event for event in page.fns.values() if [output._id for output in event.outputs] == [stop._id]
    ]
    sources = {source for event in stopping for source, _ in event.targets}
    replacing = [event for event in page.fns.values() if event.name in {"pick", "take_challenge", "go_back"}]
    selected = {target for event in replacing for target in event.targets if target[1] != "change"}
    assert len(selected) > 3 and {source for source, _ in selected} <= sources


def test_event_without_progress_names_no_widget_for_it(page: gr.Blocks) -> None:
    silent = [event for event in page.fns.values() if event.outputs and event.show_progress == "hidden"]
    own = [event for event in silent if event.api_visibility == "private"]
    assert len(own) > 50
    assert [event.name for event in own if event.show_progress_on != []] == []


def test_event_that_writes_a_followed_state_is_queued(page: gr.Blocks) -> None:
    followed = followed_states(page)
    assert len(followed) == 4  # is the model there, which was chosen, and the inputs of answers and sweep
    writers = [event for event in page.fns.values() if followed & {output._id for output in event.outputs}]
    assert {event.name for event in writers if event.queue} == {"look", "load", "run", "resume"}
    # These change the form, too, whose change is followed.
    others = {event.name for event in writers if not event.queue}
    assert others == {"pick", "take_challenge", "go_back", "restore", "open_file"}


def test_handlers_with_event_data_receive_it(page: gr.Blocks) -> None:
    """gradio reads their hints, and one that it cannot resolve hides the event from it, without a word."""
    names = {"open_tab", "open_page_tab", "show_answer"}
    taking = [gr.utils.get_type_hints(one.fn)["event"] for one in page.fns.values() if one.name in names]
    assert len(taking) == 4 and set(taking) == {gr.EventData}


def test_why_and_internals_are_drawn_while_their_tab_is_open(page: gr.Blocks) -> None:
    functions: dict[str | None, Any] = {event.name: event.fn for event in page.fns.values()}
    view, run, clicks = View(), tutorial_recording().run, [0]
    shown = CASTLE

    def drawn(name: str, *values: Any) -> set[str]:
        updates = functions[name](*values)
        return {block.elem_id for block in updates if getattr(block, "elem_id", None)}

    def after_run() -> set[str]:
        return drawn("after_run", run, shown, view, {})

    def opened(label: str) -> set[str]:
        clicks.append(len(clicks))
        return drawn("open_page_tab", gr.EventData(None, {"value": label}), run, shown, view, clicks[-1])

    assert opened("Why") == {"why"} and after_run() == opened("See it") == set()
    assert after_run() == drawn("draw_if_open", run, view, None) == opened("Why") == set()
    shown = HARBOR
    assert opened("Why") == {"why"} and opened("Why") == set()
    assert opened("Tutorial") == {"tutorial", "worksheet", "running-example"} and opened("Tutorial") == set()
    assert "internals-summary" in opened("Lab") & after_run()
    assert "masks-html" in drawn("draw_if_open", run, view, None)


def test_last_click_decides_the_drawn_tab(page: gr.Blocks) -> None:
    functions: dict[str | None, Any] = {event.name: event.fn for event in page.fns.values()}
    view, run = View(), tutorial_recording().run
    clicks: tuple[tuple[str, Any], ...] = (("Why", 1), ("Why", 3), ("Tutorial", 2), ("Tutorial", {"junk": 4}))
    for label, click in clicks:
        functions["open_page_tab"](gr.EventData(None, {"value": label}), None, CASTLE, view, click)
    assert view.page_tab == "Why"
    functions["open_page_tab"](gr.EventData(None, {"value": "Lab"}), None, CASTLE, view, 4)
    functions["after_run"](run, CASTLE, view, {})
    for label, click in (("RoPE positions", 6), ("Compare answers", 5), ("Attention", {"junk": 7})):
        shown = functions["open_tab"](gr.EventData(None, {"value": label}), run, view, None, click)
        assert "positions-html" in {block.elem_id for block in shown}


def test_empty_panels_click_existing_buttons(page: gr.Blocks) -> None:
    blocks = [block for block in page.blocks.values() if isinstance(block, gr.HTML | gr.Button)]
    buttons = {block.elem_id for block in blocks if isinstance(block, gr.Button)}
    functions: dict[str | None, Any] = {event.name: event.fn for event in page.fns.values()}
    panels = functions["after_run"](None, CASTLE, View(page_tab=LAB), {})
    panels |= functions["open_figures"]({"is_open": False}, None, CASTLE, None)
    offered = {
        widget.elem_id: pressed.attributes["data-click-target"]
        for widget, html in panels.items()
        if isinstance(html, str)
        for pressed in read_html(html).all("button")
        if "data-click-target" in pressed.attributes
    }
    assert offered == {"internals-summary": "run", "shuffle-verdict": "shuffle"}
    assert set(offered.values()) <= buttons
