"""Run of one example by a model here: prompts are prefilled one by one, and answers decoded together."""

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import nlargest

import torch

from pine_engine.attention.state import SequenceState
from pine_engine.engine.engine import Engine
from pine_engine.engine.generation import BATCH_ROWS, ActiveGeneration, decode_in_steps, pending_prefill
from pine_engine.engine.likelihood import score_answers
from pine_engine.errors import ModelError
from pine_engine.lab.debias.calibrated_tokens import calibrated_prompt
from pine_engine.lab.evaluation.example_plan import Generation, PlannedResult, Prefill, distinct_parts
from pine_engine.lab.evaluation.example_run import ExampleRun
from pine_engine.lab.evaluation.shared_prefill import SharedPrefill, shortest_layout, source_of
from pine_engine.methods.table import METHODS, Method
from pine_engine.prompts.layout import TokenLayout
from pine_engine.scheduling.scheduler import Coroutine, PendingPrefill

BATCH_SIZE = 2 * BATCH_ROWS
"""Batch size of decoding. Fixed, because a GEMM of another size may round differently, and the answers of
other methods must not change a record."""

State = tuple[SequenceState, torch.Tensor]
"""State of a prompt after its prefill, and its logits (1, V)."""


class HeldStates:
    """States of prompts that are continued with several answers, until the last of these begins."""

    def __init__(self, generations: Iterable[Generation]) -> None:
        """Begin without states. generations: all answers."""
        self._num_answers = Counter(prefill for one in generations for prefill in one.prefills)
        self._states: dict[Prefill, State] = {}

    def is_continued(self, prefill: Prefill) -> bool:
        """Check whether an answer continues a prompt."""
        return prefill in self._num_answers

    def __contains__(self, prefill: Prefill) -> bool:
        return prefill in self._states

    def hold(self, prefill: Prefill, state: State) -> None:
        """Take the state of a prompt."""
        self._states[prefill] = state

    def take(self, prefill: Prefill) -> State:
        """Return a copy of the state for each answer; the last answer takes the original."""
        self._num_answers[prefill] -= 1
        if not self._num_answers[prefill]:
            return self._states.pop(prefill)
        row, logits = self._states[prefill]
        return replace(row, cache=row.cache.copy()), logits


class ComputedRun(ExampleRun[Engine]):
    """Run of one example by a loaded model."""

    def compute(self) -> Coroutine[None]:
        """Report the records of the example, and the events of its runs."""
        results = self.start()
        try:
            yield from self._compute(results)
        except torch.OutOfMemoryError:
            for result in self._waiting:
                self._fail(result, "the device ran out of memory; measure with shorter prompts or answers")

    def _compute(self, results: Sequence[PlannedResult]) -> Coroutine[None]:
        """Compute everything that the results need, and emit the finished ones after each part."""
        prefills, generations = distinct_parts(results)
        reserved_tokens = max(map(self._reserved_tokens, results), default=0)
        wrappers = [result.method.wrapper for result in results]
        shared = SharedPrefill(
            self._backend,
            prefills,
            reserved_tokens=reserved_tokens,
            control=self._control,
            keeps_states=any(wrapper is not None and wrapper.represents for wrapper in wrappers),
        )
        held = HeldStates(generations)
        for prefill in prefills:
            if not held.is_continued(prefill):
                yield pending_prefill(self._backend, prefill.layout.num_tokens)
                self._prefill(shared, prefill)
                self.emit_finished()
        for item in decode_in_steps(
            self._backend,
            self._prompts(shared, held, generations),
            max_new_tokens=self._max_new_tokens,
            batch_size=BATCH_SIZE,
            control=self._control,
        ):
            if isinstance(item, ActiveGeneration):
                item.free()
                generations[item.index].answer = item
                self.emit_finished()
            else:
                yield item

    def _prompts(
        self, shared: SharedPrefill, held: HeldStates, generations: Sequence[Generation]
    ) -> Iterator[ActiveGeneration | PendingPrefill]:
        """Yield the prompt of each answer, when the batch has a free slot for it."""
        for index, generation in enumerate(generations):
            for prefill in generation.prefills:
                if prefill not in held:
                    yield pending_prefill(self._backend, prefill.layout.num_tokens)
                    held.hold(prefill, self._prefill(shared, prefill))
            yield _begin_answer(index, generation, held)

    def _prefill(self, shared: SharedPrefill, prefill: Prefill) -> State:
        """Prefill a prompt, and score its texts; the state stays as it was."""
        row, logits = shared.run(prefill)
        began = time.perf_counter()
        try:
            for text in prefill.texts:
                ids = self._tokens(text)
                (score,) = score_answers([row], [logits], text, ids, on_layer=self._control.check)
                prefill.logprobs[text] = score.total
        except ModelError as error:
            prefill.error = str(error)
        prefill.seconds += time.perf_counter() - began
        prefill.is_done = True
        return row, logits


