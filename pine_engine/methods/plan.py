"""Attention plan of a method for a prompt: which documents attend to each other, and where segments start.

One formula covers all methods but one: position(query, key) = start(query, segment of key) + offset(key).
Without positions, all starts and offsets are 0. Superposition has real-valued positions.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pine_engine.errors import InputError
from pine_engine.methods.table import Method, Sorting
from pine_engine.prompts.layout import IntArray, TokenLayout

MASKED = -1  # start or position of tokens to which the query does not attend


def check_scores(layout: TokenLayout, methods: Iterable[Method], name: str = "") -> None:
    """Raise InputError if a method needs the score of each document, and one has none.

    The message has the name of the prompt, "" for a single one.
    """
    missing = [slot for slot, score in enumerate(layout.scores or (None,)) if score is None]
    for method in methods:
        if method.needs_scores and missing:
            where = f"{name}: " if name else ""
            message = (
                f"{where}{method.name} needs the score of each document by a retriever, a finite number:"
            )
            advice = 'Add "score" to the documents, or leave the method out.'
            raise InputError(f"{message} document {missing[0] + 1} has none. {advice}", field="methods")


@dataclass(frozen=True)
class AttentionPlan:
    """Attention of one method for one prompt. Positions are in tokens, arrays int64.

    Attributes:
        visible: bool (D, D), True if document a attends to document b. Attention inside a document is causal.
        query_starts: (D,), position of each document's first token as a query, and as a key for the document.
        suffix_start: Position of the first suffix token as a query and as a key.
        document_starts: (D, D), start of document b for document a, where visible; None if ranked.
        suffix_document_starts: (D,), start of each document for the suffix; None if ranked.
        question_length: Number of tokens of the question at the end of every document; mostly 0.
    """

    method: Method
    layout: TokenLayout
    visible: NDArray[np.bool_]
    query_starts: IntArray
    suffix_start: int
    document_starts: IntArray | None
    suffix_document_starts: IntArray | None
    question_length: int = 0

    @cached_property
    def prompt(self) -> TokenLayout:
        """The prompt in which the question, if repeated, is once, after the documents."""
        if self.method.question == "once":
            return self.layout
        layout, ends = self.layout, self.layout.lengths - self.question_length
        documents = tuple(ids[:end] for ids, end in zip(layout.documents, ends, strict=True))
        suffix = layout.documents[0][ends[0] :] + layout.suffix
        return TokenLayout(layout.prefix, documents, suffix, layout.suffix_length)

    @property
    def num_pairs(self) -> float:
        """Estimated pairs of a query and a key that attention computes; a score to rank is half of one."""
        layout = self.layout
        lengths, count = layout.lengths, layout.documents_end - layout.prefix_length
        by_documents = lengths @ (layout.prefix_length + self.visible @ lengths)
        ranked = count * (layout.num_tokens - layout.prefix_length) / 2 if self.is_ranked else 0
        causal = layout.prefix_length**2 / 2 + layout.suffix_length * layout.num_tokens
        return float(by_documents + ranked + causal)

    @cached_property
    def segments(self) -> IntArray:
        """Segment of each token, (n,): 0 prefix, 1 .. D documents, D + 1 suffix, also a repeated question."""
        layout = self.layout
        lengths = [layout.prefix_length, *layout.lengths, layout.suffix_length]
        segments = np.repeat(np.arange(len(lengths)), lengths)
        for end in layout.document_starts + layout.lengths:
            segments[end - self.question_length : end] = layout.num_documents + 1
        return segments

    @property
    def num_visible_prefix_tokens(self) -> int:
        """Number of prefix tokens that a document attends to, the first ones."""
        length = self.layout.prefix_length
        return min(1, length) if self.method.mask == "alone" else length

    @property
    def is_ranked(self) -> bool:
        """True if each query places the documents by their importance."""
        return self.document_starts is None

    @cached_property
    def model_rotates(self) -> bool:
        """True if the model rotates by position ids; else its position ids are 0, and PINE rotates."""
        is_bidirectional = self.method.mask == "bidirectional"
        if self.document_starts is None or is_bidirectional or self.method.is_rotated:
            return False
        # Each key of the documents has one position for all queries but those of the suffix.
        return bool((self.document_starts == self.query_starts)[self.visible].all())

    @cached_property
    def moves_documents(self) -> bool:
        """True if a document has other positions for the suffix than for itself."""
        starts = self.suffix_document_starts
        return starts is not None and bool((starts != self.query_starts).any())

    @property
    def is_reversed(self) -> bool:
        """True if more important documents are placed farther."""
        return self.method.positions == "importance_reversed"

    @property
    def contiguous_positions(self) -> bool:
        """True if prefix and documents are at positions 0 .. E - 1 without gaps for every document."""
        fills = self.is_ranked or self.method.positions in ("own_last", "rotated")
        return self.method.mask == "bidirectional" and fills

    def attention_mask(self, queries: IntArray, keys: IntArray) -> NDArray[np.bool_]:
        """Return the attention mask, bool (Q, K): True if the query attends to the key.

        Args:
            queries: Physical indices of tokens, (Q,); indices after the prompt are decoded tokens.
            keys: Physical indices of tokens, (K,).
        """
        last = self.layout.num_tokens - 1  # decoded tokens continue the suffix
        of_queries, of_keys = (self.segments[np.minimum(tokens, last)] for tokens in (queries, keys))
        pairs = np.ix_(of_queries, of_keys)
        is_causal = np.pad(np.eye(self.layout.num_documents, dtype=bool), 1, constant_values=True)
        mask: NDArray[np.bool_] = np.where(
            is_causal[pairs], keys <= queries[:, None], np.pad(self.visible, 1)[pairs]
        )
        in_document = (of_queries > 0) & (of_queries <= self.layout.num_documents)
        is_hidden = (of_keys == 0) & (keys >= self.num_visible_prefix_tokens)
        mask &= ~(in_document[:, None] & is_hidden)
        return mask

    def query_positions(self, num_decoded: int = 0) -> NDArray[Any]:
        """Return the position of every token of prompt and answer as a query, (n + num_decoded,).

        Positions are int64, or float32 where they are real numbers.

        Args:
            num_decoded: Number of decoded tokens.
        """
        layout = self.layout
        if not self.method.has_positions:
            return np.zeros(layout.num_tokens + num_decoded, dtype=np.int64)
        if self.method.positions == "equilibrium":
            return self._equilibrium_positions(num_decoded)
        moved = np.repeat(self.query_starts - layout.document_starts, layout.lengths)
        positions = np.arange(layout.num_tokens + num_decoded)
        positions[layout.prefix_length : layout.documents_end] += moved
        positions[layout.documents_end :] += self.suffix_start - layout.documents_end
        return positions

    def _equilibrium_positions(self, num_decoded: int) -> NDArray[np.float32]:
        """Return positions in which every document spans the harmonic mean of all lengths.

        Source: Merth et al. 2024, "equilibrium position assignment".
        """
        layout, count = self.layout, self.question_length
        lengths = layout.lengths - count
        # fsum does not depend on the order of its terms.
        mean = len(lengths) / math.fsum(1 / lengths)
        stretched = [
            np.append(np.arange(length) * (mean / length), mean + np.arange(count)) for length in lengths
        ]
        suffix = mean + count + np.arange(layout.suffix_length + num_decoded)
        after_prefix = layout.prefix_length + np.concatenate([*stretched, suffix])
        return np.append(np.arange(layout.prefix_length), after_prefix).astype(np.float32)


def build_plan(method: Method, layout: TokenLayout) -> AttentionPlan:
    """Return the plan of a method for a prompt. Source: specification 3; section 6 has worked examples.

    The plan of a method that repeats the question is one for the prompt with the question in every document.

    Args:
        method: Method.
        layout: Tokenized prompt.
    """
    question_length = 0
    if method.question == "in_every_document":
        question_length = layout.suffix_length - layout.task_length
        layout = layout.repeat_question()
    count, lengths = layout.num_documents, layout.lengths
    end = layout.documents_end
    shared_end = layout.prefix_length + int(lengths.max())
    input_starts = layout.document_starts
    shared_starts = np.full(count, layout.prefix_length)
    own_at_end = end - lengths
    is_own = np.eye(count, dtype=bool)
    all_pairs = np.ones((count, count), dtype=bool)
    # Documents after the query's own move up, so that there is no gap (specification 3.6).
    own_last = np.where(is_own, own_at_end, input_starts - np.triu(lengths[:, None] * all_pairs))
    by_content = np.array(sort_documents(layout, method.sorting))
    own_first = np.stack([np.roll(by_content, -place) for place in by_content.argsort()])
    rotated, rotated_for_suffix = (
        starts_from_ranking(ranking, lengths, end) for ranking in (own_first, by_content)
    )
    zeros = np.zeros(count, dtype=np.int64)

    # Each entry: query_starts, suffix_start, document_starts, suffix_document_starts.
    query_starts, suffix_start, document_starts, suffix_document_starts = {
        "input": (input_starts, end, input_starts, input_starts),
        "own_last": (own_at_end, end, own_last, input_starts),
        "own_at_end": (own_at_end, end, np.where(is_own, own_at_end, input_starts), input_starts),
        "shared": (shared_starts, shared_end, shared_starts, shared_starts),
        "shared_right": (shared_starts, shared_end, shared_starts, shared_end - lengths),
        "importance": (own_at_end, end, None, None),
        "importance_reversed": (own_at_end, end, None, None),
        "rotated": (own_at_end, end, rotated, rotated_for_suffix),
        "equilibrium": (shared_starts, shared_end, shared_starts, shared_starts),
        "none": (zeros, 0, zeros, zeros),
    }[method.positions]
    if method.mask == "alone" and method.recomputed == "nothing":
        # Prefilled after the first prefix token, then placed for the suffix.
        query_starts = document_starts = np.full(count, min(1, layout.prefix_length))
    visible = {"causal": np.tril(all_pairs), "none": is_own, "alone": is_own, "bidirectional": all_pairs}
    mask = method.mask if method.recomputed == "nothing" else "causal"  # of the recomputed tokens
    if document_starts is not None:
        document_starts = np.broadcast_to(document_starts, all_pairs.shape)
    starts = (query_starts, suffix_start, document_starts, suffix_document_starts)
    return AttentionPlan(method, layout, visible[mask], *starts, question_length)


def sort_documents(layout: TokenLayout, sorting: Sorting) -> list[int]:
    """Return the documents by their contents, the closest to the suffix first; token ids resolve ties."""
    documents, counts = layout.documents, Counter[int]()
    if sorting == "frequency":  # as in the released code, the first token of the prompt counts too
        counts.update(token for ids in (layout.prefix[:1], *documents) for token in ids)
    keys = [([-counts[token] for token in ids if counts], ids) for ids in documents]
    return sorted(range(len(documents)), key=keys.__getitem__)


def starts_from_ranking(ranking: IntArray, lengths: IntArray, end: int) -> IntArray:
    """Return the start of each document if ranked documents fill the positions before `end` without gaps.

    `arithmetic.starts_from_ranking` is the same for tensors. Source: specification 3.5, start(a, b).

    Shape:
        ranking: (..., D), the most important document first. lengths: (D,). Returns: int64 (..., D).
    """
    ranked_starts = end - lengths[ranking].cumsum(-1)
    return np.take_along_axis(ranked_starts, ranking.argsort(-1), -1)
