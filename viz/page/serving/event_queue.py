"""Events in the queue of gradio, which has no public interface for them."""

from collections.abc import Collection
from typing import Any

import gradio as gr
from gradio.server_messages import UnexpectedErrorMessage


def pending_events(page: gr.Blocks) -> Collection[Any]:
    """Return the waiting and running events."""
    return page._queue.event_ids_to_events.values()


def has_events(page: gr.Blocks, session: str) -> bool:
    """Check whether a session has an event that waits or runs."""
    queue = page._queue
    events = queue.pending_event_ids_session.get(session, ())
    return any(event in queue.event_ids_to_events for event in events)


def forget_session(page: gr.Blocks, session: str) -> None:
    """Delete what the queue keeps of a session."""
    page._queue.pending_event_ids_session.pop(session, None)
    page._queue.pending_messages_per_session.pop(session, None)


def send_to_waiting(page: gr.Blocks, sentence: str) -> None:
    """Send an error to all clients that wait for an answer."""
    if page.server is None:
        return
    queue = page._queue
    loop = page.server.servers[0].get_loop()
    for session, events in list(queue.pending_event_ids_session.items()):
        if events and (messages := queue.pending_messages_per_session.get(session)):
            message = UnexpectedErrorMessage(message=sentence, success=False)
            loop.call_soon_threadsafe(messages.put_nowait, message)
