"""Letter and color of each document as entered, the same in all figures and orders."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from markupsafe import Markup

from pine_engine.prompts.tasks import document_letter as document_letter
from viz.drawing.markup import render

Role = Literal["prefix", "document", "suffix", "decoded"]

# Okabe-Ito, then colors that differ from all others by 18 or more (CIEDE2000); then colors repeat.
_PREFIX_COLOR, _SUFFIX_COLOR = "#E69F00", "#009E73"
_DOCUMENT_COLORS = (
    *("#56B4E9", "#CC79A7", "#F0E442", "#0072B2", "#D55E00"),
    *("#6A1B6E", "#AFD889", "#81592F", "#3A34C8", "#EFCFD2", "#496568"),
)
_LABELS = {"prefix": "prefix", "suffix": "question", "decoded": "answer"}


def order_name(order: Iterable[int]) -> str:
    """Return the letters of the documents in an order: "C A B"."""
    return " ".join(map(document_letter, order))


def relative_luminance(color: str) -> float:
    """Return the WCAG relative luminance of #RRGGBB, 0 (black) to 1 (white)."""
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def ink_on(color: str) -> str:
    """Return black or white, the one with the higher contrast on `color`."""
    return "#000000" if (relative_luminance(color) + 0.05) ** 2 > 1.05 * 0.05 else "#FFFFFF"


@dataclass(frozen=True)
class Segment:
    """Part of the prompt: the prefix, a document, the suffix or the decoded tokens."""

    role: Role
    document: int | None = None  # index as entered, for role "document" only
    slot: int | None = field(default=None, compare=False)  # place in the input, from 0, where it is shown

    def __post_init__(self) -> None:
        assert (self.document is not None) == (self.role == "document"), self

    @property
    def label(self) -> str:
        """Short label: prefix, A, B, .., question, answer."""
        return _LABELS[self.role] if self.document is None else document_letter(self.document)

    @property
    def name(self) -> str:
        """Name in a sentence: "prefix", "document A", "question", "answer"."""
        return self.label if self.document is None else f"document {self.label}"

    @property
    def color(self) -> str:
        """Fill color as #RRGGBB."""
        if self.document is not None:
            return _DOCUMENT_COLORS[self.document % len(_DOCUMENT_COLORS)]
        return _PREFIX_COLOR if self.role == "prefix" else _SUFFIX_COLOR

    @property
    def ink(self) -> str:
        """Legible text color on `color`."""
        return ink_on(self.color)


PREFIX = Segment("prefix")
SUFFIX = Segment("suffix")
DECODED = Segment("decoded")


def document_segment(index: int, slot: int | None = None) -> Segment:
    """Return the segment of the document entered at `index`, with the slot where it is shown."""
    return Segment("document", index, slot)


def segment_badge(segment: Segment) -> Markup:
    """Render the letter of a segment on its color."""
    return Markup(render("badge.html", segment=segment))


def legend(segments: Sequence[Segment], names: Sequence[str]) -> str:
    """Render the badges of segments with a text for each."""
    return render("legend.html", entries=list(zip(segments, names, strict=True)))
