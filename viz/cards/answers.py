"""Answer cards: one per method, side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from viz.drawing.markup import render
from viz.drawing.text import score_class, score_mark

AnswerState = Literal["waiting", "reading", "writing", "finished", "stopped", "failed"]


@dataclass(frozen=True)
class Reading:
    """Parsed answer of a task.

    Attributes:
        parsed: Parsed value; None if the answer could not be parsed.
        finding: Name of the value, such as "verdict".
        score: 0 to 1; None without accepted answers.
        drawing: Escaped HTML of the drawn value; "" if it is not drawn.
        remark: Reason for a missing drawing, or "".
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
        return score_mark(self.score)

    @property
    def kind(self) -> str:
        """The score as the class that colors it."""
        assert self.score is not None
        return score_class(self.score)


@dataclass(frozen=True)
class AnswerCard:
    """Answer of one method so far.

    Attributes:
        method: Name of the method.
        text: Answer so far, untrusted.
        prefill_s: Seconds of the prefill; None before.
        decode_s_per_token: Seconds per token; None before.
        finish_reason: "stop" or "length".
        message: Sentence on what to do next, for state "failed".
        recorded: The answer is recorded and was not computed now.
        model: Model that answers; "" if it is the only one.
        reading: Parsed answer; None before.
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
        """Parsed value, where it is not the answer itself."""
        parsed = self.reading.parsed if self.reading else None
        return parsed if parsed is not None and parsed != self.text.strip() else ""

    @property
    def is_busy(self) -> bool:
        """True while the answer is still changing."""
        return self.state in ("reading", "writing")

    @property
    def figures(self) -> list[tuple[str, str]]:
        """Names and values of the measurements so far, with units."""
        measured = []
        if self.num_tokens:
            measured.append(("tokens", str(self.num_tokens)))
        if self.prefill_s is not None:
            measured.append(("reading", f"{self.prefill_s:.2f} s"))
        if self.decode_s_per_token:
            measured.append(("writing", f"{1 / self.decode_s_per_token:.1f} tokens/s"))
        return measured

    @property
    def status(self) -> str:
        """Progress in one line: "reading the prompt: layer 3 of 30"."""
        if self.state == "reading":
            layers = f": layer {self.layers_done} of {self.num_layers}" if self.num_layers else ""
            return f"reading the prompt{layers}"
        if self.state == "finished" and self.finish_reason == "length":
            return "finished at the token limit"
        return self.state


def answer_grid(cards: Sequence[AnswerCard]) -> str:
    """Render all cards, side by side where there is space."""
    return render("answer_grid.html", cards=cards)
