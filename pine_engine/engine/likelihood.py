"""Log-probabilities of answers and of labels after a prefill."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pine_engine.attention.state import SequenceState
from pine_engine.engine import passes
from pine_engine.engine.generation import check_finite, pending_prefill, prefill_progress
from pine_engine.engine.prepared_model import PreparedModel
from pine_engine.errors import InputError
from pine_engine.methods.table import Method
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.prompt import Piece, Prompt
from pine_engine.reprs import short_repr
from pine_engine.scheduling.scheduler import Coroutine, PendingPrefill
from pine_engine.scheduling.worker import NO_CONTROL, RunControl

Label = str | Sequence[str]
"""An answer of one token: a text, also with a leading blank, or all of its spellings."""

LabelIds = tuple[tuple[int, ...], ...]  # token ids of each label's spellings


@dataclass(frozen=True)
class Score:
    """Log-probability of an answer under one method."""

    method: str
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]  # of each token, in nats
    is_greedy: bool = False  # True if each token is the most likely one, as in a greedy answer

    __repr__ = short_repr

    @property
    def total(self) -> float:
        """Log-probability of the whole answer, in nats."""
        return sum(self.logprobs)


@torch.inference_mode()
def score_methods(
    model: PreparedModel,
    layout: TokenLayout,
    methods: Sequence[Method],
    answers: Sequence[tuple[str, tuple[int, ...]]],
    *,
    control: RunControl = NO_CONTROL,
) -> Coroutine[dict[str, list[Score]]]:
    """Return the scores of answers, texts with token ids, under each method."""
    reserved_tokens = max(len(ids) for _, ids in answers)
    rows: list[SequenceState] = []
    logits: list[Tensor] = []
    options = passes.PassOptions(model.patched_models, reserved_tokens)
    for method in methods:
        yield pending_prefill(model, layout.num_tokens)
        on_layer = prefill_progress(control, method.name, model.num_layers)
        row, last = passes.prefill(layout, method, replace(options, on_layer=on_layer, cached_sequences=rows))
        rows.append(row)
        logits.append(last)

    scores = []
    for text, ids in answers:
        yield PendingPrefill(len(rows) * len(ids), is_divisible=False)
        scores.append(score_answers(rows, logits, text, ids, control.check))
    return {method.name: [each[index] for each in scores] for index, method in enumerate(methods)}


def score_answers(
    rows: Sequence[SequenceState],
    logits: Sequence[Tensor],
    text: str,
    ids: tuple[int, ...],
    on_layer: Callable[[float], None] = lambda _: None,
) -> list[Score]:
    """Return the scores of an answer after several prompts in one batch, under torch.inference_mode.

    `logits` (1, V) are those of the last token of each prompt. The rows must have space for the answer, and
    are unchanged afterwards.
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
        is_greedy = logprobs.argmax(-1).tolist() == list(ids)
        scores.append(Score(method, text, ids, tuple(chosen.tolist()), is_greedy))
    return scores


def log_probabilities(logits: Tensor) -> Tensor:
    """Return log-probabilities in nats as float64 on the CPU, where none underflows to minus infinity."""
    return logits.cpu().double().log_softmax(-1)


def label_ids(model: PreparedModel, labels: Sequence[Label]) -> LabelIds:
    """Return the tokens of each label's spellings, which must be one token each and distinct."""
    ids = tuple(_spellings(model, label) for label in labels)
    counts = Counter(token for spellings in ids for token in spellings)
    shared = next((token for token, count in counts.items() if count > 1), None)
    if shared is not None:
        first_spellings = [label if isinstance(label, str) else label[0] for label in labels]
        equal = [repr(text) for text, found in zip(first_spellings, ids, strict=True) if shared in found]
        message = f"labels are not distinct: got {' and '.join(equal)}, which are the same token"
        raise InputError(message, field="labels")
    return ids


def label_log_probabilities(logprobs: Tensor, ids: LabelIds) -> Tensor:
    """Return the log-probability of each label, (labels,), from those of all tokens, (V,)."""
    return torch.stack([logprobs[list(spellings)].logsumexp(0) for spellings in ids])


def _spellings(model: PreparedModel, label: Label) -> tuple[int, ...]:
    texts = (label, f" {label}") if isinstance(label, str) else tuple(dict.fromkeys(label))
    if not texts or not all(texts) or not texts[0].strip():
        raise InputError("a label is empty: expected one token, such as A or B", field="labels")
    # Labels are encoded separately and as data, like documents.
    segments = tuple((Piece(text),) for text in texts)
    encoded = model.tokenize(Prompt((), segments, (Piece(texts[0]),))).documents
    single = tuple(ids[0] for ids in encoded if len(ids) == 1)
    if len(single) < (1 if isinstance(label, str) else len(texts)):
        text, ids = next(pair for pair in zip(texts, encoded, strict=True) if len(pair[1]) > 1)
        message = f"label {text!r} is too long: got {len(ids)} tokens, expected one, such as A or B"
        raise InputError(message, field="labels")
    return tuple(dict.fromkeys(single))
