"""Work that is handed out event by event, and stopped when nobody listens any more."""

import queue
import threading
from collections.abc import Callable, Generator
from typing import TypeVar

from pine_engine.engine.events import Event, PrefillProgress
from pine_engine.engine.model_thread import begin
from pine_engine.errors import Cancelled

Emit = Callable[[Event], None]

Item = TypeVar("Item")


def stop_if(cancelled: threading.Event) -> None:
    """Raises Cancelled once the flag is set."""
    if cancelled.is_set():
        raise Cancelled("the run was stopped")


def layer_reports(
    method: str, num_layers: int, emit: Emit, cancelled: threading.Event
) -> Callable[[int], None]:
    """What a pass calls at the start of each layer: it tells how far it is, or raises Cancelled."""

    def on_layer(layer: int) -> None:
        stop_if(cancelled)
        emit(PrefillProgress(method, layer, num_layers))

    return on_layer


def in_thread(work: Callable[[Callable[[Item], None], threading.Event], None]) -> Generator[Item, None, None]:
    """Yields what work emits in a model thread; closing the generator sets the flag and waits."""
    cancelled = threading.Event()
    channel: queue.SimpleQueue[Item | BaseException | None] = queue.SimpleQueue()

    def target() -> None:
        try:
            work(channel.put, cancelled)
        except BaseException as error:  # handed to the consumer, who raises it
            channel.put(error)
        finally:
            channel.put(None)

    over = begin(target)
    try:
        while (item := channel.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        cancelled.set()
        over.wait()
