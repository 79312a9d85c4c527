"""Sessions of gradio: what each keeps, and which ones are evicted."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import gradio as gr
from gradio.state_holder import SessionState, StateHolder

from viz.page.jobs.connection_tracker import ConnectionTracker
from viz.page.serving.event_queue import forget_session, has_events

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
        opened = self._connections.has_page
        closed = [name for name in names if not opened(name) and not has_events(self.blocks, name)]
        for name in {*closed[MAX_CLOSED:], *names[self.capacity :]}:
            self.delete_state(name)  # its files too
            with self.lock:
                self.session_data.pop(name, None)
                self.time_last_used.pop(name, None)
            forget_session(self.blocks, name)


def release_results(page: gr.Blocks, results: Sequence[gr.State], request: gr.Request) -> None:
    """Release the results of a page that was closed."""
    if session := page.state_holder.session_data.get(request.session_hash or ""):
        for state in results:
            session.state_data.pop(state._id, None)
