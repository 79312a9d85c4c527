"""How a callback runs the model: one at a time, once the model is there, failures as sentences."""

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from viz.page.failures import explain
from viz.page.line import Line
from viz.page.presence import visitor_left
from viz.page.source import EngineSource

if TYPE_CHECKING:  # importing the engine imports torch, which would keep the page waiting
    from pine_engine.engine import Engine

View = TypeVar("View")

MODEL_EVENT: dict[str, Any] = {"concurrency_limit": None}
"""Options of every event that runs the model: it waits in a Line, and not in gradio's queue."""

WAIT_S = 0.5
"""Seconds after which a visitor who waits hears something, and his Stop is heard."""

PRIVATE_EVENT: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "queue": False}
"""Options of events that only redraw the page: answered at once, past those who wait for the model.

Through the queue an answer could be lost: gradio closes a visitor's stream of answers after each last one,
and an event that joins in that moment has none.
"""

STATE_EVENT: dict[str, Any] = PRIVATE_EVENT | {"queue": True, "concurrency_limit": None}
"""Options of those that write a state whose change others follow: past the queue gradio tells nobody."""


@dataclass
class StopFlag:
    """Whether the visitor pressed Stop: written by the Stop button, read by the run, one per session.

    gradio can cancel an event by itself, but then the page hears that it ended before the model has
    stopped, and now and then that it failed. A run that ends itself says when it has.
    """

    requested: bool = False


def run_with_engine(
    source: EngineSource | Callable[[], EngineSource],
    work: "Callable[[Engine], Generator[View, None, None]]",
    *,
    line: Line,
    stop: StopFlag,
    say: Callable[[str], View],
    fail: Callable[[str], View],
    stopped: Callable[[], View],
) -> Generator[View, None, None]:
    """Yields what work(engine) yields, say(sentence) while it waits for its turn and while the model loads,
    fail(sentence) at a failure.

    source: or a function that finds it, whose failure is said like any other. Ends with stopped() once stop
    is requested, and without a word if the visitor has left. Ending or closing this generator leaves the line
    and closes the work, which stops the model.
    """
    stop.requested = False
    try:
        source = source if isinstance(source, EngineSource) else source()
        with line.join() as place:
            while (ahead := place.wait(WAIT_S)) and not stop.requested:
                yield say(place.sentence(ahead))
            engine = None
            while not stop.requested and (engine := source.wait(WAIT_S)) is None:
                yield say(source.status.sentence)
            if engine is not None:
                with closing(work(engine)) as views:
                    for view in views:
                        if stop.requested or visitor_left():
                            break
                        yield view
        if stop.requested:
            yield stopped()
    except Exception as error:
        yield fail(explain(error))
