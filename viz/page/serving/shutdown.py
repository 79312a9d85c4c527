"""Shutdown: reject new runs, let active ones finish or stop them, then close the server.

Every wait is bounded: `docker stop` kills after 10 s.
"""

import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import NoReturn

import gradio as gr
from gradio.server_messages import UnexpectedErrorMessage

from viz.page.jobs.run_log import SHUTTING_DOWN, RunLog

log = logging.getLogger("pine_explorer")

STOP_S = 0.5
"""Seconds for stopped runs to end: a model layer."""

LAST_WORDS_S = 0.3
"""Seconds for the last messages to reach the pages."""

CLOSING_S = 0.2
"""Maximum seconds for the server to close."""

EXIT_S = 1.2
"""Seconds after the deadline at which the process exits in any case; docs/hosting.md states 3 s."""

LOOK_S = 0.2
"""Seconds between two checks for a signal."""


def end_signal() -> "SimpleQueue[float]":
    """Return a queue of the times of SIGTERM and SIGINT (`time.monotonic()`), which get no other handler."""
    received: SimpleQueue[float] = SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: received.put(time.monotonic()))
    return received


def wait_for_end(received: "SimpleQueue[float]") -> float:
    """Return the time of the first signal; polls, because Python handles signals only in the main thread."""
    while True:
        with suppress(Empty):
            return received.get(timeout=LOOK_S)


def shut_down(page: gr.Blocks, runs: RunLog, patience_s: float, *, since: float) -> None:
    """Reject new runs, let active ones finish until a deadline, stop the rest and close the page.

    The process exits EXIT_S seconds after the deadline in any case; `since` is the time of the signal.
    """
    deadline = since + patience_s
    threading.Thread(target=_exit_at, args=(deadline + EXIT_S,), daemon=True).start()
    log.info("shutting down: %d runs go on, up to %g s to finish", runs.open, patience_s)
    if not runs.close(_until(deadline)) and not runs.wait(_until(deadline + STOP_S)):
        _tell_who_waits(page)  # a layer of a large model takes longer
    time.sleep(LAST_WORDS_S)
    closing = threading.Thread(target=page.close, kwargs={"verbose": False}, daemon=True)
    closing.start()
    closing.join(CLOSING_S)
    log.info("closed")


def end_process(status: int = 0) -> NoReturn:
    """Exit with this status and end all child processes, without waiting for threads."""
    for child in multiprocessing.active_children():
        child.kill()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _exit_at(end: float) -> None:
    time.sleep(_until(end))
    end_process()


def _until(end: float) -> float:
    """Return the seconds until a time of `time.monotonic()`, at least 0."""
    return max(0.0, end - time.monotonic())


def _tell_who_waits(page: gr.Blocks) -> None:
    """Send a message to all clients that wait for an answer."""
    if page.server is None:
        return
    queue = page._queue
    loop = page.server.servers[0].get_loop()
    for session, events in list(queue.pending_event_ids_session.items()):
        if events and (messages := queue.pending_messages_per_session.get(session)):
            message = UnexpectedErrorMessage(message=SHUTTING_DOWN, success=False)
            loop.call_soon_threadsafe(messages.put_nowait, message)
