"""Run of a button or an endpoint: LoggedRun -> FairQueue -> EngineSource -> compute(work) -> views."""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing
from typing import TYPE_CHECKING, TypeVar

from pine_engine.errors import Cancelled
from viz.page.common.failures import explain
from viz.page.jobs.connection_tracker import current_client, listener_check, stop_if_disconnected
from viz.page.jobs.cost import Work
from viz.page.jobs.loading import EngineSource
from viz.page.jobs.run_log import LoggedRun
from viz.page.jobs.sources import Sources
from viz.page.jobs.zerogpu import compute

if TYPE_CHECKING:  # importing the engine imports torch, which would keep the page waiting
    from pine_engine.engine.engine import Engine

View = TypeVar("View")
Shown = TypeVar("Shown")

WAIT_S = 0.8
"""Seconds between two messages to a waiting client, which cost the server some milliseconds each."""


def run_on_model(
    sources: Sources,
    run: LoggedRun,
    lease: Callable[[], AbstractContextManager[EngineSource]],
    work: "Callable[[Engine], Generator[View, None, None]]",
    *,
    plan: "Callable[[Engine], Work]",
    say: Callable[[str], Shown],
    show: Callable[[View], Shown],
    keep: Callable[[View], None] = lambda view: None,
) -> Generator[Shown, None, None]:
    """Yield say(sentence) while the run waits, then show(view) of each view.

    `failure` or `why` of the run tell its outcome; without both it is done or has no client. Closing the
    generator leaves the queue and stops the model.
    """
    try:
        with sources.runs.watched(run), lease() as source:
            if not source.for_all:
                yield from _until_loaded(
                    source, run, say
                )  # before the queue, so that later runs do not wait for it
            with sources.queue.join(current_client(), listener_check()) as ticket:
                while not run.over() and (ahead := ticket.wait(WAIT_S)):
                    stop_if_disconnected()
                    yield say(ticket.sentence(ahead))
                yield from _until_loaded(source, run, say)
                engine = None if run.over() else source.wait(0)
                if engine is None:
                    return
                run.start(engine)
                with closing(compute(engine, work, plan=plan)) as views:
                    for view in views:
                        shown = show(view)
                        stop_if_disconnected()
                        if run.over():
                            return
                        yield shown
                        keep(view)
    except Cancelled:
        return
    except Exception as error:
        run.failure = explain(error)


def _until_loaded(
    source: EngineSource, run: LoggedRun, say: Callable[[str], Shown]
) -> Generator[Shown, None, None]:
    while not run.over() and source.wait(WAIT_S) is None:
        stop_if_disconnected()
        yield say(source.status.sentence)
