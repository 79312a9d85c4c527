"""Number of threads of layers: all or one, by the times of simulated and real layers."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

from pine_engine import METHODS, Engine, TokenLayout
from pine_engine.attention.ranked import RankedAttention
from pine_engine.engine import generation, passes
from pine_engine.engine.run import prepare_run
from pine_engine.network.batch_invariant_ops import is_batch_invariant
from pine_engine.network.registration import LayerInput
from pine_engine.network.thread_tuner import (
    MAX_SINGLE_THREAD_PROMPT,
    MIN_TRIAL_LAYERS,
    NUM_BASELINE_LAYERS,
    NUM_LONG_BASELINE_LAYERS,
    ContentionMonitor,
    ThreadPolicy,
    ThreadTuner,
    attention_threads,
    torch_num_threads,
)
from pine_engine.scheduling.scheduler import compute_alone
from pine_engine.scheduling.worker import NO_CONTROL
from tests.support.families import TinyLlama
from tests.support.forward import prefill_logits
from tests.support.tiers import first_daily

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
    def __init__(self) -> None:
        self.now = 0.0
        self.monitor = ContentionMonitor()

    def compute(self, policy: ThreadPolicy, num_layers: int, *seconds: dict[bool, float]) -> Sequence[bool]:
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
    assert (
        choices[:NUM_BASELINE_LAYERS] == [False] * NUM_BASELINE_LAYERS and choices.count(True) > 0.95 * 3000
    )
    started = machine.now
    machine.compute(policy, 1000, *busy)
    assert machine.now - started <= 1.1 * 1000 * BUSY[False]
    assert machine.compute(policy, 3000, FREE)[-1500:].count(True) > 0.94 * 1500


def test_contention_is_shared_by_all_kinds_of_layers() -> None:
    machine = Machine()
    first, second = ThreadPolicy(machine.monitor), ThreadPolicy(machine.monitor)
    for policy in (first, second):
        machine.compute(policy, 100, FREE)
    machine.compute(first, 1, BUSY)
    assert machine.compute(second, 10, BUSY) == [False] * 10


@pytest.mark.parametrize("gain", [-0.03, 0, 0.04])
def test_trials_with_little_gain_become_rare(gain: float) -> None:
    machine = Machine()
    times = {True: 0.006 * (1 - gain), False: 0.006}
    choices = machine.compute(ThreadPolicy(machine.monitor), 10_000, times)
    # At the start; after 60, 120, and from then on 240 layers.
    assert sum(choices[:3000]) == 14 * MIN_TRIAL_LAYERS


def test_trial_with_gain_resets_retry_interval() -> None:
    machine = Machine()
    policy = ThreadPolicy(machine.monitor)
    machine.compute(policy, 1000, {True: 0.0062, False: 0.006})
    machine.compute(policy, 1000, FREE)
    assert policy.retry_interval == ThreadPolicy(machine.monitor).retry_interval


def test_gain_that_ends_is_noticed() -> None:
    machine = Machine()
    policy = ThreadPolicy(machine.monitor)
    machine.compute(policy, 3000, FREE)
    choices = machine.compute(policy, 2000, {True: 0.0078, False: 0.008})
    assert choices[-1000:].count(True) < 0.1 * 1000


def test_pause_resets_after_time_without_contention() -> None:
    machine, fresh = Machine(), ContentionMonitor()
    policy = ThreadPolicy(machine.monitor)
    machine.compute(policy, 1000, BUSY)
    assert machine.monitor.pause > 4 * fresh.pause
    machine.compute(policy, 3000, FREE)
    before = machine.monitor.until
    while machine.monitor.until == before:
        machine.compute(policy, 1, BUSY)
    assert machine.monitor.pause == 2 * fresh.pause


def test_moments_without_contention_cost_little() -> None:
    """A thread that has slept gets a core at once, so that a trial begins like one on free cores."""
    machine = Machine()
    policy, single_s, num_layers, num_good = ThreadPolicy(machine.monitor), 0.0015, 6000, 0
    for _ in range(num_layers):
        use_all = policy.should_use_all(machine.now)
        num_good = num_good + 1 if use_all else 0
        seconds = single_s * (1 if not use_all else 0.7 if num_good <= MIN_TRIAL_LAYERS else 20)
        machine.now += seconds
        policy.record(use_all, seconds, machine.now)
    assert machine.now < 1.04 * num_layers * single_s


@pytest.mark.parametrize("num_slow", [1, 150], ids=["first layer", "first passes"])
def test_slow_first_layers_do_not_hide_contention(num_slow: int) -> None:
    """Kernels are compiled in the first layer, and weights are read from the disk in the first passes."""
    machine = Machine()
    policy = ThreadPolicy(machine.monitor)
    machine.compute(policy, num_slow, {True: 0.1, False: 0.12})
    assert machine.compute(policy, 1000, {True: 0.03, False: 0.004}).count(True) < 100


def test_contention_is_noticed_in_first_long_prompt(two_threads: None) -> None:
    """Each layer takes 0.06 s with one thread, and 0.6 s with two."""
    now, num_layers = 0.0, 30
    with ThreadTuner(lambda: now).prompt("pine", 500, lambda _: None) as begin_layer:
        for layer in range(num_layers):
            begin_layer(layer)
            now += 0.06 if torch.get_num_threads() == 1 else 0.6
    assert now == pytest.approx(num_layers * 0.06 + 0.54)  # a single layer


def test_longer_prompt_of_a_kind_is_no_contention(two_threads: None) -> None:
    now, threads, tuner = 0.0, list[int](), ThreadTuner(lambda: now)
    for num_tokens in (260, 260, 500):
        with tuner.prompt("pine", num_tokens, lambda _: None) as begin_layer:
            threads.clear()
            for layer in range(30):
                begin_layer(layer)
                threads.append(torch.get_num_threads())
                now += 0.0002 * num_tokens / torch.get_num_threads() ** 0.7
    assert threads.count(2) >= 26


def test_embedding_uses_threads_of_first_layer(two_threads: None) -> None:
    with ThreadTuner(lambda: 0.0).step(2, lambda _: None):
        assert torch.get_num_threads() == 1


def test_layers_are_timed_and_threads_restored(two_threads: None) -> None:
    """Every layer takes a second with one thread and half a second with two."""
    now = 0.0
    tuner = ThreadTuner(lambda: now)
    layers: list[float] = []
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
    # The last layer of a step is not timed.
    first = [1] * NUM_BASELINE_LAYERS + [2] * MIN_TRIAL_LAYERS + [1] * 2
    assert threads == [first, [1] * (NUM_BASELINE_LAYERS - 1) + [2] * (21 - NUM_BASELINE_LAYERS)]

    with pytest.raises(KeyboardInterrupt), tuner.step(2, layers.append):
        torch.set_num_threads(1)
        raise KeyboardInterrupt
    assert torch.get_num_threads() == 2
    with torch_num_threads(1), tuner.step(4, layers.append) as begin_layer:
        begin_layer(0)
        assert torch.get_num_threads() == 1


@pytest.mark.parametrize(
    ("num_tokens", "num_baseline"),
    [
        (MAX_SINGLE_THREAD_PROMPT, NUM_BASELINE_LAYERS),
        (MAX_SINGLE_THREAD_PROMPT + 1, NUM_LONG_BASELINE_LAYERS),
    ],
)
def test_few_layers_of_long_prompts_use_one_thread(
    two_threads: None, num_tokens: int, num_baseline: int
) -> None:
    now, threads, layers = 0.0, list[int](), list[float]()
    with ThreadTuner(lambda: now).prompt("pine", num_tokens, layers.append) as begin_layer:
        for layer in range(30):
            begin_layer(layer)
            threads.append(torch.get_num_threads())
            now += 0.01 / torch.get_num_threads()
    end = num_baseline + MIN_TRIAL_LAYERS
    expected = [1] * num_baseline + [2] * MIN_TRIAL_LAYERS + [1] * num_baseline + [2] * 30
    assert threads == expected[:30] and threads[:end].count(2) == MIN_TRIAL_LAYERS
    assert layers == list(range(30))


@pytest.mark.parametrize("dtype", first_daily([torch.bfloat16, torch.float32]), ids=str)
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
        methods = ["vanilla", "pcw", "sp", "pine", "pine_input_order", "cacheblend"]
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


def test_scores_and_recomputed_tokens_are_tuned(
    tiny_llama: TinyLlama, two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, kinds, tune = Engine(tiny_llama()), list[object](), ThreadTuner.prompt

    def observe(self: ThreadTuner, kind: Any, *rest: Any) -> Any:
        kinds.append(getattr(kind, "name", kind))
        return tune(self, kind, *rest)

    monkeypatch.setattr(ThreadTuner, "prompt", observe)
    options = passes.PassOptions(engine.patched_models, reserved_tokens=2)
    with torch.inference_mode():
        rows = [passes.prefill(LONG, METHODS["cacheblend"], options)[0] for _ in range(2)]
        passes.extend(rows, [[1, 2], [1, 2]])
    assert kinds == ["cacheblend"] * 4 + ["extend"]


def test_tokens_are_chosen_with_one_thread(tiny_llama: TinyLlama, two_threads: None) -> None:
    options: dict[str, Any] = {"max_new_tokens": 3, "stop_at_eos": False}
    run = prepare_run(Engine(tiny_llama()), SHORT, methods=["vanilla", "pine"], **options)
    threads: list[int] = []

    def choose(logits: torch.Tensor) -> tuple[int, float]:
        threads.append(torch.get_num_threads())
        return generation.most_likely(logits)

    answers = compute_alone(run.prefill(NO_CONTROL, choose))
    compute_alone(run.decode(answers, NO_CONTROL))
    assert threads == [1] * 6 and torch.get_num_threads() == 2
