"""Prefill of the prompts of an example, with shared parts computed once."""

import time
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import nullcontext

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pine_engine.attention.state import SequenceState
from pine_engine.engine import passes
from pine_engine.engine.engine import Engine
from pine_engine.engine.generation import prefill_progress, synchronize
from pine_engine.engine.hidden_states import record_hidden_states
from pine_engine.lab.evaluation.example_plan import Prefill
from pine_engine.methods.table import METHODS, Method
from pine_engine.prompts.layout import TokenLayout
from pine_engine.scheduling.worker import RunControl


class SharedPrefill:
    """Prefill of the prompts of one example, with shared parts computed once, under torch.inference_mode.

    Reuse does not depend on the other methods of the run: the prefix is always computed alone, and methods
    with the same document encoding always continue from the first of them in the table. So records are
    bitwise identical for every selection of methods, and after an interruption.
    """

    def __init__(
        self,
        engine: Engine,
        prefills: Collection[Prefill],
        *,
        reserved_tokens: int,
        control: RunControl,
        keeps_states: bool = False,
    ) -> None:
        """Begin without prefills. keeps_states: True to enter the hidden states into the prefills."""
        self._engine, self._reserved_tokens, self._control = engine, reserved_tokens, control
        self._keeps_states = keeps_states
        self._num_prefills = len(prefills)
        self._num_reusing = Counter(map(source_of, prefills))
        self._remaining = self._num_reusing.copy()
        self._sources: dict[tuple[str, TokenLayout, str], tuple[SequenceState, Tensor, float]] = {}
        self._states: dict[tuple[str, TokenLayout, str], NDArray[np.float64] | None] = {}
        self._prefix: tuple[list[SequenceState], float] | None = None

    def run(self, prefill: Prefill) -> tuple[SequenceState, Tensor]:
        """Return the state and the logits (1, V) of a prompt. To be called once for each prefill."""
        source = source_of(prefill)
        prefill_method = METHODS[source[0]]
        if self._prefix is None:
            self._prefix = self._run_prefix(prefill)
        prefix_rows, prefix_s = self._prefix
        if source not in self._sources:
            self._sources[source] = self._pass(prefill, prefill.layout, prefill_method, prefix_rows)
            self._states[source] = prefill.state
        prefill.state = self._states[source]
        row, logits, seconds = self._sources[source]
        prefill.standalone_s = prefix_s + seconds
        prefill.seconds = prefix_s / self._num_prefills + seconds / self._num_reusing[source]
        self._remaining[source] -= 1
        if not self._remaining[source]:
            del self._sources[source], self._states[source]
        if prefill.method is not prefill_method:
            row, logits, seconds = self._pass(prefill, prefill.layout, prefill.method, [row])
            prefill.standalone_s += seconds
            prefill.seconds += seconds
        return row, logits

    def _run_prefix(self, prefill: Prefill) -> tuple[list[SequenceState], float]:
        """Return a state with the prefix, and its seconds; no state if it is empty or cannot be reused."""
        if not prefill.layout.prefix or self._engine.placement_problem:
            return [], 0.0
        shortest = shortest_layout(prefill.layout)
        row, _, seconds = self._pass(prefill, shortest, METHODS["vanilla"], [])
        return [row], seconds

    def _pass(
        self, prefill: Prefill, layout: TokenLayout, method: Method, cached: Sequence[SequenceState]
    ) -> tuple[SequenceState, Tensor, float]:
        """Run a forward pass for a prefill; report its progress under the name of the prefill's method."""
        began = time.perf_counter()
        options = passes.PassOptions(
            self._engine.patched_models,
            reserved_tokens=self._reserved_tokens,
            on_layer=prefill_progress(self._control, prefill.method.name, self._engine.num_layers),
            cached_sequences=cached,
        )
        nothing: list[NDArray[np.float64]] = []
        with record_hidden_states(self._engine) if self._keeps_states else nullcontext(nothing) as states:
            row, logits = passes.prefill(layout, method, options)
        prefill.state = states[-1] if states else None
        synchronize(logits)
        return row, logits, time.perf_counter() - began


def source_of(prefill: Prefill) -> tuple[str, TokenLayout, str]:
    """Return method, prompt and version of the prefill from which others continue."""
    encoding = prefill.method.document_encoding
    method = next(method for method in METHODS.values() if method.document_encoding == encoding)
    return method.name, prefill.layout, prefill.version


def shortest_layout(layout: TokenLayout) -> TokenLayout:
    """Return a prompt of the prefix of another one, and one token each of document and suffix."""
    return TokenLayout(layout.prefix, (layout.prefix[:1],), layout.prefix[:1])
