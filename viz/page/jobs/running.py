"""How a callback runs the model: one at a time, once the model is there, failures as sentences."""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from pine_engine.errors import Cancelled
from viz.page.common.failures import explain
from viz.page.jobs.loading import EngineSource
from viz.page.jobs.presence import listener, stop_if_left, visitor
from viz.page.jobs.queue import Line
from viz.page.jobs.run_log import Run, Runs

if TYPE_CHECKING:  # importing the engine imports torch, which would keep the page waiting
    from pine_engine.engine.engine import Engine

View = TypeVar("View")

MODEL_EVENT: dict[str, Any] = {"concurrency_limit": None}
"""Options of every event that runs the model: it waits in a Line, and not in gradio's queue."""

WAIT_S = 0.8
"""Seconds after which a visitor who waits hears something, and their Stop is heard.

Each word costs the server some milliseconds, and many may wait.
"""

PRIVATE_EVENT: dict[str, Any] = {
    "show_progress": "hidden",
    "show_progress_on": [],
    "api_visibility": "private",
    "queue": False,
}
"""Options of events that only redraw the page: answered at once, past those who wait for the model. Each says
that it shows no progress, and where: gradio spends time on every widget of which it might.

Through the queue an answer could be lost: gradio closes a visitor's stream of answers after each last one,
and an event that joins in that moment has none.
"""

STATE_EVENT: dict[str, Any] = PRIVATE_EVENT | {"queue": True, "concurrency_limit": None}
"""Of those that write a state whose change others follow: past the queue gradio tells nobody of it."""


def run_with_engine(
    source: EngineSource | Callable[[], AbstractContextManager[EngineSource]],
    work: "Callable[[Engine], Generator[View, None, None]]",
    *,
    line: Line,
    runs: Runs,
    run: Run,
    say: Callable[[str], View],
    fail: Callable[[str], View],
    stopped: Callable[[str], View],
) -> Generator[View, None, None]:
    """Yields what work(engine) yields, say(sentence) while it waits for its turn and while the model loads,
    fail(sentence) at a failure.

    source: or a function that leases it, whose failure is said like any other. Ends with stopped(why) if the
    run must end before it is done, and without a word if the visitor has left. Ending or closing this
    generator leaves the line and closes the work, which stops the model.
    """
    try:
        with (
            runs.watched(run),
            nullcontext(source) if isinstance(source, EngineSource) else source() as there,
        ):
            if not there.for_all:
                yield from _until_loaded(there, run, say)  # so that nobody behind this visitor waits for it
            with line.join(visitor(), listener()) as place:
                while not run.over() and (ahead := place.wait(WAIT_S)):
                    stop_if_left()
                    yield say(place.sentence(ahead))
                yield from _until_loaded(there, run, say)
                if not run.over() and (engine := there.wait(0)) is not None:
                    run.start(engine)
                    with closing(work(engine)) as views:
                        for view in views:
                            stop_if_left()
                            if run.over():
                                break
                            yield view
    except Cancelled:
        return
    except Exception as error:
        yield fail(explain(error))
    else:
        if run.why:
            yield stopped(run.why)


def _until_loaded(source: EngineSource, run: Run, say: Callable[[str], View]) -> Generator[View, None, None]:
    while not run.over() and source.wait(WAIT_S) is None:
        yield say(source.status.sentence)
