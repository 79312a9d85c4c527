"""gradio's event queue, shared fairly between clients.

gradio (6.31) has one limit for all events that wait, which a single client can reach, and starts them in the
order in which they came. It also takes events that are answered without the queue.
"""

from collections import Counter
from typing import Any
from weakref import WeakKeyDictionary

import gradio as gr
from gradio.queueing import Event, Queue
from starlette.exceptions import HTTPException

from viz.page.jobs.presence import Presence

MAX_PENDING_EVENTS = 200
"""Events of one client that wait or run at once."""

RETRY_S = 10

NOT_QUEUED = "This event is answered without the queue: send it to /gradio_api/run/predict."

TOO_MANY = (
    f"Too many events of your address wait or run: got more than {MAX_PENDING_EVENTS}. "
    f"Try again in {RETRY_S} s."
)


class FairEventQueue(Queue):
    """Queue without a limit for all clients together, but with one for each.

    The next event to start is one of the client with the fewest running events. A client may hold at most as
    many workers as stay free, so that some are always left for the others. Of one client, events start in
    the order in which they came.

    Args:
        page: Blocks whose events these are.
        presence: Knows for which address a tool call is made.
    """

    def __init__(self, page: gr.Blocks, presence: Presence) -> None:
        super().__init__(
            live_updates=True,
            concurrency_count=page.max_threads,
            update_intervals=1,
            max_size=None,
            blocks=page,
        )
        self._presence = presence
        self._clients: WeakKeyDictionary[Event, str] = WeakKeyDictionary()

    async def push(self, body: Any, request: Any, username: str | None) -> Any:
        """Add an event. Raises HTTPException with status 429 if its client has too many."""
        function = self.blocks.fns.get(body.fn_index)
        if function is not None and not function.queue:
            return False, NOT_QUEUED, "error"
        client = self._presence.address(request)
        pending = sum(self._clients.get(event) == client for event in self.event_ids_to_events.values())
        if pending >= MAX_PENDING_EVENTS:
            raise HTTPException(429, TOO_MANY, headers={"Retry-After": str(RETRY_S)})
        is_added, event_id, state = await super().push(body, request, username)
        if is_added:
            self._clients[self.event_ids_to_events[str(event_id)]] = client
        return is_added, event_id, state

    def get_events(self) -> tuple[list[Event], bool, str] | None:
        """Remove the event that starts next from the queue, and return it; None if none may start."""
        running = Counter(self._clients[event] for job in self.active_jobs if job for event in job)
        waiting = [
            event
            for queue in self.event_queue_per_concurrency_id.values()
            if queue.concurrency_limit is None or queue.current_concurrency < queue.concurrency_limit
            for event in queue.queue
        ]
        event = min(waiting, key=lambda one: (running[self._clients[one]], one.enqueue_time), default=None)
        if event is None or running[self._clients[event]] >= self.active_jobs.count(None):
            return None
        self.event_queue_per_concurrency_id[event.concurrency_id].queue.remove(event)
        return [event], False, event.concurrency_id
