"""The sessions that the server keeps: those whose page is open, and a few others."""

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import gradio as gr
from gradio.routes import App
from gradio.state_holder import SessionState, StateHolder

from viz.page.jobs.presence import Presence

KEPT = 20
"""Sessions without an open page that are kept: a tab that slept comes back."""

KEPT_NEW = 100
"""The same of those used within the last NEW_S seconds: a page asks before it says that it is open."""

NEW_S = 10.0


class LeanSession(SessionState):
    """gradio's, without a description of every widget, which only its deep links need.

    That takes three quarters of a megabyte, and every visitor a tenth of a second.
    """

    def __init__(self, blocks: gr.Blocks) -> None:
        nothing_to_describe: Any = SimpleNamespace(default_config=blocks.default_config, blocks=())
        super().__init__(nothing_to_describe)


class Sessions(StateHolder):
    """gradio's, which knows whose page is open.

    gradio keeps ten thousand sessions and lets the longest unused one go, be it a visitor's who reads or one
    that a script has invented. Here those whose page is open stay, up to the capacity, and a few others.
    """

    def __init__(self, presence: Presence) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # gradio does not annotate it
        self._presence = presence
        self._used: dict[str, float] = {}

    def __getitem__(self, session_id: str) -> SessionState:
        if session_id not in self.session_data:
            self.session_data[session_id] = LeanSession(self.blocks)
        self._used[session_id] = time.monotonic()
        return super().__getitem__(session_id)

    def update(self, session_id: str) -> None:
        """Notes that a session is used, and lets go those that are too many."""
        with self.lock:
            if session_id in self.session_data:
                self.session_data.move_to_end(session_id)
        for name in self._too_many():
            self._forget(name)

    def _too_many(self) -> list[str]:
        """Sessions to let go, of which nothing is computed now."""
        names = list(reversed(self.session_data))
        since = time.monotonic() - NEW_S
        guests = [name for name in names if not self._presence.has_page(name) and not self._computes(name)]
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


def keep_sessions(app: App, page: gr.Blocks, presence: Presence) -> None:
    """Gives a launched page its sessions."""
    app.state_holder = Sessions(presence)
    app.state_holder.set_blocks(page)


def lets_go(page: gr.Blocks, finished: gr.State) -> Callable[[gr.Request], None]:
    """What is to be done whenever a visitor leaves: their run is let go at once.

    finished: the state with the run.
    """

    def close(request: gr.Request) -> None:
        session = page.state_holder.session_data.get(request.session_hash or "")
        if session is not None:
            session.state_data.pop(finished._id, None)

    return close
