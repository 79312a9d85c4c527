"""Answer cards: one method's answer each, side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

AnswerState = Literal["waiting", "reading", "writing", "finished", "stopped", "failed"]


@dataclass(frozen=True)
class AnswerCard:
    """One method's answer as far as it has come.

    method: name in the method table. label, meaning: what the card says about it.
    layers_done, num_layers: progress while reading. text: the answer so far, untrusted.
    num_tokens: answer tokens so far. prefill_s: seconds to read the prompt, None before.
    decode_s_per_token: seconds per token, None before. finish_reason: "stop" or "length".
    message: a sentence to act on, for state "failed". recorded: the answer was recorded, not computed now.
    """

    method: str
    label: str
    meaning: str
    promises_invariance: bool
    state: AnswerState = "waiting"
    text: str = ""
    layers_done: int = 0
    num_layers: int = 0
    num_tokens: int = 0
    prefill_s: float | None = None
    decode_s_per_token: float | None = None
    finish_reason: str = ""
    message: str = ""
    recorded: bool = False


def answer_status(card: AnswerCard) -> str:
    """One line on how far the answer is: "reading the prompt: layer 3 of 30"."""
    return ""


def answer_card(card: AnswerCard) -> str:
    """HTML of one card."""
    return answer_grid([card])


def answer_grid(cards: Sequence[AnswerCard]) -> str:
    """HTML of all cards, side by side where there is room and stacked where not."""
    return ""
