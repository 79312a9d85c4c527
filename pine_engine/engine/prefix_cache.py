"""Reuse of states: prefixes by all methods, documents by methods whose document prefill is equal.

Documents do not attend to the suffix, so that another question can follow them; in order-invariant methods
another order as well. The prefill of documents is equal in PCW and SP.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pine_engine.attention.kv_cache import KVCache, empty_like
from pine_engine.attention.state import SequenceState, strategy_on
from pine_engine.attention.strategy import PromptState
from pine_engine.errors import InputError


@dataclass
class PrefixCache:
    """States of earlier prompts of one model. The caller owns it and may clear it."""

    # One state for each prompt and method, with the keys and values of all its tokens.
    rows: list[SequenceState] = field(default_factory=list)
    _model: Any = field(default=None, init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        return f"PrefixCache({len(self.rows)} rows)"

    def belong_to(self, model: Any) -> None:
        """Bind the states to a model; raise InputError if the cache has states of another model.

        Args:
            model: Model that computes the states.
        """
        if self.rows and self._model is not model:
            message = "prefix_cache has states of another model. Create one PrefixCache per engine."
            raise InputError(message, field="prefix_cache")
        self._model = model


def find_prefix(rows: Iterable[SequenceState], state: PromptState) -> SequenceState | None:
    """Return a row with the prefix of the prompt at the same positions; None for an empty prefix."""
    plan = state.plan
    for row in rows:
        is_same = row.state.patched_model is state.patched_model
        is_same &= row.state.plan.method.prefix_encoding == plan.method.prefix_encoding
        if is_same and row.state.plan.layout.prefix == plan.layout.prefix != ():
            return row
    return None


def find_documents(rows: Iterable[SequenceState], state: PromptState) -> SequenceState | None:
    """Return a row whose prefix and documents the method of the state can reuse."""
    return next((row for row in rows if _shares_documents(row.state, state)), None)


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
    return SequenceState(state, KVCache(layers))


def _shares_documents(source: PromptState, state: PromptState) -> bool:
    cached, plan = source.plan, state.plan
    if source.patched_model is not state.patched_model or cached.layout.prefix != plan.layout.prefix:
        return False
    has_other_positions = cached.moves_documents and cached.method.positions != plan.method.positions
    if has_other_positions or cached.method.document_encoding != plan.method.document_encoding:
        return False
    if plan.method.encodes_set:
        return sorted(cached.layout.documents) == sorted(plan.layout.documents)
    return cached.layout.documents == plan.layout.documents
