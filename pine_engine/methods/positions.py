"""Masks and positions of single tokens under an attention plan, for attention, traces and figures."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pine_engine.methods.plan import AttentionPlan
from pine_engine.prompts.layout import IntArray

MASKED = -1
"""Entry of a position matrix if the query does not attend to the key."""

Tokens = NDArray[np.integer[Any]]
"""Physical indices of tokens; indices after the prompt are decoded tokens."""


def document_of(plan: AttentionPlan, tokens: Tokens) -> IntArray:
    """Return the document of each token, (n,); undefined for tokens outside the documents."""
    starts = plan.layout.document_starts
    return np.searchsorted(starts, tokens, side="right").clip(1, len(starts)) - 1


def is_in_document(plan: AttentionPlan, tokens: Tokens) -> NDArray[np.bool_]:
    """Return True for tokens of documents, bool (n,)."""
    return (plan.layout.prefix_length <= tokens) & (tokens < plan.layout.documents_end)


def attention_mask(plan: AttentionPlan, queries: Tokens, keys: Tokens) -> NDArray[np.bool_]:
    """Return the attention mask, bool (Q, K): True if the query attends to the key."""
    of_query, of_key = document_of(plan, queries), document_of(plan, keys)
    inside = is_in_document(plan, queries)[:, None] & is_in_document(plan, keys)
    visible = plan.visible[np.ix_(of_query, of_key)]
    return np.where(inside & (of_query[:, None] != of_key), visible, keys <= queries[:, None])


def position_matrix(
    plan: AttentionPlan,
    document_starts: Tokens,
    suffix_starts: Tokens,
    queries: Tokens | None = None,
    keys: Tokens | None = None,
) -> IntArray:
    """Return the position of each key for each query: the matrices of docs/specification.md, section 6.

    Shape:
        document_starts: (D, D), start of document b for document a.
        suffix_starts: (T, D), start of each document for suffix and decoded tokens.
        queries, keys: (Q,) and (K,), tokens of the result; None for all tokens.
        Returns: int64 (Q, K), MASKED if the query does not attend to the key.
    """
    layout, end = plan.layout, plan.layout.documents_end
    tokens = np.arange(end + len(suffix_starts))
    queries, keys = tokens if queries is None else queries, tokens if keys is None else keys
    of_query, of_key = document_of(plan, queries), document_of(plan, keys)
    from_documents = document_starts[np.ix_(of_query, of_key)]
    from_suffix = suffix_starts[np.ix_((queries - end).clip(0), of_key)]
    starts = np.where((queries >= end)[:, None], from_suffix, from_documents)
    outside = np.where(keys < end, keys, keys - end + plan.suffix_start)
    positions = np.where(is_in_document(plan, keys), starts + keys - layout.document_starts[of_key], outside)
    return np.where(attention_mask(plan, queries, keys), positions, MASKED)


def starts_from_ranking(ranking: Tokens, lengths: IntArray, end: int) -> IntArray:
    """Return the start of each document if ranked documents fill the positions before `end` without gaps.

    `arithmetic.starts_from_ranking` is the same for tensors. Source: specification 3.5, start(a, b).

    Shape:
        ranking: (..., D), the most important document first. lengths: (D,). Returns: int64 (..., D).
    """
    ranked_starts = end - lengths[ranking].cumsum(-1)
    return np.take_along_axis(ranked_starts, ranking.argsort(-1), -1)
