"""Steps are computed with the threads that are fastest, which changes while others come and go."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from pine_engine.attention.ranked import Ranked
from pine_engine.attention.strategy import LayerInput
from pine_engine.engine import passes
from pine_engine.engine.engine import Engine
from pine_engine.methods.table import METHODS
from pine_engine.network.pace import MOST_PATIENCE, RECENT, SHORT_PROMPT, TRIAL, Choice, Pace
from pine_engine.network.threads import with_threads
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
    with with_threads(2):
        yield


def compute(choice: Choice, layers: int, seconds: dict[bool, float]) -> list[bool]:
    """What was chosen for each of so many layers, where they take that long."""
    chosen = []
    for _ in range(layers):
        chosen.append(choice.next())
        choice.took(chosen[-1], seconds[chosen[-1]])
    return chosen


def test_free_cores_are_all_used_but_for_a_trial_now_and_then() -> None:
    chosen = compute(Choice(), 3000, FREE)
    assert chosen[:30] == [True] * 30
    # After 30, 60, 120, 240, and from then on 480 layers.
    assert 3000 - sum(chosen) == 9 * TRIAL


def test_one_thread_is_enough_while_others_are_busy_and_all_are_back_when_they_have_gone() -> None:
    choice = Choice()
    compute(choice, 1000, FREE)
    busy = compute(choice, 1000, BUSY)
    assert sum(busy) <= RECENT + TRIAL * 7  # found out at once, and tried seven times in vain
    assert not any(busy[RECENT + TRIAL : 30])
    freed = compute(choice, 2 * MOST_PATIENCE, FREE)
    assert all(freed[MOST_PATIENCE + TRIAL :][:20])


def test_layers_that_were_interrupted_change_nothing() -> None:
    choice = Choice()
    spikes = itertools.cycle([1.0, 1.0, 1.0, 5.0])
    chosen = []
    for spike in itertools.islice(spikes, 2000):
        chosen.append(choice.next())
        choice.took(chosen[-1], FREE[chosen[-1]] * spike)
    assert choice.with_all and chosen.count(False) <= TRIAL * 9


def test_what_is_as_fast_is_left_as_it_is() -> None:
    even = {True: 0.0062, False: 0.006}
    choice = Choice()
    compute(choice, 500, even)
    assert choice.with_all


def test_a_layer_is_what_lies_between_two_and_the_caller_has_his_threads_back(two_threads: None) -> None:
    """Where every layer takes a second with all threads and half of it with one."""
    now = 0.0
    paced = Pace(lambda: now)
    seen: list[list[int]] = []
    for _ in range(3):
        with paced.step(4) as begin_layer:
            seen.append([])
            for _ in range(20):
                begin_layer()
                seen[-1].append(torch.get_num_threads())
                now += 0.5 * torch.get_num_threads()
            now += 100  # what follows the last layer is none
        assert torch.get_num_threads() == 2
    assert seen[0] == [2] * 20
    assert seen[1][:11] == [2] * 11 and set(seen[1][12:]) == set(seen[2]) == {1}


def test_a_step_that_is_stopped_gives_the_threads_back(two_threads: None) -> None:
    paced = Pace()
    with pytest.raises(KeyboardInterrupt), paced.step(2):
        torch.set_num_threads(1)
        raise KeyboardInterrupt
    assert torch.get_num_threads() == 2


def test_one_thread_has_no_choice() -> None:
    with with_threads(1), Pace().step(4) as begin_layer:
        begin_layer()
        assert torch.get_num_threads() == 1


def test_the_number_of_threads_changes_no_bit(
    tiny_llama: Callable[..., LlamaForCausalLM], two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(tiny_llama(layers=4, heads=8, kv_heads=4, head_dim=64))
    turns = itertools.cycle([True, False])
    chosen: list[bool] = []

    def run(choose: Callable[[Choice], bool]) -> dict[str, torch.Tensor]:
        monkeypatch.setattr(Choice, "next", choose)
        return engine.run(
            LAYOUT, methods=list(METHODS), max_new_tokens=8, stop_at_end=False, keep_logits=True
        ).logits

    def in_turns(_: Choice) -> bool:
        chosen.append(next(turns))
        return chosen[-1]

    steady, changing, with_one = run(lambda _: True), run(in_turns), run(lambda _: False)
    assert len(chosen) >= (7 + 7) * 4  # seven steps, and as many prompts that are not read already
    for method, logits in steady.items():
        assert torch.equal(changing[method], logits) and torch.equal(with_one[method], logits), method


@pytest.mark.parametrize("name", ["gemma2", "gpt_neox", "qwen3_moe", "falcon", "glm"])
def test_no_bit_of_a_prompt_depends_on_how_many_threads_read_its_layers(
    name: str, two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    family, turns = FAMILIES[name], itertools.cycle([True, False])
    engine = Engine(make(family.kind, **family.options))

    def read(choose: Callable[[Choice], bool]) -> torch.Tensor:
        monkeypatch.setattr(Choice, "next", choose)
        logits = [
            passes.prefill(engine.wirings, LONGER, METHODS[method], room=0, rows_kept=0)[1]
            for method in ("vanilla", "pcw", "pine")
        ]
        return torch.cat(logits)

    with torch.inference_mode():
        with_all = read(lambda _: True)
        assert torch.equal(read(lambda _: next(turns)), with_all)
        assert torch.equal(read(lambda _: False), with_all)


def test_attention_of_a_prompt_is_computed_with_the_same_number_whatever_the_pace(
    tiny_llama: Callable[..., LlamaForCausalLM], two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(tiny_llama(layers=4, heads=8, kv_heads=4, head_dim=64))
    long = TokenLayout((5,) * SHORT_PROMPT, ((1, 2), (3, 4)), (7,))
    seen: dict[bool, set[tuple[int, int]]] = {}
    attend = Ranked.prefill

    def look(self: Ranked, given: LayerInput, *rest: Any) -> Any:
        seen[with_all].add((given.query.shape[1], torch.get_num_threads()))
        return attend(self, given, *rest)

    monkeypatch.setattr(Ranked, "prefill", look)
    for with_all in (True, False):
        seen[with_all] = set()
        monkeypatch.setattr(Choice, "next", lambda _, chosen=with_all: chosen)
        for layout in (LAYOUT, long):
            with torch.inference_mode():
                passes.prefill(engine.wirings, layout, METHODS["pine"], room=0, rows_kept=1)
    assert seen[True] == seen[False] == {(LAYOUT.num_tokens, 1), (long.num_tokens, 2)}
