"""Reading the prompts of one example, with what they share read once.

What a prompt is lent does not depend on what else is measured: the prefix is always read alone, and methods
that read documents alike always go on from the first of them in the table. So a record has the same bits
whatever is measured beside it, and also when a killed run goes on.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from pine_engine.attention.state import SequenceState
from pine_engine.engine import passes
from pine_engine.engine.engine import Engine
from pine_engine.engine.generation import synchronize
from pine_engine.evaluation.example_plan import Prefill
from pine_engine.methods.table import METHODS, Method
from pine_engine.prompts.layout import TokenLayout

OnLayer = Callable[[Method, int], None]
"""Called at the start of each layer, with the method that reads; what it raises ends the reading."""

Loan = tuple[str, TokenLayout, str]
"""Method, prompt and version of a prompt that several prefills go on from."""


@dataclass(frozen=True)
class Prefilled:
    """A prompt that has been read. logits: (1, V), of its last token.

    standalone_s: seconds to read it where nothing is lent. attributed_s: those that this one is to
    answer for, with its
    share of what several borrow.
    """

    row: SequenceState
    logits: Tensor
    standalone_s: float
    attributed_s: float


class Prefiller:
    """Reads the prompts of one example, and holds what they lend each other; for torch.inference_mode."""

    def __init__(
        self, engine: Engine, prefills: Sequence[Prefill], *, reserved_tokens: int, on_layer: OnLayer
    ) -> None:
        self._engine = engine
        self._room = reserved_tokens
        self._on_layer = on_layer
        self._num_prefills = len(prefills)
        self._borrowers = Counter(_loan(prefill) for prefill in prefills)
        self._waiting = self._borrowers.copy()
        self._lent: dict[Loan, Prefilled] = {}
        self._prefix: tuple[list[SequenceState], float] | None = None

    def read(self, prefill: Prefill) -> Prefilled:
        """Reads the prompt, once for each prefill."""
        shared_prefill = _loan(prefill)
        prefill_method = METHODS[shared_prefill[0]]
        lent = self._lent.get(shared_prefill) or self._read_first(
            prefill, prefill_method, self._borrowers[shared_prefill]
        )
        self._lent[shared_prefill] = lent
        self._waiting[shared_prefill] -= 1
        if not self._waiting[shared_prefill]:
            del self._lent[shared_prefill]
        if prefill.method is prefill_method:
            return lent
        row, logits, seconds = self._prefill(prefill, prefill.layout, prefill.method, [lent.row])
        return Prefilled(row, logits, lent.standalone_s + seconds, lent.attributed_s + seconds)

    def _read_first(self, prefill: Prefill, prefill_method: Method, reusing_methods: int) -> Prefilled:
        if self._prefix is None:
            self._prefix = self._read_prefix(prefill)
        rows, prefix_s = self._prefix
        row, logits, seconds = self._prefill(prefill, prefill.layout, prefill_method, rows)
        return Prefilled(
            row, logits, prefix_s + seconds, prefix_s / self._num_prefills + seconds / reusing_methods
        )

    def _read_prefix(self, prefill: Prefill) -> tuple[list[SequenceState], float]:
        """A row that has read the prefix, and the seconds it took; no row for an empty prefix."""
        prefix = prefill.layout.prefix
        if not prefix:
            return [], 0.0
        shortest = TokenLayout(prefix, (prefix[:1],), prefix[:1])
        row, _, seconds = self._prefill(prefill, shortest, METHODS["vanilla"], [])
        return [row], seconds

    def _prefill(
        self, prefill: Prefill, layout: TokenLayout, method: Method, cached_sequences: Sequence[SequenceState]
    ) -> tuple[SequenceState, Tensor, float]:
        """Reads a prompt for that prefill, whose own it need not be."""
        began = time.perf_counter()
        row, logits = passes.prefill(
            self._engine.patched_models,
            layout,
            method,
            reserved_tokens=self._room,
            logits_to_keep=1,
            on_layer=lambda layer: self._on_layer(prefill.method, layer),
            cached_sequences=cached_sequences,
        )
        synchronize(logits)
        return row, logits, time.perf_counter() - began


def _loan(prefill: Prefill) -> Loan:
    prefill_method = next(
        method for method in METHODS.values() if method.document_encoding == prefill.method.document_encoding
    )
    return prefill_method.name, prefill.layout, prefill.version
