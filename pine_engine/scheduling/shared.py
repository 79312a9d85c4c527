"""One computation for equal requests: a generator of views with several subscribers."""

import threading
import time
from collections.abc import Generator
from typing import Any, Generic, TypeVar

View = TypeVar("View")

MAX_VIEWS_PER_S = 40.0
"""Maximum views per second, summed over the subscribers of a run. Each takes the server milliseconds."""

_END = object()


class SharedRun(Generic[View]):
    """Generator of views with subscribers, each in a thread of its own.

    While a subscriber waits for a view, it resumes the generator, unless another subscriber is doing so. A
    subscriber may skip views, but gets the last one. The generator is closed when the last subscriber leaves.

    Args:
        request: Key of equal requests.
        views: Generator of views. The first subscriber is the one that creates the run.
    """

    def __init__(self, request: object, views: Generator[View, None, None]) -> None:
        self.began = time.monotonic()
        self._request = request
        self._views = views
        self._changed = threading.Condition()
        self._num_subscribers = 1
        self._is_open = True  # False once all results are there or the last subscriber has left
        self._is_resumed = False
        self._newest: Any = None
        self._version = 0
        self._has_ended = False
        self._failure: BaseException | None = None

    def subscribe(self, request: object) -> bool:
        """Add a subscriber; return False for another request, and once all results are there."""
        with self._changed:
            is_added = self._is_open and self._request == request
            self._num_subscribers += is_added
            return is_added

    def leave(self) -> None:
        """Remove a subscriber. When the last one leaves, the generator is closed, which stops the model."""
        with self._changed:
            self._num_subscribers -= 1
            is_last = not self._num_subscribers
            self._is_open = self._is_open and not is_last
        if is_last:
            self._views.close()
            self._failure = None  # its frames keep tensors, and form a cycle with it

    def views(self) -> Generator[View, None, None]:
        """Yield views to one subscriber, from the newest one on. Raises the exception of the generator."""
        version, due = 0, 0.0
        while self._has_next(version, due):
            with self._changed:
                version, view = self._version, self._newest
                pause_s = self._num_subscribers / MAX_VIEWS_PER_S if self._num_subscribers > 1 else 0.0
            due = time.monotonic() + pause_s
            yield view

    def _has_next(self, version: int, due: float) -> bool:
        """Compute views until `due` and until one is newer than `version`; return False if none is left."""
        while True:
            with self._changed:
                is_newer = self._version > version
                left_s = due - time.monotonic()
                if is_newer and (left_s <= 0 or self._has_ended):
                    return True
                if self._failure is not None:
                    # Each thread adds its frames to the traceback of an exception.
                    raise _copy_exception(self._failure) from self._failure
                if self._has_ended:
                    return False
                if self._is_resumed:
                    self._changed.wait(left_s if is_newer else None)
                    continue
                self._is_resumed = True
            self._resume()

    def _resume(self) -> None:
        view, failure = _END, None
        try:
            view = next(self._views, _END)
        except BaseException as error:  # raised in the thread of every subscriber
            failure = error
        with self._changed:
            self._is_resumed = False
            if view is _END:
                self._has_ended, self._failure = True, failure
            else:
                self._newest, self._version = view, self._version + 1
            self._is_open = self._is_open and not self._has_ended and not getattr(view, "is_complete", False)
            self._changed.notify_all()
        failure = None  # see leave


def _copy_exception(error: BaseException) -> BaseException:
    """Return an exception of equal class and content. `copy` calls the constructor, which may fail."""
    copied = type(error).__new__(type(error), *error.args)
    copied.__dict__.update(error.__dict__)
    return copied
