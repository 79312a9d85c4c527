"""Sessions in memory: those of open pages, and a few others."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import gradio as gr
from gradio.routes import App
from gradio.state_holder import SessionState, StateHolder

from viz.page.jobs.connection_tracker import ConnectionTracker

MAX_CLOSED = 100
"""Sessions without an open page that are kept, such as of a suspended tab or of a page that is opening."""


class CompactSession(SessionState):
    """Session of gradio without the description of every widget: saves 0.75 MB and 0.1 s per user."""

    def __init__(self, blocks: gr.Blocks) -> None:
        nothing_to_describe: Any = SimpleNamespace(default_config=blocks.default_config, blocks=())
        super().__init__(nothing_to_describe)


class Sessions(StateHolder):
    """Sessions of gradio, which evicts the least recently used one, also that of a reader.

    A script can invent sessions; here they evict each other, not those of open pages.
    """

    def __init__(self, connections: ConnectionTracker) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # gradio does not annotate it
        self._connections = connections

    def __getitem__(self, session_id: str) -> SessionState:
        if session_id not in self.session_data:
            self.session_data[session_id] = CompactSession(self.blocks)
        return super().__getitem__(session_id)

    def update(self, session_id: str) -> None:
        """Mark a session as used, and evict those beyond the limits."""
        with self.lock:
            if session_id in self.session_data:
                self.session_data.move_to_end(session_id)
        names = list(reversed(self.session_data))
        closed = [name for name in names if not self._is_in_use(name)]
        for name in {*closed[MAX_CLOSED:], *names[self.capacity :]}:
            self.delete_state(name)  # its files too
            with self.lock:
                self.session_data.pop(name, None)
                self.time_last_used.pop(name, None)
            self.blocks._queue.pending_event_ids_session.pop(name, None)
            self.blocks._queue.pending_messages_per_session.pop(name, None)

    def _is_in_use(self, name: str) -> bool:
        """Check whether a session has an open page, or an event that waits or runs."""
        queue = self.blocks._queue
        events = queue.pending_event_ids_session.get(name, ())
        return self._connections.has_page(name) or any(event in queue.event_ids_to_events for event in events)


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