def _begin_answer(index: int, generation: Generation, held: HeldStates) -> ActiveGeneration:
    """Return the prompt of an answer. A generator that kept its states would keep them beyond the answer."""
    states = list(map(held.take, generation.prefills))
    seconds = sum(prefill.standalone_s for prefill in generation.prefills)
    method = generation.prefills[0].method.name
    if generation.steps:
        return calibrated_prompt(index, method, states, generation.steps, seconds)
    ((row, logits),) = states
    return ActiveGeneration(method, (row,), logits, seconds, index)


def caches_at_once(results: Sequence[PlannedResult], size: Callable[[TokenLayout, Method], float]) -> float:
    """Return the size of the caches that exist at once while the results of an example are computed.

    These are the prefix, states that other prefills or later answers continue, the state that is computed,
    and the rows of a full batch of answers and of the next one. `size` returns that of the cache of a prompt
    under a method, with room for an answer.
    """
    prefills, generations = distinct_parts(results)
    num_answers = Counter(prefill for one in generations for prefill in one.prefills)
    num_reusing = Counter(map(source_of, prefills))
    only_scored: list[tuple[tuple[Prefill, ...], int]]
    only_scored = [((prefill,), 0) for prefill in prefills if prefill not in num_answers]
    sizes: dict[Hashable, float] = {}
    computed: list[Prefill] = []
    rows: list[float] = []  # of the answers so far
    largest = 0.0
    for group, num_rows in only_scored + [(one.prefills, one.num_rows) for one in generations]:
        active = sum(nlargest(BATCH_SIZE, rows))
        for prefill in dict.fromkeys(group):
            if prefill not in computed:
                source, state = source_of(prefill), _state_key(prefill)
                sizes[source] = size(prefill.layout, METHODS[source[0]])
                sizes[state] = size(prefill.layout, prefill.method)
                states = {source, state, *_needed(computed, num_reusing, num_answers)}
                largest = max(largest, active + sum(map(sizes.__getitem__, states)))
                computed.append(prefill)
                num_reusing[source] -= 1
        num_answers.subtract(group)
        rows += [sizes[_state_key(prefill)] for prefill in group[:num_rows]]
        states = _needed(computed, num_reusing, num_answers)
        added = sum(rows[len(rows) - num_rows :])
        largest = max(largest, active + added + sum(map(sizes.__getitem__, states)))
    prefixes = [prefill.layout for prefill in prefills[:1] if prefill.layout.prefix]
    return largest + sum(size(shortest_layout(layout), METHODS["vanilla"]) for layout in prefixes)


def _state_key(prefill: Prefill) -> Hashable:
    """Return the key of the state of a prefill, which is that of its source under the same method."""
    source = source_of(prefill)
    return source if prefill.method.name == source[0] else prefill


def _needed(
    computed: Iterable[Prefill],
    num_reusing: Mapping[tuple[str, TokenLayout, str], int],
    num_answers: Mapping[Prefill, int],
) -> set[Hashable]:
    """Return the keys of the states that other prefills or later answers continue."""
    sources = {source_of(prefill) for prefill in computed}
    held = {_state_key(prefill) for prefill in computed if num_answers[prefill] > 0}
    return held | {source for source in sources if num_reusing[source] > 0}
