"""How likely a given answer is, after a prompt that has been read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pine_engine.attention.state import Row
from pine_engine.engine import passes
from pine_engine.engine.finite import check_logprob
from pine_engine.shown import short_repr


@dataclass(frozen=True)
class Score:
    """How likely one method finds a given answer.

    token_ids: the answer's tokens. logprobs: natural log-probability of each, in nats.
    """

    method: str
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]

    __repr__ = short_repr

    @property
    def total(self) -> float:
        """Log-probability of the whole answer, in nats."""
        return sum(self.logprobs)


def score_answer(
    row: Row,
    logits: Tensor,
    text: str,
    ids: tuple[int, ...],
    on_layer: Callable[[int], None] = lambda _: None,
) -> Score:
    """How likely a given answer follows a prompt that has been read; all as in score_answers."""
    return score_answers([row], [logits], text, ids, on_layer)[0]


def score_answers(
    rows: Sequence[Row],
    logits: Sequence[Tensor],
    text: str,
    ids: tuple[int, ...],
    on_layer: Callable[[int], None] = lambda _: None,
) -> list[Score]:
    """How likely a given answer follows each of several prompts that have been read.

    The rows read it together, and are left as they were. logits: (1, V) each, of the prompt's last token.
    ids: the answer's tokens, for which the rows must have room. on_layer: as in passes.prefill. To be called
    under torch.inference_mode.
    Raises ModelError if the logits are not finite.
    """
    later: Sequence[Tensor] = [one[:0] for one in logits]
    if len(ids) > 1:
        lengths = [row.cache.length for row in rows]
        later = list(passes.extend(rows, [ids[:-1]] * len(rows), on_layer))
        for row, length in zip(rows, lengths, strict=True):
            row.cache.truncate(length)
    return [_score(*one, text, ids) for one in zip(rows, logits, later, strict=True)]


def _score(row: Row, logits: Tensor, later: Tensor, text: str, ids: tuple[int, ...]) -> Score:
    """later: (n, V), of what follows each token of the answer but the last."""
    method = row.state.plan.method.name
    logprobs = torch.cat((logits, later)).float().log_softmax(-1)
    chosen = logprobs.gather(1, torch.tensor(ids, device=logprobs.device)[:, None])[:, 0]
    values = tuple(chosen.tolist())
    for step, value in enumerate(values):
        check_logprob(value, logits, method, step)
    return Score(method, text, ids, values)
