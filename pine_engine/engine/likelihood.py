"""Log-probabilities of answers and of labels after a prefill."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pine_engine.attention.state import SequenceState
from pine_engine.engine import passes
from pine_engine.engine.events import PrefillDone
from pine_engine.engine.generation import check_finite
from pine_engine.engine.model_worker import Emit, layer_progress_callback
from pine_engine.engine.prepared_model import PreparedModel
from pine_engine.errors import InputError
from pine_engine.methods.table import Method
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.prompt import Piece, Prompt
from pine_engine.reprs import short_repr

Label = str | Sequence[str]
"""An answer of one token: a text, with or without a leading blank, or a sequence of its spellings.

Of a text with and without blank, one spelling must be one token; of a sequence, each."""

LabelIds = tuple[tuple[int, ...], ...]
"""Token ids of each label's spellings."""


@dataclass(frozen=True)
class Score:
    """Log-probability of an answer under one method."""

    method: str
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]  # of each token, in nats

    __repr__ = short_repr

    @property
    def total(self) -> float:
        """Log-probability of the whole answer, in nats."""
        return sum(self.logprobs)


def score_answer(
    row: SequenceState,
    logits: Tensor,
    text: str,
    ids: tuple[int, ...],
    on_layer: Callable[[int], None] = lambda _: None,
) -> Score:
    """Return the score of an answer after one prompt, see score_answers."""
    return score_answers([row], [logits], text, ids, on_layer)[0]


def score_answers(
    rows: Sequence[SequenceState],
    logits: Sequence[Tensor],
    text: str,
    ids: tuple[int, ...],
    on_layer: Callable[[int], None] = lambda _: None,
) -> list[Score]:
    """Return the scores of an answer after several prompts in one batch, under torch.inference_mode.

    `logits` (1, V) are those of the last token of each prompt. The rows must have space for the answer, and
    are unchanged afterwards. Raises ModelError for logits that are not finite.
    """
    later: Sequence[Tensor] = [one[:0] for one in logits]
    if len(ids) > 1:
        lengths = [row.cache.length for row in rows]
        later = list(passes.extend(rows, [ids[:-1]] * len(rows), on_layer))
        for row, length in zip(rows, lengths, strict=True):
            row.cache.truncate(length)
    scores = []
    for row, first, others in zip(rows, logits, later, strict=True):
        method = row.state.plan.method.name
        of_answer = torch.cat((first, others))
        for step in range(len(of_answer)):
            check_finite(of_answer[step], method, step)
        logprobs = of_answer.float().log_softmax(-1)
        chosen = logprobs.gather(1, torch.tensor(ids, device=logprobs.device)[:, None])[:, 0]
        scores.append(Score(method, text, ids, tuple(chosen.tolist())))
    return scores


def read_prompt(
    model: PreparedModel,
    layout: TokenLayout,
    method: Method,
    *,
    reserved_tokens: int,
    emit: Emit,
    cancelled: threading.Event,
) -> tuple[SequenceState, Tensor]:
    """Prefill a prompt and return its state and the logits (1, V) of its last token.

    Runs under torch.inference_mode. Emits PrefillProgress and PrefillDone. Raises ModelError for logits that
    are not finite.
    """
    on_layer = layer_progress_callback(method.name, model.num_layers, emit, cancelled)
    began = time.perf_counter()
    row, logits = passes.prefill(
        model.patched_models,
        layout,
        method,
        reserved_tokens=reserved_tokens,
        logits_to_keep=1,
        on_layer=on_layer,
    )
    emit(PrefillDone(method.name, time.perf_counter() - began))
    check_finite(logits[-1], method.name, 0)
    return row, logits


def log_probabilities(logits: Tensor) -> Tensor:
    """Return log-probabilities in nats as float64 on the CPU, where none underflows to minus infinity."""
    return logits.cpu().double().log_softmax(-1)


def label_ids(model: PreparedModel, labels: Sequence[Label]) -> LabelIds:
    """Return the tokens of each label's spellings.

    Raises InputError for a label without a spelling of one token, and for two labels with the same token.
    """
    ids = tuple(_spellings(model, label) for label in labels)
    counts = Counter(token for spellings in ids for token in spellings)
    shared = [token for token, count in counts.items() if count > 1]
    if shared:
        names = [
            repr(label if isinstance(label, str) else label[0])
            for label, spellings in zip(labels, ids, strict=True)
            if shared[0] in spellings
        ]
        raise InputError(f"the labels {' and '.join(names)} are the same token; give labels that differ")
    return ids


def label_log_probabilities(logprobs: Tensor, ids: LabelIds) -> Tensor:
    """Return the log-probability of each label, (labels,), from those of all tokens, (V,)."""
    return torch.stack([logprobs[list(spellings)].logsumexp(0) for spellings in ids])


def _spellings(model: PreparedModel, label: Label) -> tuple[int, ...]:
    texts = (label, f" {label}") if isinstance(label, str) else tuple(dict.fromkeys(label))
    if not texts or not all(texts) or not texts[0].strip():
        raise InputError("a label is empty; give labels of one token, such as A and B")
    # Labels are encoded separately and as data, like documents.
    segments = tuple((Piece(text),) for text in texts)
    encoded = model.tokenize(Prompt((), segments, (Piece(texts[0]),))).documents
    single = tuple(ids[0] for ids in encoded if len(ids) == 1)
    needed = 1 if isinstance(label, str) else len(texts)
    if len(single) < needed:
        text, ids = next(pair for pair in zip(texts, encoded, strict=True) if len(pair[1]) > 1)
        raise InputError(
            f"the label {text!r} has {len(ids)} tokens; give labels of one token, such as A and B"
        )
    return tuple(dict.fromkeys(single))
