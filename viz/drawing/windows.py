"""Buttons that move the keys of a token-level picture, which shows a window of them."""

from collections.abc import Sequence

from viz.drawing.identity import Segment
from viz.drawing.markup import render
from viz.drawing.picture import pick


def window_moves(parts: Sequence[tuple[Segment, int]], keys: slice, total: int, *, follows: bool) -> str:
    """HTML: back, on, around the query, and to where each part of the prompt begins; empty if all is shown.

    parts: every segment with the index of its first token. keys: those shown, of `total`. follows: whether
    they are those around the query, and not a window that was chosen.
    """
    size = keys.stop - keys.start
    if size == total:
        return ""
    earlier, later = max(0, keys.start - size), min(total - size, keys.start + size)
    return render(
        "window_moves.html",
        span=f"{keys.start + 1:,}\u2013{keys.stop:,} of {total:,}",
        moves=[
            (f"\u2190 {size} earlier", pick(window=earlier), False, earlier < keys.start),
            (f"{size} later \u2192", pick(window=later), False, later > keys.start),
            ("around the query", pick(window=None), follows, True),
        ],
        jumps=[
            (segment, pick(window=start), start == keys.start and not follows) for segment, start in parts
        ],
    )
