"""How likely a given answer is, after a prompt that has been read."""

from collections.abc import Callable
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
    """How likely a given answer follows a prompt that has been read; the row is left as it was.

    logits: (1, V) of the prompt's last token. ids: the answer's tokens, for which the row must have room.
    on_layer: as in passes.prefill. To be called under torch.inference_mode.
    Raises ModelError if the logits are not finite.
    """
    method = row.state.plan.method.name
    length = row.cache.length
    later = passes.extend([row], [ids[:-1]], on_layer)[0] if len(ids) > 1 else logits[:0]
    row.cache.truncate(length)
    logprobs = torch.cat((logits, later)).float().log_softmax(-1)
    chosen = logprobs.gather(1, torch.tensor(ids, device=logprobs.device)[:, None])[:, 0]
    values = tuple(chosen.tolist())
    for step, value in enumerate(values):
        check_logprob(value, logits, method, step)
    return Score(method, text, ids, values)
