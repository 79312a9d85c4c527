"""Models that users select: one is loaded beside that of the host, kept during a run, and only if allowed."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from pine_engine.backend import Backend
from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError, ModelError, PineError
from pine_engine.models.embedded import Progress
from pine_engine.models.listing import LoadableModel
from tests.support.api_server import wait_until
from viz.page.jobs import sources as sources_module
from viz.page.jobs.loader import EngineSource
from viz.page.jobs.sources import Choice, Sources, shown

GB = 1_000_000_000
TASK = "judge"
HOST = Choice("host", "float32")
A, B = (Choice(name, "float32") for name in "ab")


@dataclass
class Machine:
    """A machine with so much memory, on which loading takes as long as a test wants.

    sizes: parameters of each model. loaded: what was loaded, in order. gates: loading waits for these.
    """

    memory: int = 10 * GB
    sizes: dict[str, int] = field(default_factory=lambda: {"a": GB, "b": GB})
    loaded: list[Choice] = field(default_factory=list)
    described: list[str] = field(default_factory=list)
    gates: dict[str, threading.Event] = field(default_factory=dict)
    sources: Sources | None = None

    def describe(self, name: str) -> LoadableModel:
        self.described.append(name)
        if name not in self.sizes:
            raise ModelError(f"there is no model {name}")
        return LoadableModel(name, "folder", 0, 512, "llama", name != "odd", "it is odd", self.sizes[name])

    def load(self, name: str, *, dtype: Any, device: str, progress: Progress) -> Any:
        while name in self.gates and not self.gates[name].wait(0.01):
            progress(0.5, "half of it")
        self.loaded.append(Choice(name, dtype))
        return engine(self.loaded[-1])

    def free(self, device: str) -> int:
        """Return the free bytes beside the loaded model."""
        assert self.sources is not None
        return self.memory - sum(other.bytes for other in self.sources._others.values())


def engine(choice: Choice) -> Any:
    """Return a record with the facts of an engine that the page shows."""
    facts = {"dtype": choice.dtype, "device": "cpu", "max_context_length": 512}
    return SimpleNamespace(
        model_name=choice.name, invariance_warning=None, meets="placement", misfit=lambda _: None, **facts
    )


def name_of(engine: Backend | None) -> str | None:
    return None if engine is None else engine.model_name


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(Engine, "load", machine.load)
    monkeypatch.setattr(sources_module, "describe", machine.describe)
    monkeypatch.setattr(sources_module, "fetch", lambda name, progress: None)
    monkeypatch.setattr(sources_module, "free_memory", machine.free)
    return machine


def sources_on(machine: Machine, allowed: tuple[str, ...] | None = None) -> Sources:
    main = EngineSource(lambda: engine(HOST), "host")
    main.start()
    own = EngineSource(lambda: engine(Choice("molecules", "float32")), "molecules")
    machine.sources = Sources(HOST, main, {"molecules": own}, allowed=allowed)
    return machine.sources


def load(sources: Sources, choice: Choice) -> str | None:
    with sources.lease(TASK, choice) as source:
        return name_of(source.wait(10))


def error_of(wait: Callable[..., Any], *arguments: Any) -> str:
    with pytest.raises(PineError) as raised:
        wait(*arguments)
    return str(raised.value)


@pytest.mark.parametrize(
    ("error", "for_all", "logged", "message"),
    [
        (ModelError("folder m has no weights"), True, "folder m has no weights", "folder m has no weights"),
        (ModelError("folder m has no weights"), False, "", "folder m has no weights"),  # a visitor typed m
        (RuntimeError("secret"), True, "secret", "Failed to load m (RuntimeError)."),
    ],
)
def test_failed_load_has_a_message_and_is_logged(
    error: Exception, for_all: bool, logged: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    source = EngineSource(Mock(side_effect=error), "m", for_all=for_all)
    source.start()
    raised = error_of(source.wait, 10)
    assert raised.startswith(message) and "secret" not in raised and source.status.stage == "failed"
    assert logged in caplog.text and ("weights" in caplog.text) == (for_all and "weights" in message)


def test_model_is_loaded_once_and_replaces_the_other(machine: Machine) -> None:
    sources = sources_on(machine)
    assert [load(sources, A) for _ in range(3)] == ["a"] * 3 and machine.loaded == [A]
    assert name_of(sources.now(TASK, A)) == "a" and sources.now(TASK, B) is None
    other = Choice("a", "bfloat16")
    assert load(sources, other) == "a" and machine.loaded == [A, other]
    assert sources.status(A).stage == "away" and "a (float32) was unloaded" in sources.status(A).sentence
    assert load(sources, A) == "a" and machine.loaded == [A, other, A]


def test_model_waits_until_no_run_uses_the_other(machine: Machine) -> None:
    sources = sources_on(machine)
    with sources.lease(TASK, A) as first:
        assert first.wait(10)
        with sources.lease(TASK, B) as second:
            wait_until(lambda: "waiting for the runs of another model" in second.status.sentence)
            assert name_of(sources.now(TASK, A)) == "a" and machine.loaded == [A]
        assert "cancelled" in error_of(second.wait, 10)
    assert load(sources, B) == "b" and sources.now(TASK, A) is None


def test_one_model_is_loaded_after_the_other(machine: Machine) -> None:
    machine.gates["a"] = threading.Event()
    sources = sources_on(machine)
    with sources.lease(TASK, A) as first:
        wait_until(lambda: "half of it" in first.status.sentence)
        with sources.lease(TASK, B) as second:
            wait_until(lambda: "waiting for another model to load" in second.status.sentence)
            machine.gates["a"].set()
            assert first.wait(10) and second.wait(0.1) is None
    assert machine.loaded == [A]


def test_choice_of_host_is_its_model(machine: Machine) -> None:
    sources = sources_on(machine)
    assert load(sources, sources.choice("host", "float32")) == "host"
    assert machine.loaded == [] and sources.status(None) == sources.main.status
    assert sources.main.status.sentence.startswith("host · float32 · cpu · 512")
    with sources.lease(TASK) as source:
        assert source is sources.main


def test_model_too_large_is_rejected_before_unloading(machine: Machine) -> None:
    machine.sizes["large"] = 4 * GB
    sources = sources_on(machine)
    load(sources, A)
    message = error_of(load, sources, Choice("large", "float32"))
    assert "needs 16.5 GB in float32, 10.0 GB free (cpu)" in message and "bfloat16 (8.5 GB)" in message
    assert sources.now(TASK, A) and machine.loaded == [A]
    assert load(sources, Choice("large", "bfloat16")) == "large"


def test_unsupported_model_is_rejected_with_reason(machine: Machine) -> None:
    machine.sizes["odd"] = GB
    sources, odd = sources_on(machine), Choice("odd", "float32")
    for _ in range(2):
        assert error_of(load, sources, odd).startswith("Cannot load odd: it is")
    del machine.sizes["odd"]
    assert error_of(load, sources, odd) == "there is no model odd"
    with pytest.raises(ModelError, match="dtype 'int4' is not supported"):
        sources.choice("a", "int4")
    assert machine.loaded == []


def test_load_without_waiters_is_cancelled(machine: Machine) -> None:
    machine.gates["a"] = threading.Event()
    sources = sources_on(machine)
    with sources.lease(TASK, A) as source:
        with sources.lease(TASK, A) as other:
            assert other is source
            wait_until(lambda: source.status.sentence.startswith("Loading a: half of it ("))
        assert source.wait(0.1) is None and source.status.stage == "loading"
    assert "cancelled" in error_of(source.wait, 10)
    machine.gates["a"].set()
    assert machine.loaded == [] and load(sources, A) == "a"


def test_model_not_allowed_is_never_accessed(machine: Machine) -> None:
    sources = sources_on(machine, allowed=("a",))
    for name in ("b", "/etc/passwd", "~/model.gguf", "", "org/any", "a/../b", "HOST"):
        with pytest.raises(InputError, match="Available: host, a."):
            sources.choice(name, "float32")
        for touch in (sources.about, lambda choice: sources.lease(TASK, choice).__enter__()):
            with pytest.raises(InputError):
                touch(Choice(name, "float32"))
    assert machine.described == [] and machine.loaded == []
    assert load(sources, sources.choice(" a ", "bfloat16")) == "a"


def test_model_paths_are_hidden_from_users(machine: Machine) -> None:
    machine.sizes["/srv/secret/tiny"] = GB
    sources = sources_on(machine, allowed=("/srv/secret/tiny", "org/model"))
    assert sources.allowed == ("host", "tiny", "org/model")
    choice = sources.choice("tiny", "float32")
    assert sources.about(choice).name == choice.name == "tiny"
    load(sources, choice)
    assert machine.loaded == [Choice("/srv/secret/tiny", "float32")]
    with pytest.raises(InputError):
        sources.choice("/srv/secret/tiny", "float32")
    names = ("./a/b", "~/c", "d.gguf", "e", "f/g@v1")
    assert [shown(name) for name in names] == ["b", "c", "d.gguf", "e", "f/g@v1"]


def test_model_of_the_host_is_loaded_first(machine: Machine) -> None:
    gate = threading.Event()
    sources = sources_on(machine)

    def load_host() -> Any:
        assert gate.wait(10)
        return engine(HOST)

    sources.main = EngineSource(load_host, "host")
    sources.main.start()
    with sources.lease(TASK, A) as source:
        wait_until(lambda: "waiting for the default model" in source.status.sentence)
        assert machine.described == []
        gate.set()
        assert name_of(source.wait(10)) == "a"


def test_task_with_own_model_ignores_choice(machine: Machine) -> None:
    sources = sources_on(machine)
    with sources.lease("qm9", A) as source:
        assert name_of(source.wait(10)) == "molecules" and sources.now("qm9", A) is source.wait(0)
    assert machine.loaded == []
