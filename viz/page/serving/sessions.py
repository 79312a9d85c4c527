"""Sessions in memory: those of open pages, and a few others."""

import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import gradio as gr
from gradio.routes import App
from gradio.state_holder import SessionState, StateHolder

from viz.page.jobs.connection_tracker import ConnectionTracker

KEPT = 20  # sessions without an open page that are kept, for example of a suspended tab
KEPT_NEW = 100
"""Further sessions used within the last NEW_S seconds: a page sends requests before it opens its stream."""

NEW_S = 10.0


class CompactSession(SessionState):
    """Session of gradio without the description of every widget: saves 0.75 MB and 0.1 s per user."""

    def __init__(self, blocks: gr.Blocks) -> None:
        nothing_to_describe: Any = SimpleNamespace(default_config=blocks.default_config, blocks=())
        super().__init__(nothing_to_describe)


class Sessions(StateHolder):
    """Sessions of gradio that never evict those of open pages.

    Gradio keeps ten thousand sessions and evicts the least recently used, also that of a reader in favor of
    sessions that a script has invented.
    """

    def __init__(self, connections: ConnectionTracker) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # gradio does not annotate it
        self._connections = connections
        self._used: dict[str, float] = {}

    def __getitem__(self, session_id: str) -> SessionState:
        if session_id not in self.session_data:
            self.session_data[session_id] = CompactSession(self.blocks)
        self._used[session_id] = time.monotonic()
        return super().__getitem__(session_id)

    def update(self, session_id: str) -> None:
        """Mark a session as used, and evict those beyond the limits."""
        with self.lock:
            if session_id in self.session_data:
                self.session_data.move_to_end(session_id)
        for name in self._too_many():
            self._forget(name)

    def _too_many(self) -> list[str]:
        """Return the sessions to evict, without active events."""
        names = list(reversed(self.session_data))
        since = time.monotonic() - NEW_S
        guests = [name for name in names if not self._connections.has_page(name) and not self._computes(name)]
        old = [name for name in guests if self._used.get(name, 0.0) < since]
        return [*guests[KEPT_NEW:], *old[KEPT:], *names[self.capacity :]]

    def _computes(self, name: str) -> bool:
        queue = self.blocks._queue
        return any(
            event in queue.event_ids_to_events for event in queue.pending_event_ids_session.get(name, ())
        )

    def _forget(self, name: str) -> None:
        queue = self.blocks._queue
        self.delete_state(name)  # its files too
        with self.lock:
            self.session_data.pop(name, None)
            self.time_last_used.pop(name, None)
            self._used.pop(name, None)
        queue.pending_event_ids_session.pop(name, None)
        queue.pending_messages_per_session.pop(name, None)


def install_session_store(app: App, page: gr.Blocks, connections: ConnectionTracker) -> None:
    """Install the session store in a launched page."""
    app.state_holder = Sessions(connections)
    app.state_holder.set_blocks(page)


def on_unload(page: gr.Blocks, results: Sequence[gr.State]) -> Callable[[gr.Request], None]:
    """Return the callback that releases the results of a closed page."""

    def close(request: gr.Request) -> None:
        session = page.state_holder.session_data.get(request.session_hash or "")
        if session is not None:
            for state in results:
                session.state_data.pop(state._id, None)

    return close
