"""From a method and a layout to an attention plan: who sees whom, and where segments start.

One formula serves every method: position(query, key) = start(query, segment of key) + offset(key).
`positions.py` works it out token by token.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pine_engine.methods.table import Method
from pine_engine.prompts.layout import IntArray, TokenLayout


@dataclass(frozen=True)
class AttentionPlan:
    """What a method does with one prompt; int64 arrays, positions in tokens.

    visible: bool (D, D), may tokens of document a see document b; the diagonal is always True and
        causal inside.
    query_starts: (D,), position of each document's first token as a query; as a key its own
        document sees it there too.
    suffix_start: position of the first suffix token, as query and as key.
    document_starts: (D, D), where document b starts as seen from document a, meaningless where it is
        not visible; None if ranked.
    suffix_document_starts: (D,), where document b starts as seen from the suffix; None if ranked.
    """

    method: Method
    layout: TokenLayout
    visible: NDArray[np.bool_]
    query_starts: IntArray
    suffix_start: int
    document_starts: IntArray | None
    suffix_document_starts: IntArray | None

    @cached_property
    def segments(self) -> IntArray:
        """Segment of each token of the prompt, (n,): 0 prefix, 1 .. D documents, D + 1 suffix."""
        layout = self.layout
        lengths = [layout.prefix_length, *layout.lengths, layout.suffix_length]
        return np.repeat(np.arange(len(lengths)), lengths)

    @property
    def is_ranked(self) -> bool:
        """True if where a document stands depends on the data: on each query's importances."""
        return self.document_starts is None

    @cached_property
    def has_fixed_keys(self) -> bool:
        """True if inside prefix and documents every key has one position, its own as a query, for all who
        see it; then the model itself can rotate."""
        if self.document_starts is None:
            return False
        return bool((self.document_starts == self.query_starts)[self.visible].all())

    @cached_property
    def model_rotates(self) -> bool:
        """True if the model is given real positions and rotates; else it is given zeros and we rotate."""
        return self.has_fixed_keys and self.method.mask != "bidirectional"

    @cached_property
    def moves_documents(self) -> bool:
        """True if the suffix sees a document elsewhere than its own tokens do."""
        starts = self.suffix_document_starts
        return starts is not None and bool((starts != self.query_starts).any())

    @property
    def is_reversed(self) -> bool:
        """True if more important documents are placed farther."""
        return self.method.positions == "importance_reversed"

    @property
    def contiguous_positions(self) -> bool:
        """True if for every document query prefix and documents stand at 0 .. E - 1 without gaps."""
        return self.method.mask == "bidirectional" and (self.is_ranked or self.method.positions == "own_last")

    def query_positions(self, num_decoded: int = 0) -> IntArray:
        """Position of every token as a query, (n + num_decoded,)."""
        layout = self.layout
        moved = np.repeat(self.query_starts - layout.document_starts, layout.lengths)
        positions = np.arange(layout.num_tokens + num_decoded)
        positions[layout.prefix_length : layout.documents_end] += moved
        positions[layout.documents_end :] += self.suffix_start - layout.documents_end
        return positions


def build_plan(method: Method, layout: TokenLayout) -> AttentionPlan:
    """The plan of one method for one prompt. Source: docs/specification.md section 3, worked in section 6."""
    count, lengths = layout.num_documents, layout.lengths
    end = layout.documents_end
    shared_end = layout.prefix_length + int(lengths.max())
    input_starts = layout.document_starts
    shared_starts = np.full(count, layout.prefix_length)
    own_at_end = end - lengths
    is_own = np.eye(count, dtype=bool)
    every = np.ones((count, count), dtype=bool)
    # Without a gap: the documents behind the query's own close up (specification 3.6).
    own_last = np.where(is_own, own_at_end, input_starts - np.triu(lengths[:, None] * every))

    # Each row: query_starts, suffix_start, document_starts, suffix_document_starts.
    query_starts, suffix_start, document_starts, suffix_document_starts = {
        "input": (input_starts, end, input_starts, input_starts),
        "own_last": (own_at_end, end, own_last, input_starts),
        "own_at_end": (own_at_end, end, np.where(is_own, own_at_end, input_starts), input_starts),
        "shared": (shared_starts, shared_end, shared_starts, shared_starts),
        "shared_right": (shared_starts, shared_end, shared_starts, shared_end - lengths),
        "importance": (own_at_end, end, None, None),
        "importance_reversed": (own_at_end, end, None, None),
    }[method.positions]
    visible = {"causal": np.tril(every), "none": is_own, "bidirectional": every}
    return AttentionPlan(
        method=method,
        layout=layout,
        visible=visible[method.mask],
        query_starts=query_starts,
        suffix_start=suffix_start,
        document_starts=None if document_starts is None else np.broadcast_to(document_starts, every.shape),
        suffix_document_starts=suffix_document_starts,
    )
