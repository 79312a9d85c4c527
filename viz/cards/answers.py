"""Answer cards: one per method, side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

import pine_engine as pine
from viz.drawing.markup import render

AnswerState = Literal["waiting", "reading", "writing", "finished", "stopped"]

Source = Literal["own", "recorded", "shared", "checked"]
"""Source of an answer.

"own": in this session. "recorded": with the page. "shared": by someone else, read from a link or a file.
"checked": in this session, after a shared answer to the same input.
"""

_SOURCE_LABELS: dict[Source, str] = {"recorded": "precomputed", "shared": "by someone else"}

_STATUS: dict[AnswerState, str] = {
    "waiting": "Queued",
    "reading": "Prefill",
    "writing": "Generating",
    "finished": "Done",
    "stopped": "Stopped",
}


@dataclass(frozen=True)
class Reading:
    """Parsed answer of a task."""

    parsed: str | None  # None if the answer could not be parsed
    finding: str  # name of the value, such as "verdict"
    score: float | None = None  # 0 to 1; None without accepted answers
    drawing: str = ""  # escaped HTML of the drawn value
    remark: str = ""  # reason for a missing drawing
    rule: str = ""  # condition of a correct answer, with the accepted ones; "" without any
    is_cut_off: bool = False  # True if the score is 1, but the answer has no end


@dataclass(frozen=True)
class AnswerCard:
    """Answer of one method so far; seconds are None before they are measured."""

    method: str
    state: AnswerState = "waiting"
    text: str = ""  # untrusted, as is the thinking part
    thinking: str = ""
    is_finished: bool = True  # False if the tokens end inside the thinking part
    prefill: "pine.PrefillProgress | None" = None
    num_tokens: int = 0
    prefill_s: float | None = None
    decode_s_per_token: float | None = None
    finish_reason: str = ""  # "stop" or "length"
    refusal: str = ""  # reason of a server that refuses to answer
    source: Source = "own"
    model: str = ""  # "" if it is the only one
    reading: Reading | None = None

    @classmethod
    def finished(cls, answer: "pine.Answer") -> Self:
        """Return the card of a finished answer, whose times may be unknown, or of a refusal."""
        if answer.refusal:
            return cls(answer.method, "stopped", refusal=answer.refusal)
        return cls(
            method=answer.method,
            state="finished",
            text=answer.text,
            thinking=answer.thinking,
            is_finished=answer.is_finished,
            num_tokens=answer.num_tokens,
            prefill_s=answer.times.get("prefill_s"),
            decode_s_per_token=answer.times.get("decode_s_per_token"),
            finish_reason=answer.finish_reason,
        )

    @property
    def row(self) -> "pine.Method":
        """Method of the card."""
        return pine.METHODS[self.method]

    @property
    def source_label(self) -> str:
        """Source of the answer in words; "" for this session."""
        return _SOURCE_LABELS.get(self.source, "")

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
            measured.append(("prefill", f"{self.prefill_s:.2f} s"))
        if self.decode_s_per_token:
            measured.append(("decode", f"{1 / self.decode_s_per_token:.1f} tokens/s"))
        return measured

    @property
    def status(self) -> str:
        """Progress in one line: "Prefill: layer 4 of 30"."""
        if self.state == "finished" and self.finish_reason == "length":
            return f"Stopped at the token limit{'' if self.is_finished else ', inside the thinking part'}"
        if self.refusal:
            return f"No answer: {self.refusal}"
        place = f": {self.prefill.place}" if self.state == "reading" and self.prefill else ""
        return _STATUS[self.state] + place


def answer_grid(cards: Sequence[AnswerCard]) -> str:
    """Render all cards, side by side where there is space."""
    return render("answer_grid.html", cards=cards)
