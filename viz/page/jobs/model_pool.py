"""Models that users selected: each is loaded once and unloaded when another one needs the memory.

A run keeps its model. An unloaded model is loaded again when needed. The model of the host always stays.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pine_engine as pine
from pine_engine.errors import InputError, ModelError
from pine_engine.models.dtypes import Dtype, RequestedDtype, known_dtype, resolve_dtype
from pine_engine.models.embedded import Progress
from pine_engine.models.listing import LoadableModel, describe
from pine_engine.models.load import fetch
from pine_engine.models.resources import free_memory, in_words, release_memory
from viz.page.jobs.loading import EngineSource, Status

WAIT_S = 0.5  # seconds between two checks whether a waiting load was cancelled


@dataclass(frozen=True)
class Choice:
    """Model and dtype."""

    name: str  # name for `pine_engine.models.load.load`, or its public form
    dtype: RequestedDtype


@dataclass
class _CachedModel:
    """Loaded model in the pool."""

    source: EngineSource
    users: int = 0  # runs and users that use it or wait for it
    used: float = field(default_factory=time.monotonic)
    """Time of the last use, in seconds of time.monotonic()."""

    bytes: int = 0  # required bytes

    @property
    def is_idle(self) -> bool:
        return not self.users and self.source.status.stage == "ready"


class ModelPool:
    """All models of a page except those of tasks.

    `allowed` lists the models besides that of the host; None for any. Users see only the last part of local
    paths.
    """

    def __init__(
        self,
        host: Choice,
        main: EngineSource,
        *,
        load: "Callable[[Choice, Progress], pine.Engine]",
        device: str = "cpu",
        allowed: Collection[str] | None = None,
        describe: Callable[[str], LoadableModel] = describe,
        fetch: Callable[[str, Progress], None] = fetch,
        free: Callable[[str], int] = free_memory,
    ) -> None:
        self.host = Choice(shown(host.name), host.dtype)
        self.main = main
        self.device = device
        self._named = {shown(name): name for name in (host.name, *(allowed or ()))}
        self.allowed = None if allowed is None else tuple(self._named)
        self._load_engine = load
        self._describe = describe
        self._fetch = fetch
        self._free = free
        self._cached: dict[Choice, _CachedModel] = {}
        self._lock = threading.Lock()
        self._loading = threading.Lock()

    @property
    def is_open(self) -> bool:
        """Check whether the model of the host is loaded or failed; no other model is loaded before.

        Two threads cannot import transformers at once: the waiting one gets an incomplete module.
        """
        return self.main.status.stage != "loading"

    def choice(self, name: str, dtype: str) -> Choice:
        """Return the selected model. Raises PineError if it is not allowed."""
        name = name.strip()
        if self.allowed is not None and name not in self.allowed:
            raise InputError(
                f"Model not allowed on this server. Available: {', '.join(self.allowed)}. "
                "To use other models, run PINE Explorer locally."
            )
        return Choice(name, known_dtype(dtype))

    def about(self, choice: Choice) -> LoadableModel:
        """Return facts about a model before it is loaded. Raises ModelError."""
        choice = self.choice(choice.name, choice.dtype)
        return replace(self._describe(self._named.get(choice.name, choice.name)), name=choice.name)

    def free(self) -> int:
        """Return the bytes that a model can take after others are unloaded."""
        with self._lock:
            return self._free(self.device) + sum(held.bytes for held in self._cached.values() if held.is_idle)

    @contextmanager
    def lease(self, choice: Choice) -> Iterator[EngineSource]:
        """Load the model if necessary and keep it until the block ends.

        A load without users is cancelled. Raises PineError as `choice` does.
        """
        choice = self.choice(choice.name, choice.dtype)
        if choice == self.host:
            yield self.main
            return
        with self._lock:
            held = self._cached.get(choice) or self._add(choice)
            held.users += 1
        held.source.start()
        try:
            yield held.source
        finally:
            with self._lock:
                held.users -= 1
                held.used = time.monotonic()
                if not held.users and held.source.status.stage == "loading":
                    held.source.give_up()
                    self._discard(choice, held)

    def loaded(self, choice: Choice) -> "pine.Engine | None":
        """Return the engine if it is loaded. Raises PineError if the model of the host failed."""
        source = self._source(choice)
        return source.wait(0) if source else None

    def status(self, choice: Choice) -> Status:
        """Return the status of the model."""
        source = self._source(choice)
        if source is None:
            sentence = (
                f"{choice.name} ({choice.dtype}) was unloaded to free memory. Run to reload it, or select "
                "another model."
            )
            return Status("away", sentence)
        return source.status

    def _source(self, choice: Choice) -> EngineSource | None:
        if choice == self.host:
            return self.main
        held = self._cached.get(choice)
        return held.source if held else None

    def _add(self, choice: Choice) -> _CachedModel:
        def load() -> "pine.Engine":
            try:
                return self._load(choice, held)
            except Exception:
                with self._lock:
                    self._discard(choice, held)  # so that the next run tries again
                raise

        held = _CachedModel(EngineSource(load, choice.name, for_all=False))
        self._cached[choice] = held
        return held

    def _discard(self, choice: Choice, held: _CachedModel) -> None:
        if self._cached.get(choice) is held:
            del self._cached[choice]

    def _load(self, choice: Choice, held: _CachedModel) -> "pine.Engine":
        report = held.source.report
        while not self.is_open:
            report(0.0, "waiting for the default model to load")
            time.sleep(WAIT_S)
        model, name = self.about(choice), self._named.get(choice.name, choice.name)
        if not model.supported:
            raise ModelError(f"Cannot load {choice.name}: {model.reason}.")
        dtype = resolve_dtype(choice.dtype, self.device, stored=model.stored)
        if model.memory_bytes(dtype) > (free := self.free()):
            raise ModelError(too_large(model, dtype, free, self.device))
        self._fetch(name, report)
        while not self._loading.acquire(timeout=WAIT_S):
            report(1.0, "waiting for another model to load")
        try:
            self._make_room(model, dtype)
            report(1.0, "reading weights")
            engine = self._load_engine(Choice(name, choice.dtype), report)
            held.bytes = model.memory_bytes(dtype)
            return engine
        finally:
            self._loading.release()

    def _make_room(self, model: LoadableModel, dtype: Dtype) -> None:
        """Unload unused models, least recently used first, until the model fits.

        Raises ModelError if it does not.
        """
        while model.memory_bytes(dtype) > (free := self._free(self.device)):
            with self._lock:
                idle = {choice: held for choice, held in self._cached.items() if held.is_idle}
                if not idle:
                    raise ModelError(too_large(model, dtype, free, self.device))
                del self._cached[min(idle, key=lambda choice: idle[choice].used)]
                idle.clear()
            release_memory(self.device)


def shown(name: str) -> str:
    """Return the public form of a model name: of a path its last part."""
    path = Path(name)
    is_path = path.is_absolute() or name.startswith((".", "~")) or path.suffix == ".gguf"
    return path.name if is_path else name


def too_large(model: LoadableModel, dtype: Dtype, free: int, device: str) -> str:
    """Explain why a model does not fit, with sizes and alternatives."""
    needed, halved = model.memory_bytes(dtype), model.memory_bytes("bfloat16")
    advice = "Select a smaller model."
    if halved < needed and halved <= free:
        advice = f"Select bfloat16 ({in_words(halved)})."
    return (
        f"Not enough memory for {model.name}: needs {in_words(needed)} in {dtype}, {in_words(free)} free "
        f"({device}). {advice}"
    )
