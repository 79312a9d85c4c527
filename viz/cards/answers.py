"""Answer cards: one method's answer each, side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from viz.drawing.marks import mark, mark_class
from viz.drawing.markup import render

AnswerState = Literal["waiting", "reading", "writing", "finished", "stopped", "failed"]


@dataclass(frozen=True)
class Reading:
    """What a task reads in a finished answer.

    parsed: what the answer says, None if nothing can be read in it. finding: what was looked for, such as
    "verdict". score: 0 to 1, None if no accepted answers are known. drawing: HTML of what is parsed, drawn,
    escaped already; "" if it is not drawn. remark: why not, or "".
    """

    parsed: str | None
    finding: str
    score: float | None = None
    drawing: str = ""
    remark: str = ""

    @property
    def mark(self) -> str:
        """The score as a sign and a word."""
        assert self.score is not None
        return mark(self.score)

    @property
    def kind(self) -> str:
        """The score as the class that colours it."""
        assert self.score is not None
        return mark_class(self.score)


@dataclass(frozen=True)
class AnswerCard:
    """One method's answer as far as it has come.

    method: name in the method table. label, meaning: what the card says about it.
    layers_done, num_layers: progress while reading. text: the answer so far, untrusted.
    num_tokens: answer tokens so far. prefill_s: seconds to read the prompt, None before.
    decode_s_per_token: seconds per token, None before. finish_reason: "stop" or "length".
    message: a sentence to act on, for state "failed". recorded: the answer was recorded, not computed now.
    model: which model answers, "" if that goes without saying. reading: what the answer says, None before.
    """

    method: str
    label: str
    meaning: str
    is_order_invariant: bool
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
    model: str = ""
    reading: Reading | None = None

    @property
    def says(self) -> str:
        """What is read in the answer, where that is not the answer itself."""
        parsed = self.reading.parsed if self.reading else None
        return parsed if parsed is not None and parsed != self.text.strip() else ""

    @property
    def is_busy(self) -> bool:
        """True while the answer is still changing."""
        return self.state in ("reading", "writing")

    @property
    def figures(self) -> list[tuple[str, str]]:
        """Names and values of what was measured so far, with units."""
        measured = []
        if self.num_tokens:
            measured.append(("tokens", str(self.num_tokens)))
        if self.prefill_s is not None:
            measured.append(("reading", f"{self.prefill_s:.2f} s"))
        if self.decode_s_per_token:
            measured.append(("writing", f"{1 / self.decode_s_per_token:.1f} tokens/s"))
        return measured


def answer_status(card: AnswerCard) -> str:
    """One line on how far the answer is: "reading the prompt: layer 3 of 30"."""
    if card.state == "reading":
        if not card.num_layers:
            return "reading the prompt"
        return f"reading the prompt: layer {card.layers_done} of {card.num_layers}"
    if card.state == "finished":
        return "finished at the token limit" if card.finish_reason == "length" else "finished"
    return {"waiting": "waiting", "writing": "writing", "stopped": "stopped", "failed": "failed"}[card.state]


def answer_card(card: AnswerCard) -> str:
    """HTML of one card, without the grid around it."""
    return render("answer_card.html", card=card, status=answer_status(card))


def answer_grid(cards: Sequence[AnswerCard]) -> str:
    """HTML of all cards, side by side where there is room and stacked where not."""
    return render("answer_grid.html", cards=[(card, answer_status(card)) for card in cards])
