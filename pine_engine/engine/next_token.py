"""What a prompt makes of its next token: the log-probability of every token, or of a few labels."""

import threading
import time
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from pine_engine.attention.state import Row
from pine_engine.engine import passes
from pine_engine.engine.engine import Engine
from pine_engine.engine.events import PrefillDone
from pine_engine.engine.finite import check_finite
from pine_engine.engine.streaming import Emit, layer_reports
from pine_engine.errors import InputError
from pine_engine.methods.table import Method
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.prompt import Piece, Prompt

Label = str | Sequence[str]
"""An answer of one token. A text stands for itself with and without a blank in front, whichever is one
token; a sequence names its spellings, each of which must be one."""

LabelIds = tuple[tuple[int, ...], ...]
"""The token ids of each label's spellings."""


def read_prompt(
    engine: Engine,
    layout: TokenLayout,
    method: Method,
    *,
    room: int,
    emit: Emit,
    cancelled: threading.Event,
) -> tuple[Row, Tensor]:
    """Reads a prompt under one method: its row, and the logits (1, V) of its last token.

    room: how many tokens may follow. Emits PrefillProgress for each layer and PrefillDone; raises
    Cancelled once the flag is set, and ModelError for logits that are not finite. To be called under
    torch.inference_mode.
    """
    on_layer = layer_reports(method.name, engine.num_layers, emit, cancelled)
    began = time.perf_counter()
    row, logits = passes.prefill(engine.wirings, layout, method, room=room, rows_kept=1, on_layer=on_layer)
    emit(PrefillDone(method.name, time.perf_counter() - began))
    check_finite(logits[-1], method.name, 0)
    return row, logits


def log_probabilities(logits: Tensor) -> Tensor:
    """Log-probabilities in nats, float64 on the CPU, where none becomes minus infinity."""
    return logits.cpu().double().log_softmax(-1)


def label_ids(engine: Engine, labels: Sequence[Label]) -> LabelIds:
    """The tokens that spell each label.

    Raises InputError for a label without a spelling of one token, and for two labels that share one.
    """
    ids = tuple(_spellings(engine, label) for label in labels)
    shared = [token for token, count in Counter(token for one in ids for token in one).items() if count > 1]
    if shared:
        same = [_name(label) for label, one in zip(labels, ids, strict=True) if shared[0] in one]
        raise InputError(f"the labels {' and '.join(same)} are the same token; give labels that differ")
    return ids


def label_log_probabilities(logprobs: Tensor, ids: LabelIds) -> Tensor:
    """Log-probability of each label, (labels,): its spellings' probabilities added up. logprobs: (V,)."""
    return torch.stack([logprobs[list(spellings)].logsumexp(0) for spellings in ids])


def _name(label: Label) -> str:
    return repr(label if isinstance(label, str) else label[0])


def _spellings(engine: Engine, label: Label) -> tuple[int, ...]:
    texts = (label, f" {label}") if isinstance(label, str) else tuple(dict.fromkeys(label))
    if not texts or not all(texts) or not texts[0].strip():
        raise InputError("a label is empty; give labels of one token, such as A and B")
    # A label is data, encoded on its own as a document is.
    segments = tuple((Piece(text),) for text in texts)
    encoded = engine.tokenize(Prompt((), segments, (Piece(texts[0]),))).documents
    single = tuple(ids[0] for ids in encoded if len(ids) == 1)
    needed = 1 if isinstance(label, str) else len(texts)
    if len(single) < needed:
        text, ids = next(pair for pair in zip(texts, encoded, strict=True) if len(pair[1]) > 1)
        raise InputError(
            f"the label {text!r} has {len(ids)} tokens; give labels of one token, such as A and B"
        )
    return tuple(dict.fromkeys(single))
