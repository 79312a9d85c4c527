"""Steps are computed with the threads that are fastest, which changes while others come and go."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from pine_engine.attention.ranked import RankedAttention
from pine_engine.engine import passes
from pine_engine.engine.engine import Engine
from pine_engine.methods.table import METHODS
from pine_engine.network.batch_invariant_ops import is_batch_invariant
from pine_engine.network.registration import LayerInput
from pine_engine.network.thread_tuner import (
    MAX_SINGLE_THREAD_PROMPT,
    NUM_BASELINE_LAYERS,
    NUM_TRIAL_LAYERS,
    ContentionMonitor,
    ThreadPolicy,
    ThreadTuner,
    torch_num_threads,
)
from pine_engine.prompts.layout import TokenLayout
from tests.support.families import FAMILIES, make

LAYOUT = TokenLayout((5, 9, 3), ((11, 12, 13), (21, 22), (31, 32, 33, 34)), (51, 52))
FREE = {True: 0.006, False: 0.008}
BUSY = {True: 0.060, False: 0.008}
"""Seconds of a layer with all threads and with one, as measured on two cores."""


LONGER = TokenLayout(
    tuple(range(5, 35)), (tuple(range(40, 61)), tuple(range(50, 83)), tuple(range(60, 74))), tuple(range(20))
)


@pytest.fixture
def two_threads() -> Iterator[None]:
    with torch_num_threads(2):
        yield


class Machine:
    """Computes layers of one kind, which take that long with all threads and with one."""

    def __init__(self) -> None:
        self.now = 0.0
        self.crowd = ContentionMonitor()

    def compute(self, choice: ThreadPolicy, layers: int, seconds: Iterable[dict[bool, float]]) -> list[bool]:
        """What was chosen for each of so many layers."""
        chosen = []
        for times in itertools.islice(itertools.cycle(seconds), layers):
            chosen.append(choice.should_use_all(self.now))
            self.now += times[chosen[-1]]
            choice.record(chosen[-1], times[chosen[-1]], self.now)
        return chosen


def test_free_cores_are_all_used() -> None:
    machine = Machine()
    chosen = machine.compute(ThreadPolicy(machine.crowd), 3000, [FREE])
    assert chosen == [False] * NUM_BASELINE_LAYERS + [True] * (3000 - NUM_BASELINE_LAYERS)


@pytest.mark.parametrize("busy", [[BUSY], [FREE, FREE, FREE, BUSY]], ids=["always", "every fourth layer"])
def test_one_thread_is_enough_while_others_are_busy_and_all_are_back_when_they_have_gone(
    busy: list[dict[bool, float]],
) -> None:
    machine = Machine()
    choice = ThreadPolicy(machine.crowd)
    machine.compute(choice, 1000, [FREE])
    began = machine.now
    machine.compute(choice, 1000, busy)
    alone = 1000 * BUSY[False]
    assert machine.now - began <= 1.1 * alone
    chosen = machine.compute(choice, 3000, [FREE])
    assert all(chosen[-1500:])


def test_a_neighbour_noticed_by_one_kind_of_layer_is_known_to_all() -> None:
    machine = Machine()
    known, other = ThreadPolicy(machine.crowd), ThreadPolicy(machine.crowd)
    for choice in (known, other):
        machine.compute(choice, 100, [FREE])
    machine.compute(known, 1, [BUSY])
    assert machine.compute(other, 10, [BUSY]) == [False] * 10


def test_what_gains_nothing_is_computed_with_one_thread_but_for_a_trial_now_and_then() -> None:
    machine = Machine()
    chosen = machine.compute(ThreadPolicy(machine.crowd), 10_000, [{True: 0.0062, False: 0.006}])
    # As soon as one thread is known; after 200, 400, 800, 1600, and from then on 3200 layers.
    assert sum(chosen) == 7 * NUM_TRIAL_LAYERS


def test_a_layer_that_was_interrupted_costs_some_layers_with_one_thread_and_no_more() -> None:
    machine = Machine()
    interrupted = {with_all: 5 * seconds for with_all, seconds in FREE.items()}
    chosen = machine.compute(ThreadPolicy(machine.crowd), 5000, [*[FREE] * 499, interrupted])
    assert sum(chosen) >= 0.9 * len(chosen)


def test_a_layer_is_what_lies_between_two_and_the_caller_has_his_threads_back(two_threads: None) -> None:
    """Where every layer takes a second with one thread and half of it with two."""
    now = 0.0
    paced = ThreadTuner(lambda: now)
    seen: list[list[int]] = []
    for _ in range(2):
        with paced.step(4) as begin_layer:
            seen.append([])
            for _ in range(20):
                begin_layer()
                seen[-1].append(torch.get_num_threads())
                now += 1 / torch.get_num_threads()
            now += 100  # what follows the last layer is none
        assert torch.get_num_threads() == 2
    assert seen == [[1] * NUM_BASELINE_LAYERS + [2] * (20 - NUM_BASELINE_LAYERS), [2] * 20]


def test_a_long_prompt_begins_with_all_threads_and_a_short_one_learns_how_long_one_takes(
    two_threads: None,
) -> None:
    now = 0.0

    def clock() -> float:
        return now

    seen: dict[int, list[int]] = {MAX_SINGLE_THREAD_PROMPT: [], MAX_SINGLE_THREAD_PROMPT + 1: []}
    for num_tokens, threads in seen.items():
        with ThreadTuner(clock).prompt("pine", num_tokens) as begin_layer:
            for _ in range(30):
                begin_layer()
                threads.append(torch.get_num_threads())
                now += 0.01 / torch.get_num_threads()
    assert seen[MAX_SINGLE_THREAD_PROMPT] == [1] * NUM_BASELINE_LAYERS + [2] * (30 - NUM_BASELINE_LAYERS)
    assert seen[MAX_SINGLE_THREAD_PROMPT + 1] == [2] * 30


def test_a_step_that_is_stopped_gives_the_threads_back(two_threads: None) -> None:
    paced = ThreadTuner()
    with pytest.raises(KeyboardInterrupt), paced.step(2):
        torch.set_num_threads(1)
        raise KeyboardInterrupt
    assert torch.get_num_threads() == 2


def test_one_thread_has_no_choice() -> None:
    with torch_num_threads(1), ThreadTuner().step(4) as begin_layer:
        begin_layer()
        assert torch.get_num_threads() == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_number_of_threads_changes_no_bit(
    dtype: torch.dtype,
    tiny_llama: Callable[..., LlamaForCausalLM],
    two_threads: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not is_batch_invariant(dtype, torch.device("cpu")):
        pytest.skip("products of this processor's own tell the number of rows, so that nothing is paced")
    model: Any = tiny_llama(layers=4, heads=8, kv_heads=4, head_dim=64)
    engine = Engine(model.to(dtype))
    turns = itertools.cycle([True, False])
    chosen: list[bool] = []

    def run(choose: Callable[..., bool]) -> dict[str, torch.Tensor]:
        monkeypatch.setattr(ThreadPolicy, "should_use_all", choose)
        return engine.run(
            LAYOUT, methods=list(METHODS), max_new_tokens=8, stop_at_eos=False, return_logits=True
        ).logits

    def in_turns(*_: object) -> bool:
        chosen.append(next(turns))
        return chosen[-1]

    steady, changing, with_one = run(lambda *_: True), run(in_turns), run(lambda *_: False)
    assert len(chosen) >= (7 + 7) * 4  # seven steps, and as many prompts that are not read already
    for method, logits in steady.items():
        assert torch.equal(changing[method], logits) and torch.equal(with_one[method], logits), method


@pytest.mark.parametrize("name", ["gemma2", "gpt_neox", "qwen3_moe", "falcon", "glm"])
def test_no_bit_of_a_prompt_depends_on_how_many_threads_read_its_layers(
    name: str, two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    family, turns = FAMILIES[name], itertools.cycle([True, False])
    engine = Engine(make(family.kind, **family.options))

    def read(choose: Callable[..., bool]) -> torch.Tensor:
        monkeypatch.setattr(ThreadPolicy, "should_use_all", choose)
        logits = [
            passes.prefill(engine.patched_models, LONGER, METHODS[method], room=0, logits_to_keep=0)[1]
            for method in ("vanilla", "pcw", "pine")
        ]
        return torch.cat(logits)

    with torch.inference_mode():
        with_all = read(lambda *_: True)
        assert torch.equal(read(lambda *_: next(turns)), with_all)
        assert torch.equal(read(lambda *_: False), with_all)


def test_attention_of_a_prompt_is_computed_with_the_same_number_whatever_the_pace(
    tiny_llama: Callable[..., LlamaForCausalLM], two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(tiny_llama(layers=4, heads=8, kv_heads=4, head_dim=64))
    long = TokenLayout((5,) * MAX_SINGLE_THREAD_PROMPT, ((1, 2), (3, 4)), (7,))
    seen: dict[bool, set[tuple[int, int]]] = {}
    attend = RankedAttention.prefill

    def look(self: RankedAttention, given: LayerInput, *rest: Any) -> Any:
        seen[with_all].add((given.query.shape[1], torch.get_num_threads()))
        return attend(self, given, *rest)

    monkeypatch.setattr(RankedAttention, "prefill", look)
    for with_all in (True, False):
        seen[with_all] = set()
        monkeypatch.setattr(ThreadPolicy, "should_use_all", lambda *_, chosen=with_all: chosen)
        for layout in (LAYOUT, long):
            with torch.inference_mode():
                passes.prefill(engine.patched_models, layout, METHODS["pine"], room=0, logits_to_keep=1)
    assert seen[True] == seen[False] == {(LAYOUT.num_tokens, 1), (long.num_tokens, 2)}
