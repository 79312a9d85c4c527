"""What the states of one prompt can do for another: prefixes for all methods, documents where they are equal.

The prefix is read the same way by every method. Documents never see what follows them, so another
question on the same documents can start behind them; and where the order of the documents does not
matter, so can another order. PCW and SP read documents alike.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from pine_engine.forward import PromptState, Row
from pine_engine.kv_cache import DocumentBlocks, KVCache, LayerCache, new_layer
from pine_engine.rope import from_pairs


@dataclass
class Memory:
    """Prompts read before by the same engine, to be used again; the caller keeps it and may empty it.

    rows: one for each method and prompt. They hold keys and values, so a long prompt takes a lot of memory.
    """

    rows: list[Row] = field(default_factory=list)


def find_prefix(rows: Iterable[Row], state: PromptState) -> Row | None:
    """A row that has read the prefix of `state`'s prompt and holds it in a layout it can use."""
    return next((row for row in rows if _shares_prefix(row.state, state)), None)


def find_documents(rows: Iterable[Row], state: PromptState) -> Row | None:
    """A row that has read prefix and documents of `state`'s prompt in a way that `state`'s method can use."""
    return next((row for row in rows if _shares_documents(row.state, state)), None)


def fork(donor: Row, state: PromptState, room: int) -> Row:
    """A new row that has read what the donor has, up to the suffix; the donor is left as it is.

    Document blocks are shared, prefix and (without blocks) document rows copied. room: tokens that may
    follow the prompt.
    """
    layout = state.plan.layout
    layers = []
    for layer in donor.cache.layers:
        blocks = layer.blocks
        length = layout.prefix_length if blocks else layout.documents_end
        keys = layer.keys[:, :length]
        if state.holds_pairs and not donor.state.holds_pairs:
            keys = from_pairs(state.rope.to_pairs(keys))
            blocks = blocks and _in_pairs(blocks, state)
        cache = _empty_like(layer, length + layout.suffix_length + room, blocks)
        cache.append(keys, layer.values[:, :length])
        layers.append(cache)
    return Row(state, KVCache(layers))


def _shares_prefix(donor: PromptState, state: PromptState) -> bool:
    same = donor.plan.layout.prefix == state.plan.layout.prefix != ()
    return same and not (donor.holds_pairs and state.plan.model_rotates)


def _shares_documents(donor: PromptState, state: PromptState) -> bool:
    theirs, ours = donor.plan, state.plan
    if theirs.layout.prefix != ours.layout.prefix or theirs.method.encoding != ours.method.encoding:
        return False
    if donor.holds_pairs and not state.holds_pairs:
        return False
    if ours.method.promises_invariance:
        return sorted(theirs.layout.documents) == sorted(ours.layout.documents)
    return theirs.layout.documents == ours.layout.documents


def _in_pairs(blocks: DocumentBlocks, state: PromptState) -> DocumentBlocks:
    keys = [from_pairs(state.rope.to_pairs(part)) for part in blocks.keys]
    return DocumentBlocks(keys, blocks.values, blocks.unrotated_keys)


def _empty_like(layer: LayerCache, capacity: int, blocks: DocumentBlocks | None) -> LayerCache:
    return new_layer(
        num_kv_heads=layer.keys.shape[0],
        capacity=capacity,
        head_dim=layer.keys.shape[-1],
        dtype=layer.keys.dtype,
        device=layer.keys.device,
        blocks=blocks,
    )
