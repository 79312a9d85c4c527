"""Events of the page that wait in the queue for the model."""

import gradio as gr
import pytest

from tests.support.widgets import whole_page


@pytest.fixture(scope="module")
def page() -> gr.Blocks:
    return whole_page()


def followed_states(page: gr.Blocks) -> set[int]:
    """Ids of the states whose change starts an event."""
    sources = {source for event in page.fns.values() for source, kind in event.targets if kind == "change"}
    return {source for source in sources if source and isinstance(page.blocks[source], gr.State)}


def test_only_what_runs_the_model_or_reads_files_waits_in_the_queue(page: gr.Blocks) -> None:
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
        "run",
        "_open_stream",
        "upload",
        "bring",
    }


def test_what_shows_no_progress_names_no_widget_for_it(page: gr.Blocks) -> None:
    silent = [event for event in page.fns.values() if event.outputs and event.show_progress == "hidden"]
    own = [event for event in silent if event.api_visibility == "private"]
    assert len(own) > 50
    assert [event.name for event in own if event.show_progress_on != []] == []


def test_what_writes_a_state_that_others_follow_tells_them(page: gr.Blocks) -> None:
    followed = followed_states(page)
    assert len(followed) == 2  # is the model there, and which was chosen
    writers = [event for event in page.fns.values() if followed & {output._id for output in event.outputs}]
    assert [event.name for event in writers if not event.queue] == []
    assert {event.name for event in writers} == {"look", "load"}
