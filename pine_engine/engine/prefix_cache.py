"""What the states of one prompt can do for another: prefixes for all methods, documents where they are equal.

The prefix is read the same way by every method. Documents never see what follows them, so another
question on the same documents can start behind them; and where the order of the documents does not
matter, so can another order. PCW and SP read documents alike.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pine_engine.attention.kv_cache import KVCache, empty_like
from pine_engine.attention.state import PromptState, Row
from pine_engine.errors import InputError


@dataclass
class Memory:
    """Prompts read before by the same model, to be used again; the caller keeps it and may empty it.

    rows: one for each method and prompt. They hold keys and values, so a long prompt takes a lot of memory.
    """

    rows: list[Row] = field(default_factory=list)
    _reader: Any = field(default=None, init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        return f"Memory({len(self.rows)} rows)"

    def belong_to(self, model: Any) -> None:
        """Notes whose states these are. Raises InputError if they are those of another model."""
        if self.rows and self._reader is not model:
            raise InputError(
                "this memory holds what another model has read; give each engine a memory of its own"
            )
        self._reader = model


def find_prefix(rows: Iterable[Row], state: PromptState) -> Row | None:
    """A row that has read the prefix of `state`'s prompt, under any method; None for an empty prefix."""
    prefix = state.plan.layout.prefix
    alike = (row for row in rows if row.state.wiring is state.wiring)
    return next((row for row in alike if row.state.plan.layout.prefix == prefix != ()), None)


def find_documents(rows: Iterable[Row], state: PromptState) -> Row | None:
    """A row that has read prefix and documents of `state`'s prompt in a way that `state`'s method can use."""
    return next((row for row in rows if _shares_documents(row.state, state)), None)


def fork(donor: Row, state: PromptState, room: int) -> Row:
    """A new row that has read what the donor has, up to the suffix; the donor is left as it is.

    Document blocks are shared, prefix and (without blocks) document rows copied. room: tokens that may
    follow the prompt.
    """
    layout = state.plan.layout
    length = layout.prefix_length if state.plan.is_ranked else layout.documents_end
    layers = []
    for index, layer in enumerate(donor.cache.layers):
        strategy = state.strategy(layer.keys.device)
        cache = empty_like(layer, length + layout.suffix_length + room)
        cache.append(
            strategy.adopt(index, layer.keys[:, :length], donor.state.plan), layer.values[:, :length]
        )
        layers.append(cache)
    return Row(state, KVCache(layers))


def _shares_documents(donor: PromptState, state: PromptState) -> bool:
    theirs, ours = donor.plan, state.plan
    if donor.wiring is not state.wiring:
        return False
    if theirs.layout.prefix != ours.layout.prefix or theirs.method.encoding != ours.method.encoding:
        return False
    if theirs.moves_documents and theirs.method.positions != ours.method.positions:
        return False
    if ours.method.promises_invariance:
        return sorted(theirs.layout.documents) == sorted(ours.layout.documents)
    return theirs.layout.documents == ours.layout.documents
