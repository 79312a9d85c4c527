"""Text of values: numbers with few digits, visible signs for blanks, shortened and joined texts."""

import math
from collections.abc import Sequence

_VISIBLE = str.maketrans({" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍", "\u00a0": "⍽"})


def format_value(value: float) -> str:
    """Format with three significant digits; "0" only for exactly zero."""
    if value == 0:
        return "0"
    return f"{value:#.3g}".rstrip(".") if 1e-3 <= abs(value) < 1e3 else f"{value:.2e}"


def format_short(value: float) -> str:
    """Format with two significant digits, three from 100 on; "0" only for exactly zero."""
    if value == 0:
        return "0"
    return f"{value:#.2g}" if abs(value) < 9.95 else f"{value:.0f}"


def format_difference(value: float) -> str:
    """Format a difference of logits or log-probabilities; "0.0" only for exactly zero."""
    if math.isnan(value):
        return "NaN"
    if value == 0:
        return "0.0"
    return f"{value:.1e}" if abs(value) < 1e-3 else f"{value:.3g}"


def format_percent(share: float) -> str:
    """Format a probability or share with two digits; "100%" only for exactly one."""
    text = format_short(100 * share)
    return f"{'>99' if text == '100' and share < 1 else text}%"


def visible_text(text: str) -> str:
    """Replace blanks and control characters by visible signs; "∅" for an empty text."""
    signs = text.translate(_VISIBLE)
    return "".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in signs) or "∅"


def shorten(text: str, limit: int) -> str:
    """Shorten a text to `limit` characters, the last one "…" if it was cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def join_words(words: Sequence[str]) -> str:
    """Join as "a", "a and b", "a, b and c"."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
