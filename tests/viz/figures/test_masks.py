"""Masks: what is drawn is what the states say."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.viz_reading import HOSTILE, Element, assert_harmless, read_html, table_cells
from viz.drawing.identity import prompt_segments
from viz.drawing.picture import pick
from viz.figures.masks import (
    ALLOWED,
    CAUSAL,
    MASKED,
    SegmentMask,
    mask_picture,
    mask_sentence,
    mask_states,
    row_sentence,
)

SEGMENTS = prompt_segments([0, 1, 2])
CLASSES = {MASKED: "pine-masked", ALLOWED: "pine-allowed", CAUSAL: "pine-causal"}
NAMES = {MASKED: "masked", ALLOWED: "allowed", CAUSAL: "causal"}
EARLIER = np.tril(np.ones((3, 3), dtype=bool))
NONE = np.eye(3, dtype=bool)
ALL = np.ones((3, 3), dtype=bool)
PICKS = ["", *(pick(query=f"document {slot}") for slot in range(3)), pick(query="suffix 4")]


def mask(name: str, visible: np.ndarray, scale: str = "") -> SegmentMask:
    return SegmentMask(name, SEGMENTS, mask_states(visible), scale)


def tables(html: str) -> list[Element]:
    """The masks of a picture."""
    return read_html(html).with_class("pine-matrix")


def numbers_of(html: str) -> Any:
    """What a picture says in numbers."""
    return json.loads(read_html(html).with_class("pine-numbers")[0].text)


def buttons(html: str) -> dict[str, Element]:
    """The buttons that move the window, by their label."""
    return {button.text: button for button in read_html(html).with_class("pine-switch")[0].all("button")}


# Documents


def test_states_of_the_three_kinds_of_mask() -> None:
    # Worked by hand from specification 6.1: SYS, D1, D2, D3, X; 0 masked, 1 allowed, 2 causal inside.
    expected = {
        "earlier": [[2, 0, 0, 0, 0], [1, 2, 0, 0, 0], [1, 1, 2, 0, 0], [1, 1, 1, 2, 0], [1, 1, 1, 1, 2]],
        "none": [[2, 0, 0, 0, 0], [1, 2, 0, 0, 0], [1, 0, 2, 0, 0], [1, 0, 0, 2, 0], [1, 1, 1, 1, 2]],
        "all": [[2, 0, 0, 0, 0], [1, 2, 1, 1, 0], [1, 1, 2, 1, 0], [1, 1, 1, 2, 0], [1, 1, 1, 1, 2]],
    }
    for name, visible in (("earlier", EARLIER), ("none", NONE), ("all", ALL)):
        states = mask_states(visible)
        assert states.dtype == np.uint8 and states.tolist() == expected[name], name
        assert mask_states(visible, has_prefix=False).tolist() == states[1:, 1:].tolist()


def test_every_cell_of_a_card_has_its_state_and_says_so() -> None:
    shown = mask("PINE", ALL)
    html = mask_picture([shown])
    table = tables(html)[0]
    cells, numbers = table_cells(table), numbers_of(html)
    assert numbers["columns"] == ["method", "query", "SYS", "A", "B", "C", "SUF"]
    for q in range(5):
        assert numbers["rows"][q][:2] == ["PINE", SEGMENTS[q].label]
        for k in range(5):
            state = int(shown.states[q, k])
            assert cells[q][k].classes == {CLASSES[state]}
            assert ("masked" in cells[q][k].text) == (state == MASKED)
            assert numbers["rows"][q][2 + k] == NAMES[state]
    assert [head.attributes["scope"] for head in table.all("th")] == ["col"] * 5 + ["row"] * 5
    assert table.all("caption")[0].text == "PINE"


def test_a_table_has_a_sentence_for_every_class_of_its_cells() -> None:
    html = mask_picture(
        [mask("Vanilla", EARLIER), mask("SP", NONE, "×1/3")], reference=mask("Vanilla", EARLIER)
    )
    for table in tables(html):
        says = json.loads(table.attributes["data-says"])
        for cell in (cell for row in table_cells(table) for cell in row):
            assert cell.classes <= says.keys() and all(says[name] for name in cell.classes)
    assert "SP: {query} may not read {key}" in says["pine-masked"]
    assert "×1/3" in says["pine-scaled"] and "Vanilla" in says["pine-differs"]


def test_letters_travel_with_reordered_documents() -> None:
    reordered = SegmentMask("Vanilla", prompt_segments([2, 0, 1]), mask_states(EARLIER))
    html = mask_picture([reordered])
    assert [head.text for head in tables(html)[0].all("th")] == ["SYS", "C", "A", "B", "SUF"] * 2
    # A stands behind C, and so may read it.
    assert numbers_of(html)["rows"][2][1:4] == ["A", "allowed", "allowed"]


def test_cells_that_differ_from_the_reference_are_outlined() -> None:
    vanilla, pine = mask("Vanilla", EARLIER), mask("PINE", ALL)
    html = mask_picture([vanilla, pine], reference=vanilla)
    first, second = (table_cells(table) for table in tables(html))
    assert not any("pine-differs" in cell.classes for row in first for cell in row)
    outlined = [(q, k) for q in range(5) for k in range(5) if "pine-differs" in second[q][k].classes]
    assert outlined == [(1, 2), (1, 3), (2, 3)]
    assert "differs from Vanilla" in second[1][2].text
    assert "differs from Vanilla" in read_html(html).with_class("pine-key")[0].text
    assert "differs" not in mask_picture([pine])


@pytest.mark.parametrize(
    ("scaled", "expected"),
    [
        (("document",), [(4, 1), (4, 2), (4, 3)]),
        (("document", "prefix"), [(4, 0), (4, 1), (4, 2), (4, 3)]),
    ],
)
def test_a_scaled_weight_is_written_on_what_it_scales_only(
    scaled: tuple[Any, ...], expected: list[Any]
) -> None:
    html = mask_picture([replace(mask("SP", NONE, "×1/3"), scaled=scaled)])
    cells, rows = table_cells(tables(html)[0]), numbers_of(html)["rows"]
    places = [(q, k) for q in range(5) for k in range(5)]
    assert [(q, k) for q, k in places if "×1/3" in cells[q][k].text] == expected
    assert [(q, k) for q, k in places if rows[q][2 + k] == "allowed, weighted ×1/3"] == expected
    assert all("pine-allowed" in cells[q][k].classes for q, k in expected)
    assert ("prefix" in mask_sentence(replace(mask("SP", NONE, "×1/3"), scaled=scaled))) == (len(scaled) == 2)


@pytest.mark.parametrize(
    ("visible", "sentence"),
    [
        (EARLIER, "Each document reads only those before it in the input."),
        (NONE, "No document reads another."),
        (ALL, "Every document reads all the others, in both directions."),
        (np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1]], dtype=bool), "1 of 6 pairs of documents may be read."),
        (EARLIER.T, "3 of 6 pairs of documents may be read."),
    ],
)
def test_the_sentence_is_worked_out_from_the_states(visible: np.ndarray, sentence: str) -> None:
    assert mask_sentence(mask("any", visible)) == sentence
    assert read_html(mask_picture([mask("any", visible)])).all("figcaption")[0].text == sentence


def test_the_sentence_for_one_document_and_for_a_scale() -> None:
    one = SegmentMask("PINE", prompt_segments([0]), mask_states(np.ones((1, 1), dtype=bool)))
    assert mask_sentence(one) == "There is one document; it reads itself from left to right."
    assert row_sentence(one, 1) == "document A may read the prefix and itself from left to right"
    assert row_sentence(one, 2) == "the suffix may read the prefix, document A and itself from left to right"
    assert mask_sentence(mask("SP", NONE, "×1/3")).endswith("is weighted ×1/3.")


@pytest.mark.parametrize(
    ("visible", "query", "sentence"),
    [
        (EARLIER, 0, "the prefix may read itself from left to right"),
        (EARLIER, 2, "document B may read the prefix, document A and itself from left to right"),
        (NONE, 2, "document B may read the prefix and itself from left to right"),
        (ALL, 1, "document A may read the prefix, all other documents and itself from left to right"),
        (ALL, 4, "the suffix may read the prefix, all documents and itself from left to right"),
    ],
)
def test_a_row_says_what_its_query_may_read(visible: np.ndarray, query: int, sentence: str) -> None:
    assert row_sentence(mask("any", visible), query) == sentence


def test_a_row_of_many_documents_is_counted_and_not_listed() -> None:
    many = SegmentMask(
        "Vanilla", prompt_segments(range(9)), mask_states(np.tril(np.ones((9, 9), dtype=bool)))
    )
    assert "documents A, B, C, D, E and F and itself" in row_sentence(many, 7)
    assert "7 of 8 other documents and itself" in row_sentence(many, 8)
    scaled = replace(many, scale="×1/9")
    assert "all documents (weighted ×1/9) and itself" in row_sentence(scaled, 10)


def test_a_row_picks_its_query_and_the_chosen_one_is_marked_in_every_card() -> None:
    html = mask_picture([mask("NIA", NONE), mask("PINE", ALL)], picks=PICKS, selected=2)
    for table in tables(html):
        rows = table.all("tbody")[0].all("tr")
        heads = [row.all("button") for row in rows]
        assert [head[0].attributes["data-pick"] if head else "" for head in heads] == PICKS
        assert ["pine-row" in row.classes for row in rows] == [bool(what) for what in PICKS]
        assert ["pine-selected" in row.classes for row in rows] == [False, False, True, False, False]
        assert [head[0].attributes["aria-pressed"] for head in heads[1:]] == [
            "false",
            "true",
            "false",
            "false",
        ]
        # One stop of the tab key, the arrows lead on.
        assert [head[0].attributes["tabindex"] for head in heads[1:]] == ["-1", "0", "-1", "-1"]
        for head in heads[1:]:
            # Whoever speaks what is written finds the button.
            assert head[0].attributes["aria-label"].startswith(head[0].text)
            assert head[0].attributes["aria-label"].endswith(head[0].attributes["data-readout"])
    assert "pine-selected" in read_html(html).with_class("pine-key")[0].with_class("pine-swatch")[-1].classes


def test_a_card_that_was_not_run_says_so() -> None:
    html = mask_picture([mask("Vanilla", EARLIER), replace(mask("SP", NONE, "×1/3"), note="not run")])
    cards = read_html(html).with_class("pine-mask")
    assert [card.all("caption")[0].text for card in cards] == ["Vanilla", "SP not run"]
    caption = numbers_of(html)["caption"]
    assert "Vanilla and SP: 3 documents" in caption and "SP: not run" in caption
    assert "run" not in numbers_of(mask_picture([mask("Vanilla", EARLIER)]))["caption"]


@pytest.mark.parametrize("count", [20, 50])
def test_many_documents_stay_small(count: int) -> None:
    segments = prompt_segments(range(count))
    kinds = [np.tril(np.ones((count, count), dtype=bool)), *[np.eye(count, dtype=bool)] * 3]
    states = [mask_states(visible) for visible in (*kinds, np.ones((count, count), dtype=bool))]
    masks = [SegmentMask(name, segments, one, "×1/50") for name, one in zip("abcde", states, strict=True)]
    picks = [pick(query=f"document {slot}") for slot in range(count + 2)]
    html = mask_picture(masks, reference=masks[0], picks=picks, selected=3)
    assert len(html.encode()) < 800_000
    for table, shown in zip(tables(html), masks, strict=True):
        cells = table_cells(table)
        assert [[("pine-masked" in cell.classes) for cell in row] for row in cells] == (
            (shown.states == MASKED).tolist()
        )
    # The letters of fifty documents have no room: every fifth is written, all are named when pointed at.
    heads = tables(html)[0].all("thead")[0].all("th")
    ticks = ["SYS", *("ABCDEFGHIJKLMNOPQRST" if count == 20 else ()), "SUF"]
    if count == 50:
        ticks = ["SYS", "E", "J", "O", "T", "Y", "AD", "AI", "AN", "AS", "SUF"]
    assert [head.text for head in heads if head.text] == ticks
    assert [head.all("span")[-1].attributes["title"] for head in heads] == [s.name for s in segments]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_come_out_as_text(text: str) -> None:
    html = mask_picture([SegmentMask(text, SEGMENTS, mask_states(ALL), text, note=text)], picks=[text] * 5)
    assert_harmless(html)
    assert text in read_html(html).all("figcaption")[0].text
    assert numbers_of(html)["rows"][0][0] == text


def test_the_same_data_gives_the_same_html() -> None:
    assert mask_picture([mask("PINE", ALL)]) == mask_picture([mask("PINE", ALL)])
