"""Routes of the server (health, metrics, plotly.js), its sessions, escaped output, and shutdown."""

import logging
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from types import SimpleNamespace
from typing import Any, NoReturn, TextIO

import gradio as gr
from gradio.server_messages import UnexpectedErrorMessage
from gradio.state_holder import SessionState, StateHolder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from pine_engine.scheduling.runs import SHUTTING_DOWN, Runs
from pine_engine.web.health import health_record, metrics_text
from viz.page.common.widgets import PLOTLY, PLOTLY_ADDRESS
from viz.page.jobs.connection_tracker import ConnectionTracker
from viz.page.jobs.sources import Sources
from viz.page.serving.open_graph import CARD, CARD_ADDRESS

log = logging.getLogger("pine_explorer")

STOP_S = 0.5  # seconds for stopped runs to end: a model layer
LAST_MESSAGES_S = 0.3  # seconds for the last messages to reach the pages
CLOSING_S = 0.2  # maximum seconds for the server to close
EXIT_S = 1.2  # seconds after the deadline at which the process exits in any case; docs/hosting.md states 3 s
POLL_S = 0.2  # seconds between two checks for a signal


def add_routes(app: Starlette, sources: Sources, num_sessions: Callable[[], int]) -> None:
    """Add /health, /metrics and plotly.js before the routes of gradio, which match any path."""
    began, runs = time.monotonic(), sources.runs

    async def health(_: Request) -> Response:
        stage = sources.main.status.stage
        record = health_record(stage, sources.main.model_name, runs, time.monotonic() - began)
        return JSONResponse(record, 200 if stage == "ready" else 503)

    async def metrics(_: Request) -> Response:
        gauges = {
            "ready": int(sources.main.status.stage == "ready"),
            "uptime_seconds": round(time.monotonic() - began, 1),
            "running": runs.num_running,
            "waiting": runs.queue.waiting,
            "sessions": num_sessions(),
        }
        return PlainTextResponse(metrics_text(gauges, {"runs": ("outcome", runs.outcomes)}))

    routes: dict[str, Callable[[Request], Any]] = {
        "/health": health,
        "/metrics": metrics,
        PLOTLY_ADDRESS: lambda _: FileResponse(PLOTLY),
        CARD_ADDRESS: lambda _: FileResponse(CARD),
    }
    app.router.routes[:0] = [Route(path, answer) for path, answer in routes.items()]


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
        _notify_waiting(page)  # a layer of a large model takes longer
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


def _notify_waiting(page: gr.Blocks) -> None:
    """Send a message to all clients that wait for an answer."""
    if page.server is None:
        return
    queue = page._queue
    loop = page.server.servers[0].get_loop()
    for session, events in list(queue.pending_event_ids_session.items()):
        if events and (messages := queue.pending_messages_per_session.get(session)):
            message = UnexpectedErrorMessage(message=SHUTTING_DOWN, success=False)
            loop.call_soon_threadsafe(messages.put_nowait, message)


# Escaped output

CONTINUATION = "| "  # prefix of each line except the first of one write


def escaped(text: str) -> str:
    """Escape unprintable characters except newlines and tabs; continuation lines get CONTINUATION."""
    body = text.lstrip("\n")
    shown = "".join(
        character if character.isprintable() or character in "\n\t" else ascii(character)[1:-1]
        for character in body
    )
    return text[: len(text) - len(body)] + re.sub(r"\n(?=[^\n])", f"\n{CONTINUATION}", shown)


def escape_output(*streams: TextIO) -> None:
    """Escape all text that streams receive from now on: logs, prints and tracebacks of all packages."""
    for stream in streams:
        vars(stream)["write"] = partial(_write, stream.write)


def _write(write: Callable[[str], int], text: str) -> int:
    write(escaped(text))
    return len(text)


# Sessions

MAX_CLOSED = 100
"""Sessions without an open page that are kept, such as of a suspended tab or of a page that is opening."""


class CompactSession(SessionState):
    """Session of gradio without the description of every widget: saves 0.75 MB and 0.1 s per user."""

    def __init__(self, blocks: gr.Blocks) -> None:
        nothing_to_describe: Any = SimpleNamespace(default_config=blocks.default_config, blocks=())
        super().__init__(nothing_to_describe)


class Sessions(StateHolder):
    """Sessions of gradio, which evicts the least recently used one, also that of a reader.

    A script can invent sessions; here they evict each other, not those of open pages.
    """

    def __init__(self, connections: ConnectionTracker) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # gradio does not annotate it
        self._connections = connections

    def __getitem__(self, session_id: str) -> SessionState:
        if session_id not in self.session_data:
            self.session_data[session_id] = CompactSession(self.blocks)
        return super().__getitem__(session_id)

    def update(self, session_id: str) -> None:
        """Mark a session as used, and evict those beyond the limits."""
        with self.lock:
            if session_id in self.session_data:
                self.session_data.move_to_end(session_id)
        names = list(reversed(self.session_data))
        closed = [name for name in names if not self._is_in_use(name)]
        for name in {*closed[MAX_CLOSED:], *names[self.capacity :]}:
            self.delete_state(name)  # its files too
            with self.lock:
                self.session_data.pop(name, None)
                self.time_last_used.pop(name, None)
            self.blocks._queue.pending_event_ids_session.pop(name, None)
            self.blocks._queue.pending_messages_per_session.pop(name, None)

    def _is_in_use(self, name: str) -> bool:
        """Check whether a session has an open page, or an event that waits or runs."""
        queue = self.blocks._queue
        events = queue.pending_event_ids_session.get(name, ())
        return self._connections.has_page(name) or any(event in queue.event_ids_to_events for event in events)


def release_results(page: gr.Blocks, results: Sequence[gr.State], request: gr.Request) -> None:
    """Release the results of a page that was closed."""
    if session := page.state_holder.session_data.get(request.session_hash or ""):
        for state in results:
            session.state_data.pop(state._id, None)
