"""gradio's event queue, shared between clients."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.exceptions import HTTPException

from tests.support.widgets import built, whole_page
from viz.page.gradio_patches import fair_event_queue
from viz.page.gradio_patches.fair_event_queue import FairEventQueue
from viz.page.jobs.connection_tracker import ConnectionTracker

NUM_WORKERS = 8


class Pushed:
    """A queue of the whole page into which the test pushes events of clients."""

    def __init__(self) -> None:
        self._page = whole_page()
        self.queue = built(lambda: FairEventQueue(self._page, ConnectionTracker()))
        self.queue.active_jobs = [None] * NUM_WORKERS

    def push(self, client: str, *, name: str = "look") -> Any:
        function = next(one for one in self._page.fns.values() if one.api_name == name)
        body = SimpleNamespace(fn_index=function._id, session_hash=None, event_id=None)
        request = SimpleNamespace(client=SimpleNamespace(host=client), headers={})
        return asyncio.run(self.queue.push(body, request, None))

    def start(self) -> str | None:
        """Start the next event; the client that pushed it, None if none may start."""
        started = self.queue.get_events()
        if started is None:
            return None
        self.queue.active_jobs[self.queue.active_jobs.index(None)] = started[0]
        client = started[0][0].request.client
        return client.host if client else ""


@pytest.fixture
def pushed() -> Pushed:
    return Pushed()


def test_event_queue_starts_events_of_clients_in_turns(pushed: Pushed) -> None:
    for client in ("a", "a", "a", "b", "b", "c"):
        pushed.push(client)
    assert [pushed.start() for _ in range(6)] == ["a", "b", "c", "a", "b", "a"]


def test_event_queue_leaves_workers_to_other_clients(pushed: Pushed) -> None:
    for _ in range(3 * NUM_WORKERS):
        pushed.push("a")
    assert [pushed.start() for _ in range(NUM_WORKERS)].count("a") == NUM_WORKERS // 2
    for client in ("b", "b", "b", "c"):
        pushed.push(client)
    assert [pushed.start() for _ in range(4)] == ["b", "c", "b", None]


def test_event_queue_rejects_client_with_too_many_events(
    pushed: Pushed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fair_event_queue, "MAX_PENDING_EVENTS", 3)
    assert all(pushed.push("a")[0] for _ in range(3))
    with pytest.raises(HTTPException) as raised:
        pushed.push("a")
    assert raised.value.status_code == 429 and raised.value.headers is not None
    assert "Retry-After" in raised.value.headers
    assert pushed.push("b")[0]


def test_event_queue_rejects_event_that_needs_no_queue(pushed: Pushed) -> None:
    is_added, _, state = pushed.push("a", name="restore")
    assert (is_added, state, len(pushed.queue)) == (False, "error", 0)
