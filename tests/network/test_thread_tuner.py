"""Number of threads: the faster choice is used, under changing contention, and never changes a logit."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

from pine_engine import Engine, TokenLayout
from pine_engine.attention.ranked import RankedAttention
from pine_engine.network.batch_invariant_ops import is_batch_invariant
from pine_engine.network.registration import LayerInput
from pine_engine.network.thread_tuner import (
    MAX_SINGLE_THREAD_PROMPT,
    NUM_BASELINE_LAYERS,
    NUM_TRIAL_LAYERS,
    ContentionMonitor,
    ThreadPolicy,
    ThreadTuner,
    attention_threads,
    torch_num_threads,
)
from tests.support.families import TinyLlama
from tests.support.forward import prefill_logits

FREE = {True: 0.006, False: 0.008}
BUSY = {True: 0.060, False: 0.008}
"""Seconds of a layer with all threads and with one, as measured on two cores."""

SHORT = TokenLayout((5, 9, 3), ((11, 12, 13), (21, 22), (31, 32, 33, 34)), (51, 52))
LONG = TokenLayout((5,) * MAX_SINGLE_THREAD_PROMPT, ((1, 2), (3, 4)), (7,))


@pytest.fixture
def two_threads() -> Iterator[None]:
    with torch_num_threads(2):
        yield


class Machine:
    """Simulated machine on which layers take fixed times with all threads and with one."""

    def __init__(self) -> None:
        self.now = 0.0
        self.monitor = ContentionMonitor()

    def compute(self, policy: ThreadPolicy, num_layers: int, *seconds: dict[bool, float]) -> Sequence[bool]:
        """Return for each layer True if it was computed with all threads."""
        choices = []
        for times in itertools.islice(itertools.cycle(seconds), num_layers):
            choices.append(policy.should_use_all(self.now))
            self.now += times[choices[-1]]
            policy.record(choices[-1], times[choices[-1]], self.now)
        return choices


@pytest.mark.parametrize("busy", [[BUSY], [FREE, FREE, FREE, BUSY]], ids=["always", "every fourth layer"])
def test_contention_costs_little_and_free_cores_are_used(busy: list[dict[bool, float]]) -> None:
    machine = Machine()
    policy = ThreadPolicy(machine.monitor)
    choices = machine.compute(policy, 3000, FREE)
    assert choices == [False] * NUM_BASELINE_LAYERS + [True] * (3000 - NUM_BASELINE_LAYERS)
    started = machine.now
    machine.compute(policy, 1000, *busy)
    assert machine.now - started <= 1.1 * 1000 * BUSY[False]
    assert all(machine.compute(policy, 3000, FREE)[-1500:])


def test_contention_is_shared_by_all_kinds_of_layers() -> None:
    machine = Machine()
    first, second = ThreadPolicy(machine.monitor), ThreadPolicy(machine.monitor)
    for policy in (first, second):
        machine.compute(policy, 100, FREE)
    machine.compute(first, 1, BUSY)
    assert machine.compute(second, 10, BUSY) == [False] * 10


def test_trials_without_gain_become_rare() -> None:
    machine = Machine()
    choices = machine.compute(ThreadPolicy(machine.monitor), 10_000, {True: 0.0062, False: 0.006})
    # At the start; after 200, 400, 800, 1600, and from then on 3200 layers.
    assert sum(choices) == 7 * NUM_TRIAL_LAYERS


def test_trial_with_gain_resets_pause_and_interval() -> None:
    machine = Machine()
    policy = ThreadPolicy(machine.monitor)
    machine.compute(policy, 1000, {True: 0.0062, False: 0.006})
    machine.compute(policy, 1000, FREE)
    fresh = ThreadPolicy(ContentionMonitor())
    assert (policy.retry_interval, machine.monitor.pause) == (fresh.retry_interval, fresh.monitor.pause)
    machine.compute(policy, 1, BUSY)
    assert machine.monitor.pause == 2 * fresh.monitor.pause


def test_layers_are_timed_and_threads_restored(two_threads: None) -> None:
    """Every layer takes a second with one thread and half a second with two."""
    now = 0.0
    tuner = ThreadTuner(lambda: now)
    layers: list[int] = []
    threads: list[list[int]] = []
    for _ in range(2):
        with tuner.step(4, layers.append) as begin_layer:
            threads.append([])
            for _ in range(20):
                begin_layer(0)
                threads[-1].append(torch.get_num_threads())
                now += 1 / torch.get_num_threads()
            now += 100  # after the last layer
        assert torch.get_num_threads() == 2
    assert threads == [[1] * NUM_BASELINE_LAYERS + [2] * (20 - NUM_BASELINE_LAYERS), [2] * 20]

    with pytest.raises(KeyboardInterrupt), tuner.step(2, layers.append):
        torch.set_num_threads(1)
        raise KeyboardInterrupt
    assert torch.get_num_threads() == 2
    with torch_num_threads(1), tuner.step(4, layers.append) as begin_layer:
        begin_layer(0)
        assert torch.get_num_threads() == 1


@pytest.mark.parametrize(
    ("num_tokens", "num_baseline"),
    [(MAX_SINGLE_THREAD_PROMPT, NUM_BASELINE_LAYERS), (MAX_SINGLE_THREAD_PROMPT + 1, 0)],
)
def test_long_prompt_begins_with_all_threads(two_threads: None, num_tokens: int, num_baseline: int) -> None:
    now, threads, layers = 0.0, list[int](), list[int]()
    with ThreadTuner(lambda: now).prompt("pine", num_tokens, layers.append) as begin_layer:
        for layer in range(30):
            begin_layer(layer)
            threads.append(torch.get_num_threads())
            now += 0.01 / torch.get_num_threads()
    assert threads == [1] * num_baseline + [2] * (30 - num_baseline) and layers == list(range(30))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_number_of_threads_changes_no_logit(
    dtype: torch.dtype, tiny_llama: TinyLlama, two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_batch_invariant(dtype, torch.device("cpu")):
        pytest.skip("GEMMs of this processor depend on the batch size, so threads are not tuned")
    model: Any = tiny_llama(layers=3, heads=8, kv_heads=4, head_dim=64)
    engine = Engine(model.to(dtype))
    turns, num_choices = itertools.cycle([True, False]), 0

    def run(choose: Callable[..., bool]) -> dict[str, torch.Tensor]:
        monkeypatch.setattr(ThreadPolicy, "should_use_all", choose)
        methods = ["vanilla", "pcw", "sp", "pine", "pine_input_order"]
        return engine.run(
            SHORT, methods=methods, max_new_tokens=4, stop_at_eos=False, return_logits=True
        ).logits

    def in_turns(*_: object) -> bool:
        nonlocal num_choices
        num_choices += 1
        return next(turns)

    expected, mixed, single = run(lambda *_: True), run(in_turns), run(lambda *_: False)
    assert num_choices >= (3 + 4) * 3  # layers of three steps, and of four prompts, because SP reuses PCW's
    for method, logits in expected.items():
        assert torch.equal(mixed[method], logits) and torch.equal(single[method], logits), method


def test_attention_threads_depend_on_prompt_length_only(
    tiny_llama: TinyLlama, two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(tiny_llama())
    attend = RankedAttention.prefill
    used: set[tuple[int, int]] = set()

    def observe(self: RankedAttention, inputs: LayerInput, *rest: Any) -> Any:
        used.add((inputs.query.shape[1], torch.get_num_threads()))
        return attend(self, inputs, *rest)

    monkeypatch.setattr(RankedAttention, "prefill", observe)
    for use_all in (True, False):
        monkeypatch.setattr(ThreadPolicy, "should_use_all", lambda *_, use_all=use_all: use_all)
        for layout in (SHORT, LONG):
            prefill_logits(engine, layout, "pine")
    assert used == {(SHORT.num_tokens, 1), (LONG.num_tokens, 2)}
    # Another limit would change logits of prompts between the two.
    assert (attention_threads(256), attention_threads(257)) == (1, 2)
