"""Ending the process: nothing new begins, what runs may finish or is told, and then the server closes."""

import logging
import signal
import threading
import time
from types import FrameType

import gradio as gr

from viz.page.runs import Runs

log = logging.getLogger("pine_explorer")

TOLD_S = 3.0
"""Longest wait, in seconds, for runs that were told to end: they end within a layer of the model."""

LAST_WORDS_S = 0.5
"""Seconds in which the last sentences still reach the pages."""


LOOK_S = 1.0
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


def shut_down(page: gr.Blocks, runs: Runs, patience_s: float) -> None:
    """Refuses new runs, gives those that go on so many seconds, tells the rest to end, closes the page."""
    log.info("shutting down: %d runs go on, up to %g s to finish", runs.open, patience_s)
    if not runs.close(patience_s):
        runs.wait(TOLD_S)
    time.sleep(LAST_WORDS_S)
    if page.server is not None:
        page.server.config.timeout_graceful_shutdown = 1  # an open page would keep it waiting for ever
    page.close(verbose=False)
    log.info("closed")
