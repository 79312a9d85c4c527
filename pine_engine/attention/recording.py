"""What attention reports to a trace, computed beside it only where a trace asks."""

from torch import Tensor

from pine_engine.attention.arithmetic import attention_weights, tail_mask
from pine_engine.attention.state import PromptState
from pine_engine.attention.trace import TraceRecorder
from pine_engine.network.registration import Scoring


def record_suffix(
    state: PromptState,
    recorder: TraceRecorder,
    layer: int,
    first: int,
    query: Tensor,
    keys: Tensor,
    scoring: Scoring,
    bias: Tensor | None,
) -> None:
    """Attention of a continuation over plain keys: of its suffix tokens, and of whatever was asked for."""
    index = state.stored_index[: keys.shape[1]]
    record_asked(recorder, layer, first, query, keys, index, scoring, bias)
    suffix = query[:, max(0, state.plan.layout.documents_end - first) :]
    weights = attention_weights(suffix, keys, scoring, tail_mask(suffix, keys.shape[1], bias))
    recorder.record_attention(layer, weights @ state.stored_segment[: keys.shape[1]])


def record_asked(
    recorder: TraceRecorder,
    layer: int,
    first: int,
    query: Tensor,
    keys: Tensor,
    key_index: Tensor,
    scoring: Scoring,
    bias: Tensor | None = None,
) -> None:
    """Token-level weights asked for, of queries (H, Q, d) from `first` on, the last of their keys.

    keys: (G, K, d) or (H, K, d). key_index: (K,), or (H, K) where heads lay keys out on their own.
    """
    for asked, rows in recorder.asked(layer, first, query.shape[1]):
        head = asked.head // (query.shape[0] // keys.shape[0])
        own = query[asked.head : asked.head + 1]
        mask = tail_mask(own, keys.shape[1], bias)
        weights = attention_weights(own, keys[head : head + 1], scoring, mask)[0, rows]
        index = key_index if key_index.dim() == 1 else key_index[head]
        recorder.record_tokens(asked, first + rows.start, weights, index)
