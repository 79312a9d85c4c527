"""Which document each query finds important, and where attention went: arithmetic and captions."""

from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pine_engine.attention.trace import Trace

Normalisation = Literal["raw", "share", "log"]
FloatArray = NDArray[np.float32]

_NORMALISED = {"raw": "", "share": " as a share of its row", "log": " on a logarithmic scale"}


def select_importance(importance: FloatArray, layer: int | None, head: int | None) -> FloatArray:
    """One layer and head of a trace, None for the mean over them.

    importance: float32 (A, H, ...). Returns float32 (...); NaN stays NaN.
    """
    layers = importance if layer is None else importance[layer : layer + 1]
    heads = layers if head is None else layers[:, head : head + 1]
    return np.asarray(heads.mean(axis=(0, 1), dtype=np.float64), dtype=np.float32)


def normalise(importance: FloatArray, normalization: Normalisation) -> FloatArray:
    """Importance divided by the sum of its row ("share"), or as it is ("raw", and "log", which is a scale).

    importance: float32 (..., D), NaN where there is none. Returns the same shape, float32; NaN stays
    NaN, and a row that sums to zero stays zero.
    """
    if normalization != "share":
        return np.asarray(importance, dtype=np.float32)
    sums = np.nansum(importance, axis=-1, keepdims=True, dtype=np.float64)
    return np.asarray(importance / np.where(sums == 0, 1, sums), dtype=np.float32)


def _ranges(importance: FloatArray) -> NDArray[np.float64]:
    """Largest minus smallest share of each query, (A, H, Q): 0 (all documents alike) to 1 (one takes all).

    importance: float32 (A, H, Q, D), NaN where there is none; a row of NaN alone counts as 0.
    """
    # fmax and fmin pass over NaN. Shares are never made in full: a large model has many.
    ranges = np.fmax.reduce(importance, axis=-1) - np.fmin.reduce(importance, axis=-1)
    sums = np.nansum(importance, axis=-1, dtype=np.float64)
    return np.asarray(np.nan_to_num(ranges) / np.where(sums == 0, 1, sums), dtype=np.float64)


def decisiveness(trace: "Trace") -> FloatArray:
    """How much of its attention each layer and head moves by preferring a document to another.

    trace: of a method that ranks. Returns float32 (A, H): the largest less the smallest share of importance,
    times the share of all attention that documents get, mean over the queries; 0 where documents are not read
    at all, however unevenly.
    """
    assert trace.suffix_importance is not None and trace.suffix_attention is not None
    on_documents = trace.suffix_attention[..., 1:-1].sum(axis=-1, dtype=np.float64)
    return np.asarray((_ranges(trace.suffix_importance) * on_documents).mean(axis=-1), dtype=np.float32)


def most_decisive(spreads: FloatArray) -> tuple[int, int]:
    """Layer and head with the largest value; the first of equals. spreads: (A, H)."""
    layer, head = np.unravel_index(int(spreads.argmax()), spreads.shape)
    return int(layer), int(head)


def attention_shares(attention: FloatArray, *, with_rest: bool) -> FloatArray:
    """Attention as it is, or what went to documents divided by its sum.

    attention: float32 (..., 1 + D + 1), shares of the prefix, the documents and the suffix. Returns the same
    with the rest, else float32 (..., D); a row in which documents got nothing stays zero.
    """
    return attention if with_rest else normalise(attention[..., 1:-1], "share")


def place_name(layer: int | None, head: int | None) -> str:
    """The chosen layer and head in a sentence, from 0; None is the mean over all."""
    if layer is None and head is None:
        return "mean over layers and heads"
    place = "mean over layers" if layer is None else f"layer {layer}"
    return place + (", mean over heads" if head is None else f", head {head}")


def importance_caption(
    *, method: str, layer: int | None, head: int | None, normalization: Normalisation, dtype: str
) -> str:
    """What is drawn: layer, head, aggregation, normalization and dtype.

    layer, head: from 0; None means the mean over layers or heads.
    """
    measure = f"attention mass per key-document token{_NORMALISED[normalization]}"
    return (
        f"{method}, {place_name(layer, head)}: {measure}, summed over the query document\u2019s tokens, "
        f"positions ignored, computed in {dtype}. Attention weights are not a full explanation of the answer."
    )
