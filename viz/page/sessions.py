"""What the server keeps of visitors who have left."""

from collections import deque
from collections.abc import Callable
from datetime import datetime

import gradio as gr

KEPT = 20
"""Sessions kept after their visitor has left: a tab that slept comes back. Each takes about a megabyte."""


def forget_those_who_left(page: gr.Blocks, finished: gr.State) -> Callable[[gr.Request], None]:
    """What is to be done whenever a visitor leaves; gradio itself keeps ten thousand sessions.

    His run is let go at once, the rest of his session once others have left after him, unless he came back.
    finished: the state with the run.
    """
    left: deque[tuple[str, datetime]] = deque()

    def forget(request: gr.Request) -> None:
        name, holder = request.session_hash or "", page.state_holder
        session = holder.session_data.get(name)
        if session is None:
            return
        session.state_data.pop(finished._id, None)
        left.append((name, datetime.now()))
        while len(left) > KEPT:
            oldest, at = left.popleft()
            if holder.time_last_used.get(oldest, at) > at:
                continue
            holder.delete_state(oldest)  # its files too
            with holder.lock:
                holder.session_data.pop(oldest, None)
                holder.time_last_used.pop(oldest, None)

    return forget
