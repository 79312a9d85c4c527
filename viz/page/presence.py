"""Whether the visitor for whom something is computed is still there."""

from collections.abc import Generator
from contextlib import closing
from typing import TypeVar

from gradio.context import LocalContext

from pine_engine.errors import Cancelled

Item = TypeVar("Item")


def visitor_left() -> bool:
    """True once the visitor, or the script, whose event this thread answers has closed the connection.

    False outside an event. gradio itself looks only between two yields, and closes a generator in the thread
    that serves everybody.
    """
    page, event_id = LocalContext.blocks.get(None), LocalContext.event_id.get(None)
    event = page._queue.event_ids_to_events.get(event_id) if page and event_id else None
    return event is not None and not event.alive


def stop_if_left() -> None:
    """Raises Cancelled once the visitor has left."""
    if visitor_left():
        raise Cancelled("the visitor has left")


def while_there(items: Generator[Item, None, None]) -> Generator[Item, None, None]:
    """The items until the visitor leaves; then closes them and raises Cancelled."""
    with closing(items):
        for item in items:
            stop_if_left()
            yield item
