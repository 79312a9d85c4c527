"""Progress within a layer: its shares, Stop, layers of short prompts, and the times of layers."""

import pytest
import torch

from pine_engine import METHODS, Engine, PrefillProgress
from pine_engine.engine import passes
from pine_engine.errors import Cancelled
from pine_engine.network import layer_progress
from pine_engine.network.thread_tuner import NUM_BASELINE_LAYERS, ThreadTuner, torch_num_threads
from tests.engine.conftest import LAYOUT
from tests.support.families import TinyLlama


@pytest.fixture(scope="module")
def engine(tiny_llama: TinyLlama) -> Engine:
    return Engine(tiny_llama())


@pytest.fixture
def report_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_progress, "MIN_PART_FLOP", 1)
    monkeypatch.setattr(layer_progress, "MIN_PART_S", 0)


def progress_of(engine: Engine, method: str) -> list[tuple[int, float]]:
    events = engine.generate(LAYOUT, methods=method, max_new_tokens=2)
    return [(one.layers_done, one.layer_share) for one in events if isinstance(one, PrefillProgress)]


@pytest.mark.parametrize("method", ["pine", "vanilla", "pcw", "pine_input_order"])
def test_shares_of_a_layer_grow(method: str, engine: Engine, report_all_parts: None) -> None:
    progress = progress_of(engine, method)
    assert progress == sorted(progress) and len(set(progress)) > 4
    assert {layer for layer, share in progress if share} == {0, 1}
    assert all(0 <= share < 1 for _, share in progress)


def test_short_layers_report_their_start_only(engine: Engine) -> None:
    assert progress_of(engine, "pine") == [(0, 0), (1, 0)]


def test_stop_takes_effect_within_a_layer(engine: Engine, report_all_parts: None) -> None:
    layers: list[float] = []

    def stop_in_a_layer(layer: float) -> None:
        layers.append(layer)
        if layer > 1:
            raise Cancelled("stopped")

    options = passes.PassOptions(engine.patched_models, on_layer=stop_in_a_layer)
    with torch.inference_mode(), pytest.raises(Cancelled):
        passes.prefill(LAYOUT, METHODS["pine"], options)
    assert layers.index(1) == len(layers) - 2


def test_other_runs_within_a_layer_are_not_its_time() -> None:
    now, threads = 0.0, list[int]()

    def compute_others(layer: float) -> None:
        nonlocal now
        now += 100 if layer > NUM_BASELINE_LAYERS and layer % 1 else 0

    tuner = ThreadTuner(lambda: now)
    with torch_num_threads(2), tuner.step(2, compute_others) as begin_layer:
        for layer in range(NUM_BASELINE_LAYERS + 3):
            begin_layer(layer)
            now += 1
            begin_layer(layer + 0.5)
            threads.append(torch.get_num_threads())
    assert threads == [1] * NUM_BASELINE_LAYERS + [2] * 3
