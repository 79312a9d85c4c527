"""Models that users select: loaded once, unloaded for others, kept during a run, and only if allowed."""

import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError, ModelError, PineError
from pine_engine.models.embedded import Progress
from pine_engine.models.listing import LoadableModel
from tests.support.api_server import wait_until
from viz.page.jobs.loading import EngineSource
from viz.page.jobs.model_pool import Choice, ModelPool, shown
from viz.page.jobs.sources import Sources

GB = 1_000_000_000
HOST = Choice("host", "float32")
A, B, C = (Choice(name, "float32") for name in ("a", "b", "c"))


@dataclass
class Machine:
    """A machine with so much memory, on which loading takes as long as a test wants.

    sizes: parameters of each model. loaded: what was loaded, in order. gates: loading waits for these.
    """

    memory: int = 10 * GB
    sizes: dict[str, int] = field(default_factory=lambda: {"a": GB, "b": GB, "c": GB})
    loaded: list[Choice] = field(default_factory=list)
    described: list[str] = field(default_factory=list)
    gates: dict[str, threading.Event] = field(default_factory=dict)
    pool: ModelPool | None = None

    def describe(self, name: str) -> LoadableModel:
        self.described.append(name)
        if name not in self.sizes:
            raise ModelError(f"there is no model {name}")
        return LoadableModel(name, "folder", 0, 512, "llama", name != "odd", "it is odd", self.sizes[name])

    def load(self, choice: Choice, progress: Progress) -> Any:
        while choice.name in self.gates and not self.gates[choice.name].wait(0.01):
            progress(0.5, "half of it")
        self.loaded.append(choice)
        return engine(choice)

    def free(self, device: str) -> int:
        """Return the free bytes beside the cached models."""
        assert self.pool is not None
        return self.memory - sum(held.bytes for held in self.pool._cached.values())


def engine(choice: Choice) -> Any:
    """Stands in for an Engine."""
    facts = {"dtype": choice.dtype, "device": "cpu", "max_context_length": 512, "invariance_warning": None}
    return SimpleNamespace(model_name=choice.name, **facts)


def name_of(engine: Engine | None) -> str | None:
    return None if engine is None else engine.model_name


@pytest.fixture
def machine() -> Machine:
    return Machine()


def pool(machine: Machine, allowed: tuple[str, ...] | None = None) -> ModelPool:
    main = EngineSource(lambda: engine(HOST), "host")
    main.start()
    machine.pool = ModelPool(
        HOST,
        main,
        load=machine.load,
        allowed=allowed,
        describe=machine.describe,
        fetch=lambda name, progress: None,
        free=machine.free,
    )
    return machine.pool


def error_of_loading(pool: ModelPool, choice: Choice) -> str:
    with pool.lease(choice) as source, pytest.raises(PineError) as raised:
        source.wait(10)
    return str(raised.value)


def name_after_loading(pool: ModelPool, choice: Choice) -> str:
    with pool.lease(choice) as source:
        engine = source.wait(10)
        assert engine is not None
        return engine.model_name


def test_model_is_loaded_once_per_dtype(machine: Machine) -> None:
    models = pool(machine)
    assert [name_after_loading(models, A) for _ in range(3)] == ["a"] * 3
    name_after_loading(models, Choice("a", "bfloat16"))
    assert machine.loaded == [A, Choice("a", "bfloat16")]
    assert name_of(models.loaded(A)) == "a" and models.loaded(B) is None


def test_choice_of_host_is_its_model(machine: Machine) -> None:
    models = pool(machine)
    assert name_after_loading(models, models.choice("host", "float32")) == "host"
    assert machine.loaded == [] and models.status(HOST) == models.main.status


def test_least_recently_used_model_is_unloaded(machine: Machine) -> None:
    models = pool(machine)  # each of the models needs 4.5 GB, so that two have room
    for choice in (A, B, A, C):
        name_after_loading(models, choice)
    assert models.loaded(B) is None
    assert models.status(B).stage == "away"
    assert "b (float32) was unloaded" in models.status(B).sentence
    assert models.loaded(A) and models.loaded(C)
    assert name_after_loading(models, B) == "b"
    assert [choice.name for choice in machine.loaded] == ["a", "b", "c", "b"]


def test_model_in_use_is_not_unloaded(machine: Machine) -> None:
    models = pool(machine)
    with ExitStack() as runs:
        for choice in (A, B):
            assert runs.enter_context(models.lease(choice)).wait(10)
        assert "needs 4.5 GB in float32, 1.0 GB free (cpu)" in error_of_loading(models, C)
        assert models.loaded(A) and models.loaded(B)
    assert name_after_loading(models, C) == "c"


