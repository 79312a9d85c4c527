"""Reuse of states: prefixes by all methods, documents by methods whose document prefill is equal.

Documents do not attend to the suffix, so that another question can follow them; in order-invariant methods
another order as well. The prefill of documents is equal in PCW and SP.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import ref

from pine_engine.attention.kv_cache import KVCache, empty_like
from pine_engine.attention.state import SequenceState, strategy_on
from pine_engine.attention.strategy import PromptState
from pine_engine.errors import InputError
from pine_engine.network.stock_model import StockModel


@dataclass
class PrefixCache:
    """States of earlier prompts of one model. The caller owns it and may clear it.

    With `only_active`, a state is kept as long as its run is active, and serves equal documents under
    the same methods: the methods before it define which prefix a method reuses, and so the last bits.
    """

    only_active: bool = False
    _find: list[tuple[Hashable, Callable[[], SequenceState | None]]] = field(
        default_factory=list, init=False, repr=False
    )
    _model: Any = field(default=None, init=False, repr=False, compare=False)

    @property
    def rows(self) -> tuple[SequenceState, ...]:
        """States with the keys and values of all tokens, one for each prompt and method."""
        return tuple(row for _, find in self._find if (row := find()))

    def rows_for(self, run: Hashable) -> tuple[SequenceState, ...]:
        """Return the states that serve a run.

        Args:
            run: Methods of the run, and its documents in their order.
        """
        served = [find for other, find in self._find if not self.only_active or other == run]
        return tuple(row for find in served if (row := find()))

    def add(self, rows: Iterable[SequenceState], run: Hashable) -> None:
        """Add states.

        Args:
            rows: States of the model of this cache.
            run: Methods of their run, and its documents in their order.
        """
        self._find = [(other, find) for other, find in self._find if find()]
        self._find += [(run, ref(row) if self.only_active else partial(_same, row)) for row in rows]

    def clear(self) -> None:
        """Remove all states."""
        self._find.clear()

    def belong_to(self, model: Any) -> None:
        """Bind the states to a model; raise InputError if the cache has states of another model.

        Args:
            model: Model that computes the states.
        """
        if self.rows and self._model is not model:
            message = "prefix_cache has states of another model. Create one PrefixCache per engine."
            raise InputError(message, field="prefix_cache")
        self._model = model


def _same(row: SequenceState) -> SequenceState:
    return row


def find_prefix(rows: Iterable[SequenceState], state: PromptState) -> SequenceState | None:
    """Return a row with the prefix of the prompt at the same positions; None for an empty prefix."""
    return _find(rows, state, _shares_prefix)


def find_documents(rows: Iterable[SequenceState], state: PromptState) -> SequenceState | None:
    """Return a row whose prefix and documents the method of the state can reuse."""
    return _find(rows, state, _shares_documents)


def _find(
    rows: Iterable[SequenceState], state: PromptState, is_shared: Callable[[PromptState, PromptState], bool]
) -> SequenceState | None:
    """Return the first sequence, or stream of a merged row, that can be reused."""
    if _reads_all(state):
        return None
    sequences = (sequence for row in rows for sequence in row.sequences)
    return next((sequence for sequence in sequences if is_shared(sequence.state, state)), None)


def fork(source: SequenceState, state: PromptState, reserved_tokens: int) -> SequenceState:
    """Return a new row with the tokens of the source before its suffix, and space for `reserved_tokens` more.

    Document blocks are shared. Prefix and, without blocks, documents are copied.
    """
    layout = state.plan.layout
    length = layout.prefix_length if state.plan.is_ranked else layout.documents_end
    layers = []
    for index, layer in enumerate(source.cache.layers):
        strategy = strategy_on(state, layer.keys.device)
        cache = empty_like(layer, length + layout.suffix_length + reserved_tokens)
        cache.append(
            strategy.convert_keys(index, layer.keys[:, :length], source.state.plan), layer.values[:, :length]
        )
        layers.append(cache)
    if state.recorder and source.state.recorder:
        state.recorder.record_documents_of(source.state.recorder)
    return SequenceState(state, KVCache(layers))


def _reads_all(state: PromptState) -> bool:
    """Check whether method or trace need the queries of all tokens, or the model the whole prompt."""
    return (
        isinstance(state.patched_model, StockModel)
        or state.plan.method.depends_on_question
        or bool(state.recorder and state.recorder.request.token_ranges)
    )


def _shares_prefix(source: PromptState, state: PromptState) -> bool:
    cached, plan = source.plan, state.plan
    is_same = source.patched_model is state.patched_model
    is_same &= cached.method.prefix_encoding == plan.method.prefix_encoding
    return is_same and cached.layout.prefix == plan.layout.prefix != ()


def _shares_documents(source: PromptState, state: PromptState) -> bool:
    cached, plan = source.plan, state.plan
    if source.patched_model is not state.patched_model or cached.layout.prefix != plan.layout.prefix:
        return False
    if plan.layout.suffix_length == 1:  # a pass of a single token uses another GEMM kernel
        return False
    has_other_positions = cached.moves_documents and cached.method.positions != plan.method.positions
    if has_other_positions or cached.method.document_encoding != plan.method.document_encoding:
        return False
    if state.recorder and plan.is_ranked and source.recorder is None:
        return False
    if plan.method.encodes_set and not state.recorder:
        return sorted(cached.layout.documents) == sorted(plan.layout.documents)
    return cached.layout.documents == plan.layout.documents
