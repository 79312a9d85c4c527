"""Sessions that the server keeps."""

from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest

from tests.support.widgets import built, whole_page
from viz.page.gradio_patches.blocks import GuardedBlocks
from viz.page.jobs.connection_tracker import ConnectionTracker
from viz.page.serving.sessions import MAX_CLOSED, Sessions

Kept = tuple[Sessions, ConnectionTracker, gr.State, list[object]]
"""Sessions, connections, a state of each session, and its deleted values."""


def build() -> tuple[GuardedBlocks, gr.State, list[object]]:
    deleted: list[object] = []
    with GuardedBlocks(analytics_enabled=False) as page:
        kept = gr.State(None, delete_callback=deleted.append)
        gr.Textbox("words " * 10_000)
        page.queue()
    return page, kept, deleted


@pytest.fixture
def kept_by() -> Kept:
    page, kept, deleted = built(build)
    holder = Sessions(page.connections)
    holder.set_blocks(page)
    return holder, page.connections, kept, deleted


def use(holder: Sessions, kept: gr.State, *names: str) -> None:
    for name in names:
        holder[name][kept._id] = name


def test_invented_sessions_evict_no_session_in_use(kept_by: Kept) -> None:
    holder, connections, kept, deleted = kept_by
    queue: Any = holder.blocks._queue
    queue.pending_event_ids_session["busy"] = {"event"}
    queue.event_ids_to_events["event"] = object()
    use(holder, kept, "reader", "busy", "closed")
    with connections.open_page("reader"):
        use(holder, kept, *(f"invented {number}" for number in range(MAX_CLOSED - 1)))
        assert "closed" in holder and not deleted
        use(holder, kept, "invented")
        assert holder["reader"][kept._id] == "reader" and holder["busy"][kept._id] == "busy"
        assert deleted == ["closed"] and len(holder.session_data) == MAX_CLOSED + 2
    del queue.event_ids_to_events["event"]
    use(holder, kept, *(f"others {number}" for number in range(MAX_CLOSED)))
    assert {"reader", "busy"} < set(map(str, deleted)) and not queue.pending_event_ids_session


def test_open_pages_beyond_capacity_evict_least_recently_used(kept_by: Kept) -> None:
    holder, connections, kept, _ = kept_by
    holder.capacity = 2
    with connections.open_page("a"), connections.open_page("b"), connections.open_page("c"):
        use(holder, kept, "a", "b", "c")
    assert list(holder.session_data) == ["b", "c"]


def test_session_describes_no_widget(kept_by: Kept) -> None:
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
    writers = [one for one in page.fns.values() if one.name in ("run", "take_challenge")]
    # Run, what is shown of it, shuffle test, attention per token, leave-one-out, replaced and edited forms.
    assert len(released) == 7 and released <= {output._id for one in writers for output in one.outputs}
    assert sessions["other"].state_data.keys() == states
