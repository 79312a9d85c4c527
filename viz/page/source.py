"""Where the page gets its engine: loaded once, in a background thread, while the page is already served."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pine_engine.errors import PineError

if TYPE_CHECKING:  # importing the engine imports torch, which would keep the page waiting
    from pine_engine.engine import Engine

log = logging.getLogger(__name__)

Stage = Literal["loading", "ready", "failed"]


@dataclass(frozen=True)
class Status:
    """How far the model is, and a sentence about it for the reader."""

    stage: Stage
    sentence: str


class EngineSource:
    """Loads one engine in a background thread and hands it out.

    load: makes the engine; runs in the thread. name: what the page calls the model meanwhile.
    """

    def __init__(self, load: "Callable[[], Engine]", name: str) -> None:
        self._load = load
        self._name = name
        self._settled = threading.Event()
        self._engine: Engine | None = None
        self._failure = ""
        self._started = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="load-model", daemon=True)

    def start(self) -> None:
        """Starts loading; returns at once. Call it once."""
        self._started = time.monotonic()
        self._thread.start()

    def wait(self, seconds: float) -> "Engine | None":
        """The engine, or None if it is still loading after so many seconds.

        Raises PineError if it could not be loaded.
        """
        self._settled.wait(seconds)
        if self._failure:
            raise PineError(self._failure)
        return self._engine

    @property
    def status(self) -> Status:
        """How far the model is now."""
        if self._failure:
            return Status("failed", self._failure)
        if self._engine is not None:
            engine = self._engine
            sentence = (
                f"{engine.model_name} · {engine.dtype} · {engine.device} · {engine.max_context:,} tokens"
            )
            return Status("ready", sentence)
        seconds = int(time.monotonic() - self._started)
        return Status("loading", f"Loading {self._name} ({seconds} s). You can write and press Run already.")

    def _run(self) -> None:
        try:
            self._engine = self._load()
        except PineError as error:
            self._failure = str(error)
        except Exception as error:
            log.exception("the model could not be loaded")
            self._failure = (
                f"The model {self._name} could not be loaded ({type(error).__name__}). "
                "The log of the server says why; restart it with another model."
            )
        finally:
            self._settled.set()
