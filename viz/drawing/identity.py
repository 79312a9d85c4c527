"""One identity per document: a letter, a colour and a border, the same in every figure.

The identity belongs to the document as entered and travels with it when documents are reordered.
The slot, the place in the input, is another thing and is always written apart ("slot 3").
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from viz.drawing.markup import render

Role = Literal["prefix", "document", "suffix", "decoded"]
Pattern = Literal["solid", "dashed", "dotted", "double"]

PREFIX_COLOR = "#E69F00"
SUFFIX_COLOR = "#009E73"

# Okabe-Ito without its orange and green, which the prefix and the suffix have.
_DOCUMENT_COLORS = ("#56B4E9", "#CC79A7", "#F0E442", "#0072B2", "#D55E00")
# Names of CSS border styles. Four patterns against five colours: 20 documents before a pair repeats.
_PATTERNS: tuple[Pattern, ...] = ("solid", "dashed", "double", "dotted")


def document_letter(index: int) -> str:
    """Letter of the document entered at `index` (from 0): A .. Z, AA, AB, ..."""
    letters = ""
    index += 1
    while index:
        index, digit = divmod(index - 1, 26)
        letters = chr(ord("A") + digit) + letters
    return letters


def document_color(index: int) -> str:
    """Colour of the document entered at `index`, as #RRGGBB."""
    return _DOCUMENT_COLORS[index % len(_DOCUMENT_COLORS)]


def document_pattern(index: int) -> Pattern:
    """Border of the document entered at `index`, a CSS border style; tells equal colours apart."""
    return _PATTERNS[index % len(_PATTERNS)]


def relative_luminance(color: str) -> float:
    """WCAG relative luminance of #RRGGBB, 0 (black) to 1 (white)."""
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def ink_on(color: str) -> str:
    """Black or white as #RRGGBB, whichever contrasts more with `color`."""
    return "#000000" if (relative_luminance(color) + 0.05) ** 2 > 1.05 * 0.05 else "#FFFFFF"


@dataclass(frozen=True)
class Segment:
    """Who a part of the prompt is: the prefix, a document, the suffix or the decoded tokens.

    document: index of the document as entered (identity), for role "document" only.
    slot: its place in the input, from 0, where a figure should show it; None otherwise.
    """

    role: Role
    document: int | None = None
    slot: int | None = None

    def __post_init__(self) -> None:
        assert (self.document is not None) == (self.role == "document"), self

    @property
    def label(self) -> str:
        """Short label: SYS, A, B, .., SUF, OUT."""
        if self.document is not None:
            return document_letter(self.document)
        return {"prefix": "SYS", "suffix": "SUF", "decoded": "OUT"}[self.role]

    @property
    def name(self) -> str:
        """Name in a sentence: "the prefix", "document A", "the suffix", "the answer"."""
        if self.document is not None:
            return f"document {self.label}"
        return {"prefix": "the prefix", "suffix": "the suffix", "decoded": "the answer"}[self.role]

    @property
    def color(self) -> str:
        """Fill colour as #RRGGBB."""
        if self.document is not None:
            return document_color(self.document)
        return PREFIX_COLOR if self.role == "prefix" else SUFFIX_COLOR

    @property
    def ink(self) -> str:
        """Text colour legible on `color`."""
        return ink_on(self.color)

    @property
    def pattern(self) -> Pattern:
        """Border style."""
        if self.document is not None:
            return document_pattern(self.document)
        return "dashed" if self.role == "decoded" else "solid"


PREFIX = Segment("prefix")
SUFFIX = Segment("suffix")
DECODED = Segment("decoded")


def document_segment(index: int, slot: int | None = None) -> Segment:
    """The segment of the document entered at `index`; slot, from 0, only where it should be shown."""
    return Segment("document", index, slot)


def prompt_segments(order: Sequence[int], *, has_prefix: bool = True) -> tuple[Segment, ...]:
    """Segments of a prompt: prefix, the documents in input order, suffix.

    order: which document (index as entered) stands in each slot; range(D) if never reordered.
    """
    documents = tuple(document_segment(index, slot) for slot, index in enumerate(order))
    return ((PREFIX,) if has_prefix else ()) + documents + (SUFFIX,)


def badge(index: int, slot: int | None = None) -> Markup:
    """Badge of the document entered at `index`; with a slot (from 0), "slot N" is written beside it."""
    return segment_badge(document_segment(index, slot))


def segment_badge(segment: Segment) -> Markup:
    """Badge of any segment: letter on its colour with its border."""
    return Markup(render("badge.html", segment=segment))


def legend(segments: Sequence[Segment], names: Sequence[str] | None = None) -> str:
    """HTML list of badges and what they stand for.

    names: one text per segment, for instance document titles; their names by default.
    """
    labels = [segment.name for segment in segments] if names is None else list(names)
    assert len(labels) == len(segments)
    return render("legend.html", entries=list(zip(segments, labels, strict=True)))
