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
from types import FrameType
from typing import NoReturn

import gradio as gr
from gradio.server_messages import UnexpectedErrorMessage

from viz.page.jobs.run_log import SHUTTING_DOWN, RunLog

log = logging.getLogger("pine_explorer")

TOLD_S = 1.0
"""Longest wait, in seconds, for runs that were told to end: they end within a layer of the model."""

LAST_WORDS_S = 0.3
"""Seconds in which the last sentences still reach the pages."""

CLOSING_S = 0.6
"""Longest wait, in seconds, for the server; whoever keeps their connection open after that loses it."""

LOOK_S = 0.2
"""How often the main thread looks whether the process was told to end."""


def end_signal() -> threading.Event:
    """Set once the process is told to end by SIGTERM or SIGINT, which do nothing else any more."""
    told = threading.Event()

    def tell(number: int, _: FrameType | None) -> None:
        told.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, tell)
    return told


def wait_for_end(told: threading.Event) -> None:
    """Returns once the process was told to end.

    Not one long wait: the system may hand a signal to any thread, and Python answers it in the main thread,
    once that does something again.
    """
    while not told.wait(LOOK_S):
        pass


def shut_down(page: gr.Blocks, runs: RunLog, patience_s: float) -> None:
    """Refuses new runs, gives those that go on so many seconds, tells the rest to end, closes the page.

    Takes at most those seconds and three more.
    """
    log.info("shutting down: %d runs go on, up to %g s to finish", runs.open, patience_s)
    if not runs.close(patience_s) and not runs.wait(TOLD_S):
        _tell_who_waits(page)  # a layer of a large model takes longer
    time.sleep(LAST_WORDS_S)
    closing = threading.Thread(target=page.close, kwargs={"verbose": False}, daemon=True)
    closing.start()
    closing.join(CLOSING_S)
    log.info("closed")


def end_process() -> NoReturn:
    """Ends this process with status 0, and its children; waits for no thread in which something runs."""
    for child in multiprocessing.active_children():
        child.kill()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


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