def test_model_too_large_is_rejected_before_unloading(machine: Machine) -> None:
    machine.sizes["large"] = 4 * GB
    models = pool(machine)
    name_after_loading(models, A)
    message = error_of_loading(models, Choice("large", "float32"))
    assert "needs 16.5 GB in float32, 10.0 GB free (cpu)" in message and "bfloat16 (8.5 GB)" in message
    assert models.loaded(A) and machine.loaded == [A]
    assert name_after_loading(models, Choice("large", "bfloat16")) == "large"


def test_unsupported_model_is_rejected_with_reason(machine: Machine) -> None:
    machine.sizes["odd"] = GB
    models = pool(machine)
    odd = Choice("odd", "float32")
    for _ in range(2):
        assert error_of_loading(models, odd).startswith("Cannot load odd: it is")
    del machine.sizes["odd"]
    assert error_of_loading(models, odd) == "there is no model odd"
    assert machine.loaded == []


def test_loading_shows_progress_and_stops_without_waiters(machine: Machine) -> None:
    machine.gates["a"] = threading.Event()
    models = pool(machine)
    with models.lease(A) as source:
        with models.lease(A) as other:
            assert other is source
            wait_until(lambda: "half of it" in source.status.sentence)
            assert source.status.sentence.startswith("Loading a: half of it (")
        assert source.wait(0.1) is None and source.status.stage == "loading"
    with pytest.raises(PineError, match="cancelled"):
        source.wait(10)
    machine.gates["a"].set()
    assert machine.loaded == [] and name_after_loading(models, A) == "a"


def test_one_model_is_loaded_after_the_other(machine: Machine) -> None:
    machine.gates["a"] = threading.Event()
    models = pool(machine)
    with models.lease(A) as first:
        wait_until(lambda: "half of it" in first.status.sentence)  # of two at once either may be the first
        with models.lease(B) as second:
            wait_until(lambda: "waiting for another model" in second.status.sentence)
            assert second.wait(0.1) is None
            machine.gates["a"].set()
            assert first.wait(10) and second.wait(10)
    assert [choice.name for choice in machine.loaded] == ["a", "b"]


@pytest.mark.parametrize("name", ["b", "/etc/passwd", "~/model.gguf", "", "org/any", "a/../b", "HOST"])
def test_model_not_allowed_is_never_accessed(machine: Machine, name: str) -> None:
    models = pool(machine, allowed=("a",))
    with pytest.raises(InputError, match="Available: host, a."):
        models.choice(name, "float32")
    for touch in (models.about, lambda choice: models.lease(choice).__enter__()):
        with pytest.raises(InputError):
            touch(Choice(name, "float32"))
    assert machine.described == [] and machine.loaded == []
    assert name_after_loading(models, models.choice(" a ", "bfloat16")) == "a"


def test_model_paths_are_hidden_from_users(machine: Machine) -> None:
    machine.sizes["/srv/secret/tiny"] = GB
    models = pool(machine, allowed=("/srv/secret/tiny", "org/model"))
    assert models.allowed == ("host", "tiny", "org/model")
    choice = models.choice("tiny", "float32")
    assert models.about(choice).name == choice.name == "tiny"
    with models.lease(choice) as source:
        assert source.wait(10)
    assert machine.loaded == [Choice("/srv/secret/tiny", "float32")]
    with pytest.raises(InputError):
        models.choice("/srv/secret/tiny", "float32")
    names = ("./a/b", "~/c", "d.gguf", "e", "f/g@v1")
    assert [shown(name) for name in names] == ["b", "c", "d.gguf", "e", "f/g@v1"]


def test_the_host_s_model_comes_first(machine: Machine) -> None:
    gate = threading.Event()
    models = pool(machine)

    def load() -> Any:
        assert gate.wait(10)
        return engine(HOST)

    models.main = EngineSource(load, "host")
    models.main.start()
    with models.lease(A) as source:
        wait_until(lambda: "waiting for the default model" in source.status.sentence)
        assert not models.is_open and machine.described == []
        gate.set()
        assert name_of(source.wait(10)) == "a" and models.is_open


def test_a_precision_that_does_not_exist_is_refused(machine: Machine) -> None:
    with pytest.raises(ModelError, match="dtype 'int4' is not supported"):
        pool(machine).choice("a", "int4")


def test_task_with_own_model_ignores_choice(machine: Machine) -> None:
    models = pool(machine)
    own = EngineSource(lambda: engine(Choice("molecules", "float32")), "molecules")
    sources = Sources(models, {"molecules": own})
    with sources.lease("qm9", A) as source:
        assert source is own
    with sources.lease("judge_pair", A) as source:
        assert name_of(source.wait(10)) == "a"
    assert name_of(sources.now("judge_pair", A)) == "a"
    assert sources.now("judge_pair", B) is None
    assert name_of(sources.now("qm9", A)) == "molecules"
    with sources.lease("judge_pair") as source:
        assert source is models.main
