"""Ending the process: nothing new begins, what runs may finish or is told, and then the server closes.

Every wait has an end, whatever still runs: `docker stop` kills after 10 s.
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

TOLD_S = 0.5
"""Seconds after the deadline of the runs until which stopped runs may end: within a model layer."""

LAST_WORDS_S = 0.3
"""Seconds in which the last messages still reach the pages."""

CLOSING_S = 0.2
"""Longest wait, in seconds, for the server to close; connections that are open after that are lost."""

EXIT_S = 1.2
"""Seconds after the deadline of the runs at which the process exits, whatever is not finished.

docs/hosting.md states 3 s, so that a busy machine has time for the exit itself.
"""

LOOK_S = 0.2
"""How often the main thread looks whether the process was told to end."""


def end_signal() -> "SimpleQueue[float]":
    """Return a queue of the times of SIGTERM and SIGINT, which have no other effect from now on.

    Times are in seconds of `time.monotonic()`.
    """
    received: SimpleQueue[float] = SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: received.put(time.monotonic()))
    return received


def wait_for_end(received: "SimpleQueue[float]") -> float:
    """Return the time of the first signal once there is one.

    Not one long wait: the system may hand a signal to any thread, and Python answers it in the main thread,
    once that does something again.
    """
    while True:
        with suppress(Empty):
            return received.get(timeout=LOOK_S)


def shut_down(page: gr.Blocks, runs: RunLog, patience_s: float, *, since: float) -> None:
    """Reject new runs, let current ones finish until a deadline, stop the rest and close the page.

    From then on the process exits EXIT_S seconds after the deadline, also while its caller still cleans up.

    Args:
        page: The launched page.
        runs: The runs of the page.
        patience_s: Seconds after `since` that current runs may take; this is the deadline.
        since: Time of the signal in seconds of `time.monotonic()`.
    """
    deadline = since + patience_s
    threading.Thread(target=_exit_at, args=(deadline + EXIT_S,), daemon=True).start()
    log.info("shutting down: %d runs go on, up to %g s to finish", runs.open, patience_s)
    if not runs.close(_until(deadline)) and not runs.wait(_until(deadline + TOLD_S)):
        _tell_who_waits(page)  # a layer of a large model takes longer
    time.sleep(LAST_WORDS_S)
    closing = threading.Thread(target=page.close, kwargs={"verbose": False}, daemon=True)
    closing.start()
    closing.join(CLOSING_S)
    log.info("closed")


def end_process(status: int = 0) -> NoReturn:
    """Exit with this status and end all child processes; no thread is waited for."""
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
    """Return the seconds left until a time of `time.monotonic()`, 0 if it is over."""
    return max(0.0, end - time.monotonic())


def _tell_who_waits(page: gr.Blocks) -> None:
    """Tells all whose answer is not there that none will come."""
    if page.server is None:
        return
    queue = page._queue
    loop = page.server.servers[0].get_loop()
    for session, events in list(queue.pending_event_ids_session.items()):
        if events and (messages := queue.pending_messages_per_session.get(session)):
            told = UnexpectedErrorMessage(message=SHUTTING_DOWN, success=False)
            loop.call_soon_threadsafe(messages.put_nowait, told)
