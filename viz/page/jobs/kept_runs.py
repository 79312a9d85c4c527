"""Runs that outlive the connection of their page: a browser that returns finds its run by its key."""

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any

from pine_engine.errors import Cancelled
from pine_engine.scheduling.run_state import End, RunState
from pine_engine.scheduling.runs import Caller

KEPT_S = 600.0
"""Seconds for which a run without a page is computed, and for which its result is kept."""

YIELD_S = 10.0
"""Seconds without a page, such as for a reload, after which a run is stopped if other runs wait."""

GAVE_UP = (
    "Stopped: this page was closed or disconnected, and other visitors waited for the model. Run again for "
    "the rest."
)

MAX_KEPT = 20  # runs, each with its result

UPDATE_S = 0.1
"""Least time between two updates of a page, in seconds per run that is shown: all pages share one rate."""

_KEY = re.compile("[0-9a-f]{32}")  # random, created by the browser

Submit = Callable[[Caller], tuple[RunState, Generator[Any, None, None]]]


class KeptRun:
    """Run that a thread computes; pages follow its steps one after the other.

    Args:
        press: Widgets and job with which a page shows the run.
        submit: Return the run of a caller, and its steps.
        caller: Caller of the first page.
        must_yield: Return True if this run without a page has to be stopped for one that waits.
        num_shown: Return the number of computed runs that pages show.
    """

    def __init__(
        self,
        press: Any,
        submit: Submit,
        caller: Caller,
        must_yield: Callable[["KeptRun"], bool],
        num_shown: Callable[[], int],
    ) -> None:
        self.press = press
        self._must_yield = must_yield
        self._num_shown = num_shown
        self._changed = threading.Condition()
        self._num_pages = 0
        self._unheard_since = time.monotonic()
        self._is_dropped = self._has_ended = False
        self._newest: Any = None
        self._num_steps = 0
        self._failure: Exception | None = None
        self.state, self._steps = submit(Caller(caller.client, lambda: self._num_pages > 0, self._check))

    def keep(self) -> None:
        """Compute the run, then wait until its result is dropped or has been kept for `KEPT_S`."""
        try:
            for step in self._steps:
                with self._changed:
                    self._newest, self._num_steps = step, self._num_steps + 1
                    self._changed.notify_all()
        except Exception as error:
            self._failure = error.with_traceback(None)  # its frames keep tensors
        finally:
            with self._changed:
                self._has_ended = True
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._is_dropped, KEPT_S)

    def drop(self) -> None:
        """Stop the run and release its result, once no page follows it."""
        with self._changed:
            self._is_dropped = True
            self._changed.notify_all()

    def follow(self, caller: Caller) -> Generator[Any, None, None]:
        """Yield the steps from the newest one on, while the caller is there. Raises the error of the run."""
        num_seen = 0
        with self._page():
            while self._has_newer(num_seen):
                with self._changed:
                    num_seen, step = self._num_steps, self._newest
                yield step
                try:
                    caller.check()
                except Cancelled:
                    return
                pause_s = UPDATE_S * (self._num_shown() - 1)  # none for a single run
                with self._changed:
                    self._changed.wait_for(lambda: self._has_ended, pause_s)
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    @property
    def is_shown(self) -> bool:
        """True for a run that is being computed while a page shows it."""
        return bool(self.state.model and self._num_pages) and not self._has_ended

    @property
    def abandoned_s(self) -> float:
        """Seconds without a page, for a run that is being computed; 0 for other runs, and with a page."""
        has_place = self.state.model and not self.state.is_follower and not self._has_ended
        return time.monotonic() - self._unheard_since if has_place and not self._num_pages else 0.0

    def _has_newer(self, num_seen: int) -> bool:
        """Wait for a step after these; return False if the run has ended without one."""
        with self._changed:
            self._changed.wait_for(lambda: self._num_steps > num_seen or self._has_ended)
            return self._num_steps > num_seen

    def _check(self) -> None:
        """Raise Cancelled if the run has no page and is not to be computed to its end."""
        if self._num_pages:
            return
        if self._is_dropped or time.monotonic() - self._unheard_since > KEPT_S:
            raise Cancelled("the page did not come back")
        if self.abandoned_s > YIELD_S and self._must_yield(self):
            self.state.end = End("disconnected", GAVE_UP)
            raise Cancelled("others waited")

    @contextmanager
    def _page(self) -> Generator[None, None, None]:
        with self._changed:
            self._num_pages += 1
        try:
            yield
        finally:
            with self._changed:
                self._num_pages -= 1
                self._unheard_since = time.monotonic()


class KeptRuns:
    """Last run of each browser, by its key.

    Args:
        is_awaited: Return True if a run waits for the place of another one.
    """

    def __init__(self, is_awaited: Callable[[], bool] = lambda: False) -> None:
        self._is_awaited = is_awaited
        self._runs: OrderedDict[str, KeptRun] = OrderedDict()
        self._lock = threading.Lock()

    def start(
        self, key: str, press: Any, submit: Submit, caller: Caller
    ) -> tuple[RunState, Generator[Any, None, None]]:
        """Return a new run and its steps. It replaces the last run of this key.

        Without a valid key, or without an open page, the run ends with the connection of the caller.
        """
        if not caller.client.page or not _KEY.fullmatch(key):
            return submit(caller)
        run = KeptRun(press, submit, caller, self._must_yield, self._num_shown)
        with self._lock:
            if earlier := self._runs.pop(key, None):
                earlier.drop()
            self._runs[key] = run
            if len(self._runs) > MAX_KEPT:
                self._runs.popitem(last=False)[1].drop()
        # With the context of the page: ZeroGPU takes the visitor from it.
        threading.Thread(target=copy_context().run, args=(self._keep, key, run), daemon=True).start()
        return run.state, run.follow(caller)

    def find(self, key: str) -> KeptRun | None:
        """Return the last run of a browser; None for an unknown key."""
        with self._lock:
            return self._runs.get(key)

    def _must_yield(self, run: KeptRun) -> bool:
        """Return True if runs wait, and no run has been without a page for longer than this one."""
        with self._lock:
            longest = max(self._runs.values(), key=lambda one: one.abandoned_s, default=run)
        return longest is run and self._is_awaited()

    def _num_shown(self) -> int:
        with self._lock:
            return sum(run.is_shown for run in self._runs.values())

    def _keep(self, key: str, run: KeptRun) -> None:
        run.keep()
        with self._lock:
            if self._runs.get(key) is run:
                del self._runs[key]
