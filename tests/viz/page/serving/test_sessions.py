"""Sessions that the server keeps."""

from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest

from tests.support.widgets import built, whole_page
from viz.page.gradio_patches.blocks import GuardedBlocks
from viz.page.jobs.connection_tracker import ConnectionTracker
from viz.page.serving.sessions import KEPT, KEPT_NEW, NEW_S, Sessions

Kept = tuple[Sessions, ConnectionTracker, gr.State, list[object]]
"""The sessions, who is there, a state of each session, and what was deleted of it."""


def build() -> tuple[GuardedBlocks, gr.State, list[object]]:
    deleted: list[object] = []
    with GuardedBlocks(analytics_enabled=False) as page:
        kept = gr.State(None, delete_callback=deleted.append)
        gr.Textbox("words " * 10_000)
        page.queue()
    return page, kept, deleted


@pytest.fixture
def kept_by(clock: list[float]) -> Kept:
    page, kept, deleted = built(build)
    holder = Sessions(page.connections)
    holder.set_blocks(page)
    return holder, page.connections, kept, deleted


def use(holder: Sessions, kept: gr.State, *names: str) -> None:
    for name in names:
        holder[name][kept._id] = name


def test_invented_sessions_evict_no_open_page(kept_by: Kept, clock: list[float]) -> None:
    holder, connections, kept, deleted = kept_by
    use(holder, kept, "reader")
    with connections.open_page("reader"):
        use(holder, kept, *(f"invented {number}" for number in range(600)))
        assert len(holder.session_data) == KEPT_NEW + 1
        clock[0] += NEW_S + 1
        use(holder, kept, "another")
        assert len(holder.session_data) == KEPT + 2
        assert holder["reader"][kept._id] == "reader"
        assert "invented 0" in deleted and "reader" not in deleted
    assert "invented 599" in holder and holder["invented 599"][kept._id] == "invented 599"


def test_session_of_closed_page_is_kept_for_a_while(kept_by: Kept, clock: list[float]) -> None:
    holder, connections, kept, deleted = kept_by
    use(holder, kept, "slept")
    with connections.open_page("slept"):
        pass
    for number in range(KEPT + 1):
        clock[0] += NEW_S + 1
        assert "slept" in holder
        use(holder, kept, f"visitor {number}")
    clock[0] += NEW_S + 1
    use(holder, kept, "one more")
    assert "slept" not in holder and deleted[0] == "slept"


def test_sessions_beyond_capacity_evict_least_recently_used(kept_by: Kept) -> None:
    holder, connections, kept, _ = kept_by
    holder.capacity = 2
    with connections.open_page("a"), connections.open_page("b"), connections.open_page("c"):
        use(holder, kept, "a", "b", "c")
    assert list(holder.session_data) == ["b", "c"]


def test_a_session_for_which_something_is_computed_stays(kept_by: Kept, clock: list[float]) -> None:
    holder, _, kept, _ = kept_by
    queue: Any = holder.blocks._queue
    use(holder, kept, "busy")
    queue.pending_event_ids_session["busy"] = {"event"}
    queue.event_ids_to_events["event"] = object()
    clock[0] += NEW_S + 1
    use(holder, kept, *(f"other {number}" for number in range(200)))
    assert "busy" in holder
    del queue.event_ids_to_events["event"]
    clock[0] += NEW_S + 1
    use(holder, kept, "one more")
    assert "busy" not in holder and "busy" not in queue.pending_event_ids_session


def test_a_session_costs_next_to_nothing(kept_by: Kept) -> None:
    holder, _, kept, _ = kept_by
    use(holder, kept, "new")
    assert set(holder["new"].config_values) == {kept._id}


def test_closed_page_releases_its_results(monkeypatch: pytest.MonkeyPatch) -> None:
    page: Any = whole_page()
    states = {block._id for block in page.blocks.values() if isinstance(block, gr.State)}
    sessions = {name: SimpleNamespace(state_data=dict.fromkeys(states)) for name in ("visitor", "other")}
    monkeypatch.setattr(page, "state_holder", SimpleNamespace(session_data=sessions))
    (close,) = [one.fn for one in page.fns.values() if "unload" in {kind for _, kind in one.targets}]
    for name in ("visitor", "unknown"):
        close(SimpleNamespace(session_hash=name))
    released = states - sessions["visitor"].state_data.keys()
    runs = [{output._id for output in one.outputs} for one in page.fns.values() if one.name == "run"]
    # Of the run, of the shuffle test with the same run, and of the attention per token.
    assert len(released) == 3 and released <= set().union(*runs)
    assert sessions["other"].state_data.keys() == states
