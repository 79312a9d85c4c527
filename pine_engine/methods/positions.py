"""What a plan says of single tokens: who sees whom, and at which position.

The one place for this arithmetic: what attention places, what a trace keeps and what the page draws.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pine_engine.methods.plan import AttentionPlan
from pine_engine.prompts.layout import IntArray

MASKED = -1
"""Entry of a position matrix where the query may not see the key."""

Tokens = NDArray[np.integer[Any]]
"""Physical indices of tokens; those behind the prompt are decoded ones."""


def document_of(plan: AttentionPlan, tokens: Tokens) -> IntArray:
    """The document of each token, (n,); any number for those outside the documents."""
    starts = plan.layout.document_starts
    return np.searchsorted(starts, tokens, side="right").clip(1, len(starts)) - 1


def is_in_document(plan: AttentionPlan, tokens: Tokens) -> NDArray[np.bool_]:
    """Which tokens stand in a document, (n,)."""
    return (plan.layout.prefix_length <= tokens) & (tokens < plan.layout.documents_end)


def who_sees_whom(plan: AttentionPlan, queries: Tokens, keys: Tokens) -> NDArray[np.bool_]:
    """Which query (row) may attend to which key (column), bool (Q, K)."""
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
    """The position each query gives to each key: the matrices of docs/specification.md section 6, or a part.

    document_starts: (D, D), where document b starts as seen from document a. suffix_starts: (T', D),
    the same for each of T' >= T suffix tokens, decoded ones included. queries, keys: rows and columns of
    the part; all tokens for None.
    Returns int64 (Q, K); MASKED where the query may not see the key.
    """
    layout, end = plan.layout, plan.layout.documents_end
    every = np.arange(end + len(suffix_starts))
    queries, keys = every if queries is None else queries, every if keys is None else keys
    of_query, of_key = document_of(plan, queries), document_of(plan, keys)
    from_documents = document_starts[np.ix_(of_query, of_key)]
    from_suffix = suffix_starts[np.ix_((queries - end).clip(0), of_key)]
    starts = np.where((queries >= end)[:, None], from_suffix, from_documents)
    outside = np.where(keys < end, keys, keys - end + plan.suffix_start)
    positions = np.where(is_in_document(plan, keys), starts + keys - layout.document_starts[of_key], outside)
    return np.where(who_sees_whom(plan, queries, keys), positions, MASKED)


def starts_from_ranking(ranking: Tokens, lengths: IntArray, end: int) -> IntArray:
    """Start of each document when ranked documents tile the positions before `end` without gaps.

    ranking: (..., D), the most important document first. lengths: (D,) in tokens.
    Returns int64 (..., D): start of document b, so that the most important one ends at end - 1.
    Source: specification 3.5, start(a, b) = E - L_b - shift(a, b). Attention ranks on the device where it
    computes: `arithmetic.starts_from_ranking` is the same of tensors.
    """
    ranked_starts = end - lengths[ranking].cumsum(-1)
    return np.take_along_axis(ranked_starts, ranking.argsort(-1), -1)
