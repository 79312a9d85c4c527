"""Importance: numbers equal the arrays, the diagonal is outside the scale, rows and cells pick."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pine_engine.attention.trace import Trace
from pine_engine.prompts.layout import TokenLayout
from tests.support.viz_reading import HOSTILE, Element, assert_harmless, read_html, table_cells
from viz.drawing.identity import document_segment, ink_on
from viz.drawing.levels import TOP_LEVEL, Scale
from viz.drawing.numbers import format_difference, format_value, plain_values
from viz.drawing.ramps import CIVIDIS, ramp_color
from viz.drawing.styles import figure_styles
from viz.figures.importance import (
    Normalisation,
    attention_shares,
    decisiveness,
    importance_caption,
    most_decisive,
    normalise,
    place_name,
    select_importance,
)
from viz.figures.importance_matrix import NUMBERED_COLUMNS, importance_picture

NAN = np.nan
MATRIX = np.array([[NAN, 0.5, 1.5], [0.0, NAN, 0.25], [3.0, 1.0, NAN]], dtype=np.float32)
DOCUMENTS = [document_segment(i) for i in (2, 0, 1)]
QUERIES = ["document 0", "document 1", "document 2"]


def documents_html(
    *, normalization: Normalisation = "raw", selected: int | None = None, caption: str = "c"
) -> str:
    return importance_picture(
        MATRIX, DOCUMENTS, queries=QUERIES, caption=caption, normalization=normalization, selected=selected
    )


def table(html: str) -> Element:
    return read_html(html).all("table")[0]


def numbers(html: str) -> Any:
    return json.loads(read_html(html).with_class("pine-numbers")[0].text)


def level(cell: Element) -> int:
    return next(int(name[1:]) for name in cell.classes if name[0] == "l")


# Arithmetic


def test_share_divides_by_the_row_and_keeps_nan_and_zero_rows() -> None:
    np.testing.assert_array_equal(
        normalise(MATRIX, "share"), np.array([[NAN, 0.25, 0.75], [0, NAN, 1], [0.75, 0.25, NAN]], np.float32)
    )
    assert normalise(np.zeros((1, 3), np.float32), "share").tolist() == [[0, 0, 0]]
    np.testing.assert_array_equal(normalise(MATRIX, "raw"), MATRIX)
    np.testing.assert_array_equal(normalise(MATRIX, "log"), MATRIX)
    assert normalise(MATRIX, "share").dtype == np.float32


def test_selecting_means_over_what_was_not_chosen() -> None:
    trace = np.arange(2 * 3 * 1 * 2, dtype=np.float32).reshape(2, 3, 1, 2)
    assert select_importance(trace, 1, 2).tolist() == [[10, 11]]
    assert select_importance(trace, 0, None).tolist() == [[2, 3]]
    assert select_importance(trace, None, 1).tolist() == [[5, 6]]
    assert select_importance(trace, None, None).tolist() == [[5, 6]]


def decisive(importance: np.ndarray, on_documents: float) -> np.ndarray:
    """The decisiveness of heads whose queries all pay so much of their attention to documents."""
    num_documents = importance.shape[-1]
    attention = np.full((*importance.shape[:3], num_documents + 2), on_documents / num_documents, np.float32)
    nowhere = np.zeros((0, 0, 0, 0), np.int32)
    layout = TokenLayout((), ((1,),) * num_documents, (2,))
    trace = Trace("pine", layout, nowhere, nowhere, None, importance, attention)
    return decisiveness(trace)


def test_decisiveness_is_zero_for_equal_documents_and_the_attention_on_documents_for_a_winner() -> None:
    equal, winner = np.full((3, 3), 0.2, np.float32), np.tile([0, 5, 0], (3, 1)).astype(np.float32)
    stacked = np.stack([equal, winner, MATRIX])[None]
    found = decisive(stacked, 0.5)
    assert found.dtype == np.float32 and found.shape == (1, 3)
    # MATRIX: shares differ by 0.5, 1.0 and 0.5.
    np.testing.assert_allclose(found, [[0, 0.5, 1 / 3]], rtol=1e-6)
    assert most_decisive(found) == (0, 1)
    assert decisive(np.full((1, 1, 1, 1), NAN, np.float32), 1).tolist() == [[0]]
    assert decisive(np.zeros((1, 1, 2, 3), np.float32), 1).tolist() == [[0]]


def test_attention_without_the_rest_is_shared_among_documents() -> None:
    attention = np.array([[0.5, 0.125, 0.25, 0.125], [1, 0, 0, 0]], np.float32)
    np.testing.assert_array_equal(attention_shares(attention, with_rest=True), attention)
    shares = attention_shares(attention, with_rest=False)
    np.testing.assert_allclose(shares, np.array([[1 / 3, 2 / 3], [0, 0]]), rtol=1e-6)


# Levels


@given(st.lists(st.floats(0, 1e6, width=32) | st.just(NAN), min_size=1, max_size=20), st.booleans())
def test_levels_rise_with_the_values(values: list[float], is_log: bool) -> None:
    array = np.array(values, np.float32)
    levels = Scale.of(array, is_log=is_log).levels(array)
    assert ((levels == -1) == np.isnan(array)).all()
    known = array[~np.isnan(array)]
    assert (np.diff(levels[~np.isnan(array)][np.argsort(known, kind="stable")]) >= 0).all()
    if known.size and known.max() > 0:
        assert levels.max() == TOP_LEVEL


def test_a_log_scale_is_even_in_powers_of_ten() -> None:
    values = np.array([0, 1e-4, 1e-2, 1], np.float32)
    scale = Scale.of(values, is_log=True)
    assert scale.levels(values).tolist() == [0, 0, TOP_LEVEL // 2, TOP_LEVEL]
    assert scale.ends == ("1.00e-04", "1.00")
    assert Scale.of(values).ends == ("0", "1.00")


def test_the_stylesheet_has_the_levels_of_the_ramp() -> None:
    sheet = figure_styles()
    for step in range(TOP_LEVEL + 1):
        color = ramp_color(CIVIDIS, step / TOP_LEVEL)
        assert f".pine-levels .l{step} {{ background: {color}; color: {ink_on(color)}; }}" in sheet


# Documents


def test_the_table_shows_every_number_and_hatches_the_diagonal() -> None:
    rows = table_cells(table(documents_html()))
    assert [[cell.text for cell in row] for row in rows] == [
        ["none", "0.500", "1.50"], ["0", "none", "0.250"], ["3.00", "1.00", "none"],
    ]  # fmt: skip
    hatched = [(q, k) for q in range(3) for k in range(3) if "pine-masked" in rows[q][k].classes]
    assert hatched == [(0, 0), (1, 1), (2, 2)]
    assert (level(rows[1][0]), level(rows[2][0])) == (0, TOP_LEVEL)
    assert rows[1][2].attributes["title"] == "document A, document B: 0.250"
    assert "not ranked against itself" in rows[0][0].attributes["title"]


@pytest.mark.parametrize("normalization", ["raw", "share", "log"])
def test_the_saved_numbers_are_those_drawn_unrounded(normalization: Normalisation) -> None:
    saved = numbers(documents_html(normalization=normalization))
    assert saved["columns"] == ["query", "C", "A", "B"]
    assert [row[0] for row in saved["rows"]] == ["C", "A", "B"]
    values = np.array([row[1:] for row in saved["rows"]], dtype=np.float32)
    np.testing.assert_array_equal(values, normalise(MATRIX, normalization))


def test_the_scale_says_its_ends_and_its_kind() -> None:
    def scale(normalization: Normalisation) -> list[str]:
        spans = read_html(documents_html(normalization=normalization)).with_class("pine-scale")[0].all("span")
        return [span.text for span in spans if span.text]

    assert scale("raw") == ["0", "3.00", "importance"]
    assert scale("share") == ["0", "1.00", "importance, share of the row"]
    assert scale("log") == ["0.250", "3.00", "importance, log scale"]


def test_a_row_picks_its_query_and_the_chosen_one_is_marked() -> None:
    drawn = table(documents_html(selected=1))
    rows = drawn.all("tbody")[0].all("tr")
    assert all("pine-row" in row.classes for row in rows)
    assert ["pine-selected" in row.classes for row in rows] == [False, True, False]
    buttons = drawn.all("button")
    assert [json.loads(button.attributes["data-pick"]) for button in buttons] == [
        {"query": query} for query in QUERIES
    ]
    assert [button.attributes["aria-pressed"] for button in buttons] == ["false", "true", "false"]
    assert [button.attributes["tabindex"] for button in buttons] == ["-1", "0", "-1"]
    assert [button.text.split() for button in buttons] == [["query", letter] for letter in "CAB"]
    assert buttons[2].attributes["data-readout"] == "document B: most to C 3.00, A 1.00"
    assert table(documents_html()).all("button")[0].attributes["tabindex"] == "0"


def test_one_document_is_said_to_have_nothing_to_rank() -> None:
    html = importance_picture(
        MATRIX[:1, :1],
        DOCUMENTS[:1],
        queries=QUERIES[:1],
        caption="c",
        normalization="raw",
        selected=None,
    )
    assert "one document" in html and "<table" not in html


def test_many_documents_have_colours_alone_and_their_numbers_are_saved() -> None:
    count = NUMBERED_COLUMNS + 1
    values = np.arange(count * count, dtype=np.float32).reshape(count, count)
    np.fill_diagonal(values, NAN)
    html = importance_picture(
        values,
        [document_segment(i) for i in range(count)],
        queries=[f"document {i}" for i in range(count)],
        caption="c",
        normalization="raw",
        selected=None,
    )
    rows = table_cells(table(html))
    assert rows[0][1].text == "" and "title" not in rows[0][1].attributes
    assert level(rows[-1][-2]) == TOP_LEVEL
    # The preview of a cell is found in the numbers, counted from the end of the row.
    assert numbers(html)["rows"][3][-1] == values[3, -1] and len(rows[3]) == count


# Words


def test_captions_name_layer_head_aggregation_and_dtype() -> None:
    caption = importance_caption(method="PINE", layer=3, head=None, normalization="share", dtype="float32")
    for part in ("PINE", "layer 3, mean over heads", "share of its row", "float32", "not a full explanation"):
        assert part in caption
    other = importance_caption(method="PINE", layer=None, head=5, normalization="raw", dtype="bfloat16")
    assert "mean over layers, head 5" in other and "share" not in other
    assert "logarithmic" in importance_caption(
        method="PINE", layer=0, head=0, normalization="log", dtype="float32"
    )
    assert place_name(None, None) == "mean over layers and heads"


def test_numbers_are_never_rounded_to_zero() -> None:
    assert [format_value(v) for v in (0.0, 1e-7, 0.02, 1.5, 12345.0)] == [
        "0", "1.00e-07", "0.0200", "1.50", "1.23e+04",
    ]  # fmt: skip
    assert [format_difference(v) for v in (0.0, 3.2e-6, 5.2341, float("nan"))] == [
        "0.0", "3.2e-06", "5.23", "not a number",
    ]  # fmt: skip


@given(st.lists(st.floats(width=32, allow_infinity=False), max_size=5))
def test_saved_numbers_read_back_as_the_same_float32(values: list[float]) -> None:
    array = np.array(values, np.float32)
    saved = [NAN if value is None else value for value in plain_values(array)]
    np.testing.assert_array_equal(np.array(saved, np.float32), array)
    assert plain_values(np.array([0.1], np.float32)) == (0.1,)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_come_out_as_text(text: str) -> None:
    html = documents_html(caption=text)
    assert_harmless(html)
    assert read_html(html).all("figcaption")[0].text == text
