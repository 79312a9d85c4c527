"""Shutdown of the server: signals, a deadline for active runs, and the end of the process."""

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

from pine_engine.scheduling.run_state import SHUTTING_DOWN
from pine_engine.scheduling.runs import Runs
from viz.page.serving.event_queue import send_to_waiting

log = logging.getLogger("pine_explorer")

STOP_S = 0.5  # seconds for stopped runs to end: a model layer
LAST_MESSAGES_S = 0.3  # seconds for the last messages to reach the pages
CLOSING_S = 0.2  # maximum seconds for the server to close
EXIT_S = 1.2  # seconds after the deadline at which the process exits in any case; docs/hosting.md states 3 s
POLL_S = 0.2  # seconds between two checks for a signal


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
            return received.get(timeout=POLL_S)


def shut_down(page: gr.Blocks, runs: Runs, timeout_s: float, *, since: float) -> None:
    """Reject new runs, let active ones finish until a deadline, stop the rest and close the page.

    Every wait is bounded, because `docker stop` kills after 10 s: the process exits EXIT_S seconds after the
    deadline in any case. `since` is the time of the signal.
    """
    deadline = since + timeout_s
    exiting = threading.Timer(_until(deadline + EXIT_S), end_process)
    exiting.daemon = True
    exiting.start()
    log.info("Shutting down: waiting for %d active runs, up to %g s", runs.num_open, timeout_s)
    if not runs.close(_until(deadline)) and not runs.wait(_until(deadline + STOP_S)):
        send_to_waiting(page, SHUTTING_DOWN)  # a layer of a large model takes longer
    time.sleep(LAST_MESSAGES_S)
    closing = threading.Thread(target=page.close, kwargs={"verbose": False}, daemon=True)
    closing.start()
    closing.join(CLOSING_S)
    log.info("closed")


def end_process() -> NoReturn:
    """Exit with status 0 and end all child processes, without waiting for threads."""
    for child in multiprocessing.active_children():
        child.kill()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _until(end: float) -> float:
    """Return the seconds until a time of `time.monotonic()`, at least 0."""
    return max(0.0, end - time.monotonic())
