"""Who may read whom: one small document-level mask per method."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from viz.drawing.identity import Role, Segment
from viz.drawing.markup import render
from viz.drawing.picture import Numbers, picture

MASKED = 0
ALLOWED = 1
CAUSAL = 2
"""States of a cell: may not read, may read all of it, reads it from left to right (itself)."""

STATE_CLASSES = {MASKED: "pine-masked", ALLOWED: "pine-allowed", CAUSAL: "pine-causal"}
"""How a state is drawn: hatched, filled, half filled."""

_STATE_WORDS = {MASKED: "masked", ALLOWED: "yes", CAUSAL: "itself"}
_STATE_NAMES = {MASKED: "masked", ALLOWED: "allowed", CAUSAL: "causal"}
_SUFFIX_ROLES: tuple[Role, ...] = ("suffix", "decoded")

# (most segments, pixels of a cell and of the gap, classes): more than twenty letters have no room.
_CELL_SIZES = (
    (8, 34, 2, ""),
    (14, 28, 1, "pine-dense"),
    (22, 22, 1, "pine-dense"),
    (10**6, 9, 1, "pine-dense pine-tiny"),
)
_CARD_MARGINS = 78
"""Pixels of a card beside its cells: the names of the rows and the padding."""
_LISTED = 6
"""Most documents that a sentence lists by letter."""


@dataclass(frozen=True)
class SegmentMask:
    """Which segment's tokens may read which segment's, for one method.

    method: label of the method. segments: R segments in input order.
    states: uint8 (R, R) of MASKED, ALLOWED, CAUSAL; query segments down, key segments across.
    scale: what weights of the suffix on some keys are multiplied by, such as "×1/3"; "" for 1.
    scaled: which keys. note: a remark beside the method's name, such as "not run".
    """

    method: str
    segments: tuple[Segment, ...]
    states: NDArray[np.uint8]
    scale: str = ""
    scaled: tuple[Role, ...] = ("document",)
    note: str = ""

    def __post_init__(self) -> None:
        assert self.states.shape == (len(self.segments), len(self.segments))


class _Kind(NamedTuple):
    """What a cell shows: its state, whether the scale applies, whether the reference differs."""

    state: int
    is_scaled: bool
    differs: bool


@dataclass(frozen=True)
class _Row:
    """A query segment of one card.

    sentence: what it may read. is_entry: whether the tab key stops here. tick: its letter, where there is
    little room.
    """

    segment: Segment
    sentence: str
    pick: str
    is_selected: bool
    is_entry: bool
    tick: str
    cells: list[Markup]


def mask_states(visible: NDArray[np.bool_], *, has_prefix: bool = True) -> NDArray[np.uint8]:
    """Segment states of a prompt from its document mask.

    visible: bool (D, D), may tokens of document a read document b; the diagonal does not matter.
    Returns uint8 (R, R), R = D + 2 with a prefix and D + 1 without: every row reads the prefix, the
    suffix reads everything, nothing reads the suffix but itself, and each segment itself is CAUSAL.
    """
    count = len(visible)
    first = int(has_prefix)
    states = np.full((first + count + 1, first + count + 1), MASKED, dtype=np.uint8)
    states[first : first + count, first : first + count] = np.where(visible, ALLOWED, MASKED)
    states[:, :first] = ALLOWED
    states[-1, :] = ALLOWED
    np.fill_diagonal(states, CAUSAL)
    return states


def mask_sentence(mask: SegmentMask) -> str:
    """One sentence that says what the mask shows, worked out from its states."""
    documents = [i for i, segment in enumerate(mask.segments) if segment.role == "document"]
    states = mask.states[np.ix_(documents, documents)]
    reads = states[~np.eye(len(documents), dtype=bool)] != MASKED
    earlier = (states != MASKED)[np.tril_indices(len(documents), -1)]
    if len(documents) < 2:
        sentence = "There is one document; it reads itself from left to right."
    elif reads.all():
        sentence = "Every document reads all the others, in both directions."
    elif not reads.any():
        sentence = "No document reads another."
    elif earlier.all() and reads.sum() == len(earlier):
        sentence = "Each document reads only those before it in the input."
    else:
        sentence = f"{int(reads.sum())} of {len(reads)} pairs of documents may be read."
    if mask.scale:
        whom = "documents and the prefix" if "prefix" in mask.scaled else "documents"
        sentence += f" What the suffix takes from {whom} is weighted {mask.scale}."
    return sentence


def row_sentence(mask: SegmentMask, query: int) -> str:
    """One sentence that says what one query segment may read."""
    others = [
        key
        for key, segment in enumerate(mask.segments)
        if segment.role == "document" and key != query and mask.states[query, key] != MASKED
    ]
    parts = []
    for key, segment in enumerate(mask.segments):
        if segment.role == "prefix" and key != query and mask.states[query, key] != MASKED:
            parts.append(segment.name + _weight(mask, query, key))
    if others:
        parts.append(_documents(mask, query, others) + _weight(mask, query, others[0]))
    parts.append("itself from left to right")
    return f"{mask.segments[query].name} may read {_listed(parts)}"


def _documents(mask: SegmentMask, query: int, others: Sequence[int]) -> str:
    is_document = mask.segments[query].role == "document"
    count = sum(segment.role == "document" for segment in mask.segments) - is_document
    rest = "other documents" if is_document else "documents"
    if len(others) == count > 1:
        return f"all {rest}"
    if len(others) <= _LISTED:
        labels = [mask.segments[key].label for key in others]
        return f"document{'s' if len(labels) > 1 else ''} {_listed(labels)}"
    return f"{len(others)} of {count} {rest}"


def _weight(mask: SegmentMask, query: int, key: int) -> str:
    is_scaled = mask.scale and mask.segments[query].role in _SUFFIX_ROLES
    return f" (weighted {mask.scale})" if is_scaled and mask.segments[key].role in mask.scaled else ""


def _listed(words: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def mask_picture(
    masks: Sequence[SegmentMask],
    *,
    reference: SegmentMask | None = None,
    picks: Sequence[str] = (),
    selected: int | None = None,
    name: str = "masks",
) -> str:
    """HTML: one card per method with its mask as a table, all on one scale, a sentence under each.

    masks: of the same segments. reference: cells that differ from this mask are outlined. picks: what a
    click on a segment's row selects, "" for nothing. selected: index of the segment whose row is marked.
    """
    segments = masks[0].segments
    assert all(mask.segments == segments for mask in masks)
    _, cell_px, gap_px, css_class = next(size for size in _CELL_SIZES if len(segments) <= size[0])
    is_tiny = "pine-tiny" in css_class
    ticks = [_tick(segments, index) if is_tiny else "" for index in range(len(segments))]
    body = render(
        "mask_cards.html",
        cards=[
            (
                mask,
                _rows(mask, reference, picks, selected, ticks),
                mask_sentence(mask),
                _says(mask, reference),
            )
            for mask in masks
        ],
        columns=list(zip(segments, ticks, strict=True)),
        reference=reference,
        has_selected=selected is not None,
        has_picks=any(picks),
        is_tiny=is_tiny,
        cell_px=cell_px,
        card_px=len(segments) * (cell_px + gap_px) + _CARD_MARGINS,
        css_class=css_class,
    )
    rest = "Point at a cell and it says who reads whom"
    return picture(
        body,
        name=name,
        caption=_caption(masks),
        numbers=_segment_numbers(masks),
        readout=f"{rest}; click a row to see that query in every picture." if any(picks) else f"{rest}.",
    )


def _caption(masks: Sequence[SegmentMask]) -> str:
    count = sum(segment.role == "document" for segment in masks[0].segments)
    drawn = _listed([mask.method for mask in masks])
    documents = "1 document" if count == 1 else f"{count} documents"
    sentence = f"Who may read whom under {drawn}: {documents}, the same in every layer and head."
    noted = [f"{mask.method}: {mask.note}" for mask in masks if mask.note]
    return f"{sentence} {'; '.join(noted)}; a mask needs no run." if noted else sentence


def _segment_numbers(masks: Sequence[SegmentMask]) -> Numbers:
    """A row per method and query with the state of every key: a table as wide as the picture."""
    return Numbers(
        ("method", "query", *(key.label for key in masks[0].segments)),
        tuple(
            (mask.method, query.label, *(_state_name(mask, kind) for kind in kinds))
            for mask in masks
            for query, kinds in zip(mask.segments, _kinds(mask, None), strict=True)
        ),
    )


def _state_name(mask: SegmentMask, kind: _Kind) -> str:
    return _STATE_NAMES[kind.state] + (f", weighted {mask.scale}" if kind.is_scaled else "")


def _says(mask: SegmentMask, reference: SegmentMask | None) -> str:
    """What a cell of each class says when it is pointed at; viz/drawing/pictures.js fills in the names."""
    says = {
        "pine-allowed": f"{mask.method}: {{query}} may read {{key}}.",
        "pine-masked": f"{mask.method}: {{query}} may not read {{key}}, it is masked.",
        "pine-causal": f"{mask.method}: {{query}} reads itself from left to right.",
    }
    if mask.scale:
        says["pine-scaled"] = f"What it takes is weighted {mask.scale}."
    if reference is not None:
        says["pine-differs"] = f"Under {reference.method} it is the other way."
    return json.dumps(says, ensure_ascii=False)


def _rows(
    mask: SegmentMask,
    reference: SegmentMask | None,
    picks: Sequence[str],
    selected: int | None,
    ticks: Sequence[str],
) -> list[_Row]:
    """Rows of one card; one of those that can be picked is the stop of the tab key."""
    stops = [q for q, what in enumerate(picks) if what]
    entry = selected if selected in stops else next(iter(stops), None)
    kinds = _kinds(mask, reference)
    # There are few kinds of cells and thousands of cells: each kind is written once.
    written = {
        kind: _cell(mask, reference, kind, is_tiny=any(ticks))
        for kind in {kind for row in kinds for kind in row}
    }
    return [
        _Row(
            segment=segment,
            sentence=f"{mask.method}: {row_sentence(mask, q)}.",
            pick=picks[q] if picks else "",
            is_selected=q == selected,
            is_entry=q == entry,
            tick=ticks[q],
            cells=[written[kind] for kind in kinds[q]],
        )
        for q, segment in enumerate(mask.segments)
    ]


def _kinds(mask: SegmentMask, reference: SegmentMask | None) -> list[list[_Kind]]:
    """The kind of every cell, queries down and keys across."""
    is_scaled = np.zeros(mask.states.shape, dtype=bool)
    if mask.scale:
        queries = [segment.role in _SUFFIX_ROLES for segment in mask.segments]
        keys = [segment.role in mask.scaled for segment in mask.segments]
        is_scaled = np.outer(queries, keys) & (mask.states != MASKED)
    differs = np.zeros_like(is_scaled) if reference is None else mask.states != reference.states
    columns = (mask.states.tolist(), is_scaled.tolist(), differs.tolist())
    return [[_Kind(*cell) for cell in zip(*rows, strict=True)] for rows in zip(*columns, strict=True)]


def _cell(mask: SegmentMask, reference: SegmentMask | None, kind: _Kind, *, is_tiny: bool) -> Markup:
    css_class, word = STATE_CLASSES[kind.state], _STATE_WORDS[kind.state]
    if kind.is_scaled:
        css_class += " pine-scaled"
    if kind.differs and reference is not None:
        css_class += " pine-differs"
        word += f", differs from {reference.method}"
    note = mask.scale if kind.is_scaled else ""
    return Markup(render("mask_cell.html", css_class=css_class, word=word, note=note, is_tiny=is_tiny))


def _tick(segments: Sequence[Segment], index: int) -> str:
    """Label of every fifth document, and of what stands around them; the others are named when pointed at."""
    segment = segments[index]
    is_fifth = segment.slot is not None and (segment.slot + 1) % 5 == 0 and index < len(segments) - 2
    return segment.label if segment.role != "document" or is_fifth else ""
