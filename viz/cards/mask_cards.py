"""Cards of attention masks between segments, one per method."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from viz.drawing.identity import Role, Segment
from viz.drawing.markup import render
from viz.drawing.picture import Numbers, picture
from viz.drawing.text import join_words
from viz.figures.masks import ALLOWED, CAUSAL, MASKED

_CLASSES = {MASKED: "pine-masked", ALLOWED: "pine-allowed", CAUSAL: "pine-causal"}
_WORDS = {MASKED: "masked", ALLOWED: "yes", CAUSAL: "itself"}
_NAMES = {MASKED: "masked", ALLOWED: "allowed", CAUSAL: "causal"}

# (maximum segments, pixels of a cell and of the gap, classes): more than twenty letters have no space.
_CELL_SIZES = (
    (8, 34, 2, ""),
    (14, 28, 1, "pine-dense"),
    (22, 22, 1, "pine-dense"),
    (10**6, 9, 1, "pine-dense pine-tiny"),
)
_CARD_MARGINS_PX = 78
_MAX_LISTED = 6
"""Maximum documents that a sentence lists by letter."""


@dataclass(frozen=True)
class SegmentMask:
    """Attention mask of one method between the segments of a prompt.

    Attributes:
        method: Label of the method.
        segments: R segments in input order.
        states: uint8 (R, R) of MASKED, ALLOWED, CAUSAL; queries in rows, keys in columns.
        scale: Factor of the suffix's weights on the `scaled` keys, such as "×1/3"; "" for 1.
        note: Remark after the label, such as "not run".
    """

    method: str
    segments: tuple[Segment, ...]
    states: NDArray[np.uint8]
    scale: str = ""
    scaled: tuple[Role, ...] = ("document",)
    note: str = ""

    def __post_init__(self) -> None:
        assert self.states.shape == (len(self.segments), len(self.segments))

    def is_scaled(self, query: int, key: int) -> bool:
        """Check whether the scale applies to the weights of a query on a key."""
        return bool(
            self.scale
            and self.segments[query].role in ("suffix", "decoded")
            and self.segments[key].role in self.scaled
            and self.states[query, key] != MASKED
        )


def mask_sentence(mask: SegmentMask) -> str:
    """Describe the mask between documents in one sentence."""
    documents = [i for i, segment in enumerate(mask.segments) if segment.role == "document"]
    is_visible = mask.states[np.ix_(documents, documents)] != MASKED
    pairs = is_visible[~np.eye(len(documents), dtype=bool)]
    earlier = is_visible[np.tril_indices(len(documents), -1)]
    if len(documents) < 2:
        sentence = "There is one document; it reads itself from left to right."
    elif pairs.all():
        sentence = "Every document reads all the others, in both directions."
    elif not pairs.any():
        sentence = "No document reads another."
    elif earlier.all() and pairs.sum() == len(earlier):
        sentence = "Each document reads only those before it in the input."
    else:
        sentence = f"{int(pairs.sum())} of {len(pairs)} pairs of documents may be read."
    if mask.scale:
        keys = "documents and the prefix" if "prefix" in mask.scaled else "documents"
        sentence += f" What the suffix takes from {keys} is weighted {mask.scale}."
    return sentence


def row_sentence(mask: SegmentMask, query: int) -> str:
    """Describe in one sentence which segments a query may attend to."""
    visible = [key for key in range(len(mask.segments)) if key != query and mask.states[query, key] != MASKED]
    documents = [key for key in visible if mask.segments[key].role == "document"]
    groups = [(mask.segments[key].name, key) for key in visible if mask.segments[key].role == "prefix"]
    if documents:
        groups.append((_name_documents(mask, query, documents), documents[0]))
    parts = [
        name + (f" (weighted {mask.scale})" if mask.is_scaled(query, key) else "") for name, key in groups
    ]
    return f"{mask.segments[query].name} may read {join_words([*parts, 'itself from left to right'])}"


def _name_documents(mask: SegmentMask, query: int, documents: Sequence[int]) -> str:
    is_document = mask.segments[query].role == "document"
    count = sum(segment.role == "document" for segment in mask.segments) - is_document
    rest = "other documents" if is_document else "documents"
    if len(documents) == count > 1:
        return f"all {rest}"
    if len(documents) > _MAX_LISTED:
        return f"{len(documents)} of {count} {rest}"
    labels = [mask.segments[key].label for key in documents]
    return f"document{'s' if len(labels) > 1 else ''} {join_words(labels)}"


def mask_cards(
    masks: Sequence[SegmentMask],
    *,
    reference: SegmentMask | None = None,
    picks: Sequence[str] = (),
    selected: int | None = None,
    name: str = "masks",
) -> str:
    """Render one card per method with its mask as a table, and a sentence.

    Args:
        masks: Masks of the same segments.
        reference: Mask whose different cells are outlined in the others.
        picks: Selection of a click on each segment's row, "" for none.
        selected: Segment whose row is marked.
        name: Stem of the files that the picture is saved as.
    """
    segments = masks[0].segments
    assert all(mask.segments == segments for mask in masks)
    _, cell_px, gap_px, css_class = next(size for size in _CELL_SIZES if len(segments) <= size[0])
    is_tiny = "pine-tiny" in css_class
    ticks = [_tick(segments, index) if is_tiny else "" for index in range(len(segments))]
    stops = [query for query, selection in enumerate(picks) if selection]
    body = render(
        "mask_cards.html",
        cards=[
            (
                mask,
                [
                    (f"{mask.method}: {row_sentence(mask, query)}.", cells)
                    for query, cells in enumerate(_cells(mask, reference))
                ],
                mask_sentence(mask),
                _readouts(mask, reference),
            )
            for mask in masks
        ],
        columns=list(zip(segments, ticks, strict=True)),
        reference=reference,
        picks=picks or [""] * len(segments),
        selected=selected,
        entry=selected if selected in stops else next(iter(stops), None),
        is_tiny=is_tiny,
        cell_px=cell_px,
        card_px=len(segments) * (cell_px + gap_px) + _CARD_MARGINS_PX,
        css_class=css_class,
    )
    hint = "Point at a cell and it says who reads whom"
    return picture(
        body,
        name=name,
        caption=_caption(masks),
        numbers=_mask_numbers(masks),
        readout=f"{hint}; click a row to see that query in every picture." if stops else f"{hint}.",
    )


def _caption(masks: Sequence[SegmentMask]) -> str:
    count = sum(segment.role == "document" for segment in masks[0].segments)
    methods = join_words([mask.method for mask in masks])
    documents = "1 document" if count == 1 else f"{count} documents"
    sentence = f"Who may read whom under {methods}: {documents}, the same in every layer and head."
    notes = [f"{mask.method}: {mask.note}" for mask in masks if mask.note]
    return f"{sentence} {'; '.join(notes)}; a mask needs no run." if notes else sentence


def _mask_numbers(masks: Sequence[SegmentMask]) -> Numbers:
    """Return a row per method and query with the state of every key."""
    segments = masks[0].segments
    rows = [
        (
            mask.method,
            segment.label,
            *(
                _NAMES[state] + (f", weighted {mask.scale}" if mask.is_scaled(query, key) else "")
                for key, state in enumerate(mask.states[query].tolist())
            ),
        )
        for mask in masks
        for query, segment in enumerate(segments)
    ]
    return Numbers(("method", "query", *(key.label for key in segments)), tuple(rows))


def _readouts(mask: SegmentMask, reference: SegmentMask | None) -> str:
    """Return the preview of the cells by class; viz/drawing/pictures.js fills in the names."""
    readouts = {
        "pine-allowed": f"{mask.method}: {{query}} may read {{key}}.",
        "pine-masked": f"{mask.method}: {{query}} may not read {{key}}, it is masked.",
        "pine-causal": f"{mask.method}: {{query}} reads itself from left to right.",
    }
    if mask.scale:
        readouts["pine-scaled"] = f"What it takes is weighted {mask.scale}."
    if reference is not None:
        readouts["pine-differs"] = f"Under {reference.method} it is the other way."
    return json.dumps(readouts, ensure_ascii=False)


def _cells(mask: SegmentMask, reference: SegmentMask | None) -> list[list[tuple[str, str, str]]]:
    """Return class, text for screen readers and note of the cells, queries in rows."""
    count = len(mask.segments)
    differs = np.zeros((count, count), bool) if reference is None else mask.states != reference.states
    difference = "" if reference is None else f", differs from {reference.method}"
    rows = []
    for query, states in enumerate(mask.states.tolist()):
        row = []
        for key, state in enumerate(states):
            is_scaled, is_different = mask.is_scaled(query, key), bool(differs[query, key])
            css_class = _CLASSES[state] + " pine-scaled" * is_scaled + " pine-differs" * is_different
            row.append((css_class, _WORDS[state] + difference * is_different, mask.scale * is_scaled))
        rows.append(row)
    return rows


def _tick(segments: Sequence[Segment], index: int) -> str:
    """Return the label of every fifth document, and of prefix and suffix."""
    segment = segments[index]
    is_fifth = segment.slot is not None and (segment.slot + 1) % 5 == 0 and index < len(segments) - 2
    return segment.label if segment.role != "document" or is_fifth else ""
