"""Fair event queue of gradio.

Gradio (6.31) has one limit for all waiting events, which a single client can reach, and starts them in order.
"""

from collections import Counter
from typing import Any
from weakref import WeakKeyDictionary

import gradio as gr
from gradio.queueing import Event, Queue
from starlette.exceptions import HTTPException

from viz.page.jobs.connection_tracker import ConnectionTracker

MAX_PENDING_EVENTS = 200  # maximum waiting and running events of one client
RETRY_S = 10

NOT_QUEUED = "This event is answered without the queue: send it to /gradio_api/run/predict."

TOO_MANY = (
    f"Too many events of your address wait or run: got more than {MAX_PENDING_EVENTS}. "
    f"Try again in {RETRY_S} s."
)


class FairEventQueue(Queue):
    """Queue with a limit per client; the next event is one of the client with the fewest running events.

    A client may use at most as many workers as stay free. Events of one client start in order.
    """

    def __init__(self, page: gr.Blocks, connections: ConnectionTracker) -> None:
        super().__init__(
            live_updates=True,
            concurrency_count=page.max_threads,
            update_intervals=1,
            max_size=None,
            blocks=page,
        )
        self._connections = connections
        self._clients: WeakKeyDictionary[Event, str] = WeakKeyDictionary()

    async def push(self, body: Any, request: Any, username: str | None) -> Any:
        """Add an event. Raises HTTPException with status 429 if its client has too many."""
        function = self.blocks.fns.get(body.fn_index)
        if function is not None and not function.queue:
            return False, NOT_QUEUED, "error"
        client = self._connections.address(request)
        pending = sum(self._clients.get(event) == client for event in self.event_ids_to_events.values())
        if pending >= MAX_PENDING_EVENTS:
            raise HTTPException(429, TOO_MANY, headers={"Retry-After": str(RETRY_S)})
        is_added, event_id, state = await super().push(body, request, username)
        if is_added:
            self._clients[self.event_ids_to_events[str(event_id)]] = client
        return is_added, event_id, state

    def get_events(self) -> tuple[list[Event], bool, str] | None:
        """Return and remove the event that starts next; None if none may start."""
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
