"""Mask cards: cells, sentences and numbers are those of the states."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.viz_reading import Element, read_html, table_cells
from tests.viz.figures.test_attention import MASKS
from viz.cards.mask_cards import SegmentMask, mask_cards, mask_sentence, row_sentence
from viz.drawing.identity import prompt_segments
from viz.drawing.picture import pick
from viz.export.numbers import picture_numbers
from viz.figures.masks import ALLOWED, CAUSAL, MASKED, mask_states

SEGMENTS = prompt_segments([0, 1, 2])
CLASSES = {MASKED: "pine-masked", ALLOWED: "pine-allowed", CAUSAL: "pine-causal"}
NAMES = {MASKED: "masked", ALLOWED: "allowed", CAUSAL: "causal"}
PICKS = ["", *(pick(query=f"document {slot}") for slot in range(3)), pick(query="suffix 4")]
PAIRS = [(q, k) for q in range(5) for k in range(5)]
VANILLA = SegmentMask("Vanilla", SEGMENTS, mask_states(MASKS["causal"]))
PINE = SegmentMask("PINE", SEGMENTS, mask_states(MASKS["all"]))
SP = SegmentMask("SP", SEGMENTS, mask_states(MASKS["none"]), "×1/3")


def tables(html: str) -> list[Element]:
    return read_html(html).with_class("pine-matrix")


@pytest.mark.parametrize("mask", [VANILLA, PINE, SP])
def test_every_cell_has_its_state(mask: SegmentMask) -> None:
    html = mask_cards([mask])
    (table,), (named,) = tables(html), picture_numbers(html)
    cells = table_cells(table)
    assert named.numbers.columns == ("method", "query", "SYS", "A", "B", "C", "SUF")
    for q, k in PAIRS:
        state = int(mask.states[q, k])
        assert CLASSES[state] in cells[q][k].classes
        assert ("masked" in cells[q][k].text) == (state == MASKED)
        assert str(named.numbers.rows[q][2 + k]).startswith(NAMES[state])
    readouts = json.loads(table.attributes["data-says"])
    assert all(cell.classes <= readouts.keys() for row in cells for cell in row)
    assert [head.attributes["scope"] for head in table.all("th")] == ["col"] * 5 + ["row"] * 5


def test_cells_that_differ_from_the_reference_are_outlined() -> None:
    first, second = map(table_cells, tables(mask_cards([VANILLA, PINE], reference=VANILLA)))
    assert not any("pine-differs" in cell.classes for row in first for cell in row)
    outlined = [(q, k) for q, k in PAIRS if "pine-differs" in second[q][k].classes]
    assert outlined == [(1, 2), (1, 3), (2, 3)] and "differs from Vanilla" in second[1][2].text


@pytest.mark.parametrize(
    ("scaled", "expected"),
    [
        (("document",), [(4, 1), (4, 2), (4, 3)]),
        (("document", "prefix"), [(4, 0), (4, 1), (4, 2), (4, 3)]),
    ],
)
def test_scale_is_on_the_scaled_weights_only(scaled: tuple[Any, ...], expected: list[Any]) -> None:
    mask = replace(SP, scaled=scaled)
    html = mask_cards([mask])
    cells, rows = table_cells(tables(html)[0]), picture_numbers(html)[0].numbers.rows
    assert [(q, k) for q, k in PAIRS if "×1/3" in cells[q][k].text] == expected
    assert [(q, k) for q, k in PAIRS if rows[q][2 + k] == "allowed, weighted ×1/3"] == expected
    assert ("prefix" in mask_sentence(mask)) == (len(scaled) == 2)


@pytest.mark.parametrize(
    ("visible", "part"),
    [
        (MASKS["causal"], "only those before"),
        (MASKS["none"], "No document"),
        (MASKS["all"], "Every document"),
        (np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1]], dtype=bool), "1 of 6 pairs"),
        (MASKS["causal"].T, "3 of 6 pairs"),
        (np.tri(3, k=1, dtype=bool), "5 of 6 pairs"),
    ],
)
def test_sentence_describes_the_states(visible: np.ndarray, part: str) -> None:
    assert part in mask_sentence(SegmentMask("any", SEGMENTS, mask_states(visible)))


MANY = SegmentMask("many", prompt_segments(range(9)), mask_states(np.tri(9, dtype=bool)), "×1/9")


@pytest.mark.parametrize(
    ("mask", "query", "part"),
    [
        (VANILLA, 2, "the prefix, document A and "),
        (PINE, 1, "the prefix, all other documents and "),
        (MANY, 7, "documents A, B, C, D, E and F and "),
        (MANY, 8, "7 of 8 other documents and "),
        (MANY, 10, "all documents (weighted ×1/9) and "),
    ],
)
def test_row_sentence_names_the_visible_segments(mask: SegmentMask, query: int, part: str) -> None:
    assert part in row_sentence(mask, query)


def test_row_selects_its_query_and_the_selected_one_is_marked() -> None:
    for table in tables(mask_cards([SP, PINE], picks=PICKS, selected=2)):
        rows = table.all("tbody")[0].all("tr")
        heads = [row.all("button") for row in rows]
        assert [head[0].attributes["data-pick"] if head else "" for head in heads] == PICKS
        assert ["pine-selected" in row.classes for row in rows] == [False, False, True, False, False]


@pytest.mark.parametrize("count", [20, 50])
def test_cards_of_many_documents_stay_small(count: int) -> None:
    segments = prompt_segments(range(count))
    masks = [
        SegmentMask(name, segments, mask_states(visible), "×1/50")
        for name, visible in (("a", np.tri(count, dtype=bool)), ("b", np.ones((count, count), dtype=bool)))
    ]
    picks = [pick(query=f"document {slot}") for slot in range(count + 2)]
    html = mask_cards([masks[0]] * 4 + masks[1:], reference=masks[0], picks=picks, selected=3)
    assert len(html.encode()) < 800_000
    heads = tables(html)[-1].all("thead")[0].all("th")
    ticks = ["SYS", *("ABCDEFGHIJKLMNOPQRST" if count == 20 else ()), "SUF"]
    if count == 50:
        ticks = ["SYS", "E", "J", "O", "T", "Y", "AD", "AI", "AN", "AS", "SUF"]
    assert [head.text for head in heads if head.text] == ticks
    assert [head.all("span")[-1].attributes["title"] for head in heads] == [s.name for s in segments]
