"""How a token is written in a figure: blanks made visible, long ones shortened, a window of many."""

from collections.abc import Sequence
from dataclasses import dataclass

from viz.drawing.identity import Segment

_VISIBLE = str.maketrans({" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍", "\u00a0": "⍽"})


@dataclass(frozen=True)
class Token:
    """One token of a figure's axis.

    text: as decoded, untrusted. segment: which part of the prompt it belongs to.
    offset: tokens from the start of that segment.
    """

    text: str
    segment: Segment
    offset: int

    @property
    def label(self) -> str:
        """The text with blanks made visible, at most 12 characters."""
        return shorten(visible_text(self.text), 12)

    @property
    def name(self) -> str:
        """Name in a sentence: token 3 “cat” of document A, counted from 1."""
        return f"token {self.offset + 1} \u201c{self.label}\u201d of {self.segment.name}"


def visible_text(text: str) -> str:
    """Text with blanks and control characters written as visible signs; "∅" for nothing."""
    shown = text.translate(_VISIBLE)
    shown = "".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in shown)
    return shown or "∅"


def shorten(text: str, limit: int) -> str:
    """Text of at most `limit` characters, the last one "…" if it was cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def token_window(count: int, limit: int, center: int) -> slice:
    """At most `limit` of `count` tokens around `center`, always inside 0 .. count."""
    start = max(0, min(center - limit // 2, count - limit))
    return slice(start, min(count, start + limit))


def segment_runs(tokens: Sequence[Token]) -> list[tuple[Segment, int, int]]:
    """Neighbouring tokens of one segment: (segment, first index, number of tokens) of each run."""
    runs: list[tuple[Segment, int, int]] = []
    for index, token in enumerate(tokens):
        if runs and runs[-1][0] == token.segment:
            segment, start, count = runs[-1]
            runs[-1] = (segment, start, count + 1)
        else:
            runs.append((token.segment, index, 1))
    return runs
