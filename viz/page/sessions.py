"""What the server keeps of those who have left."""

from collections import deque
from collections.abc import Callable
from datetime import datetime

import gradio as gr
from gradio.context import LocalContext

KEPT = 20
"""Sessions kept after their visitor has left: a tab that slept comes back. Each takes about a megabyte."""


class Leavers:
    """Those who have left: visitors who closed the page, and scripts whose call was answered.

    gradio itself keeps ten thousand sessions, and of a script's it never hears that they have ended. Here a
    session is let go once others have left after it, unless it was used again.
    """

    def __init__(self, page: gr.Blocks) -> None:
        self._page = page
        self._left: deque[tuple[str, datetime]] = deque()

    def closes_page(self, finished: gr.State) -> Callable[[gr.Request], None]:
        """What is to be done whenever a visitor leaves: his run is let go at once.

        finished: the state with the run.
        """

        def close(request: gr.Request) -> None:
            session = self._page.state_holder.session_data.get(request.session_hash or "")
            if session is not None:
                session.state_data.pop(finished._id, None)
                self._leave(request.session_hash or "")

        return close

    def ends_call(self) -> None:
        """To be called in the thread that answers a script, at the end."""
        request = LocalContext.request.get(None)
        if request is not None and request.session_hash:
            self._leave(request.session_hash)

    def _leave(self, name: str) -> None:
        self._left.append((name, datetime.now()))
        while len(self._left) > KEPT:
            oldest, at = self._left.popleft()
            if self._page.state_holder.time_last_used.get(oldest, at) <= at:
                self._forget(oldest)

    def _forget(self, name: str) -> None:
        holder, queue = self._page.state_holder, self._page._queue
        holder.delete_state(name)  # its files too
        with holder.lock:
            holder.session_data.pop(name, None)
            holder.time_last_used.pop(name, None)
        if not queue.pending_event_ids_session.get(name):
            queue.pending_event_ids_session.pop(name, None)
            queue.pending_messages_per_session.pop(name, None)
