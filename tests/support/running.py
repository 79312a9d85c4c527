"""Runs of the page's jobs, as its buttons begin them."""

from typing import Any

from viz.page.jobs.queue import Line
from viz.page.jobs.run_log import Runs, StopFlag


def one_run(
    stop: StopFlag | None = None, *, most_seconds: float | None = None, line: Line | None = None
) -> dict[str, Any]:
    """What run_with_engine needs of a run, in a process of its own. stop: the visitor's flag."""
    runs = Runs(most_seconds)
    return {"line": line or Line(0), "runs": runs, "run": runs.new("compare", ["pine"], stop)}
