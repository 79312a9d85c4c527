"""Importance: numbers equal the arrays, the diagonal is outside the scale, axes are named."""

import numpy as np
import pytest

from tests.viz_reading import HOSTILE, assert_harmless, read_html, table_cells
from viz.identity import DECODED, SUFFIX, document_segment, ink_on
from viz.importance import (
    ROW_LIMIT,
    empty_figure,
    importance_caption,
    importance_figure,
    importance_table,
    most_decisive,
    normalise,
    select_importance,
    spread,
    spread_figure,
)
from viz.numbers import format_difference, format_value
from viz.ramps import CIVIDIS
from viz.tokens import Token

NAN = np.nan
MATRIX = np.array([[NAN, 0.5, 1.5], [0.0, NAN, 0.25], [3.0, 1.0, NAN]], dtype=np.float32)
DOCUMENTS = [document_segment(i) for i in (2, 0, 1)]
ROWS = np.array([[0.5, 0.25, 0.25], [0.0, 3.0, 1.0]], dtype=np.float32)
TOKENS = [Token("?", SUFFIX, 4), Token(" Paris", DECODED, 0)]


def test_share_divides_by_the_row_and_keeps_nan_and_zero_rows() -> None:
    np.testing.assert_array_equal(
        normalise(MATRIX, "share"), np.array([[NAN, 0.25, 0.75], [0, NAN, 1], [0.75, 0.25, NAN]], np.float32)
    )
    assert normalise(np.zeros((1, 3), np.float32), "share").tolist() == [[0, 0, 0]]
    np.testing.assert_array_equal(normalise(MATRIX, "raw"), MATRIX)
    assert normalise(MATRIX, "share").dtype == np.float32


def test_selecting_means_over_what_was_not_chosen() -> None:
    trace = np.arange(2 * 3 * 1 * 2, dtype=np.float32).reshape(2, 3, 1, 2)
    assert select_importance(trace, 1, 2).tolist() == [[10, 11]]
    assert select_importance(trace, 0, None).tolist() == [[2, 3]]
    assert select_importance(trace, None, None).tolist() == [[5, 6]]


def test_spread_is_zero_for_equal_documents_and_one_for_a_winner() -> None:
    equal, winner = np.full((3, 3), 0.2, np.float32), np.tile([0, 5, 0], (3, 1)).astype(np.float32)
    stacked = np.stack([equal, winner, MATRIX])[None]
    spreads = spread(stacked)
    assert spreads.dtype == np.float32 and spreads.shape == (1, 3)
    # MATRIX: shares differ by 0.5, 1.0 and 0.5.
    np.testing.assert_allclose(spreads, [[0, 1, 2 / 3]], rtol=1e-6)
    assert most_decisive(spreads) == (0, 1)
    assert spread(np.full((1, 1, 1, 1), NAN, np.float32)).tolist() == [[0]]


def test_the_table_shows_every_number_and_hatches_the_diagonal() -> None:
    rows = table_cells(read_html(importance_table(MATRIX, DOCUMENTS, caption="c")).all("table")[0])
    assert [[cell.text for cell in row] for row in rows] == [
        ["none", "0.500", "1.50"], ["0", "none", "0.250"], ["3.00", "1.00", "none"],
    ]  # fmt: skip
    hatched = [(q, k) for q in range(3) for k in range(3) if "pine-masked" in rows[q][k].classes]
    assert hatched == [(0, 0), (1, 1), (2, 2)]
    assert (rows[2][1].attributes["data-query"], rows[2][1].attributes["data-key"]) == ("2", "1")
    assert "data-query" not in rows[0][0].attributes


def test_the_scale_starts_at_zero_and_ends_at_the_largest() -> None:
    root = read_html(importance_table(MATRIX, DOCUMENTS, caption="c"))
    rows = table_cells(root.all("table")[0])
    assert rows[1][0].attributes["style"].startswith(f"--pine-fill:{CIVIDIS[0]}")
    assert rows[2][0].attributes["style"] == f"--pine-fill:{CIVIDIS[-1]};--pine-on-fill:{ink_on(CIVIDIS[-1])}"
    assert [end.text for end in root.with_class("pine-scale")[0].all("span")][0:3:2] == ["0", "3.00"]
    shares = read_html(importance_table(MATRIX, DOCUMENTS, caption="c", normalisation="share"))
    assert table_cells(shares.all("table")[0])[0][2].text == "0.750"


def test_letters_travel_and_the_chosen_query_is_marked() -> None:
    table = read_html(importance_table(MATRIX, DOCUMENTS, caption="c", selected=1)).all("table")[0]
    assert [head.text for head in table.all("th")] == ["C", "A", "B"] * 2
    assert "query document A, key document C" in table_cells(table)[1][0].attributes["title"]
    assert ["pine-selected" in row.classes for row in table.all("tbody")[0].all("tr")] == [False, True, False]


def test_nothing_to_draw_is_said() -> None:
    assert "does not rank" in importance_table(None, DOCUMENTS, caption="c")
    assert "one document" in importance_table(np.array([[NAN]], np.float32), DOCUMENTS[:1], caption="c")
    for figure in (importance_figure(None, TOKENS, DOCUMENTS), spread_figure(None)):
        assert not figure.data and "does not rank" in figure.layout.annotations[0].text
    empty = importance_figure(np.zeros((0, 3), np.float32), [], DOCUMENTS)
    assert "No token" in empty.layout.annotations[0].text
    assert "&lt;img" in empty_figure("<img src=x>").layout.annotations[0].text


def test_the_heatmap_of_tokens_has_the_array_and_named_axes() -> None:
    figure = importance_figure(ROWS, TOKENS, DOCUMENTS)
    heatmap = figure.data[0]
    assert heatmap.z.dtype == np.float32
    np.testing.assert_array_equal(heatmap.z, ROWS)
    assert (heatmap.zmin, heatmap.zmax) == (0, 3)
    assert list(heatmap.x) == ["C", "A", "B"] and list(heatmap.y) == ["SUF 5 · ?", "OUT 1 · ␣Paris"]
    assert (
        figure.layout.xaxis.title.text == "key document" and figure.layout.yaxis.title.text == "query token"
    )
    assert figure.layout.yaxis.autorange == "reversed"
    assert all(part in heatmap.hovertemplate for part in ("%{y}", "%{x}", "%{z"))
    assert heatmap.text is None and heatmap.customdata is None
    assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "rgba(0,0,0,0)"
    assert figure.layout.height == 90 + 80 + 80


def test_too_many_tokens_are_cut_to_the_last_and_the_axis_says_so() -> None:
    values = np.arange(300, dtype=np.float32)[:, None]
    figure = importance_figure(values, [Token("t", DECODED, i) for i in range(300)], DOCUMENTS[:1])
    np.testing.assert_array_equal(figure.data[0].z, values[-ROW_LIMIT:])
    assert figure.layout.yaxis.title.text == "query token (last 256 of 300)"


def test_the_layer_and_head_strip_marks_the_chosen_head() -> None:
    spreads = np.random.default_rng(0).random((4, 3)).astype(np.float32)
    figure = spread_figure(spreads, layer=2, head=1)
    np.testing.assert_array_equal(figure.data[0].z, spreads)
    assert figure.data[0].zmin == 0 and figure.data[0].z.dtype == np.float32
    assert (figure.layout.xaxis.title.text, figure.layout.yaxis.title.text) == ("head", "layer")
    box = figure.layout.shapes[0]
    assert (box.x0, box.x1, box.y0, box.y1) == (0.5, 1.5, 1.5, 2.5)
    row = spread_figure(spreads, layer=2).layout.shapes[0]
    assert (row.x0, row.x1, row.y0, row.y1) == (-0.5, 2.5, 1.5, 2.5)
    assert not spread_figure(spreads).layout.shapes


def test_captions_name_layer_head_aggregation_and_dtype() -> None:
    caption = importance_caption(method="PINE", layer=3, head=None, normalisation="share", dtype="float32")
    for part in (
        "PINE",
        "layer 3",
        "mean over heads",
        "share of its row",
        "float32",
        "not a full explanation",
    ):
        assert part in caption
    other = importance_caption(
        method="PINE", layer=None, head=5, normalisation="raw", dtype="bfloat16", rows="token"
    )
    assert "mean over layers, head 5" in other and "of each query token" in other and "share" not in other


def test_numbers_are_never_rounded_to_zero() -> None:
    assert [format_value(v) for v in (0.0, 1e-7, 0.02, 1.5, 12345.0)] == [
        "0", "1.00e-07", "0.0200", "1.50", "1.23e+04",
    ]  # fmt: skip
    assert [format_difference(v) for v in (0.0, 3.2e-6, 5.2341, float("nan"))] == [
        "0.0", "3.2e-06", "5.23", "not a number",
    ]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_come_out_as_text(text: str) -> None:
    html = importance_table(MATRIX, DOCUMENTS, caption=text)
    assert_harmless(html)
    assert read_html(html).all("figcaption")[0].text == text
    figure = importance_figure(ROWS[:1], [Token(text, DECODED, 0)], DOCUMENTS)
    assert "<" not in figure.data[0].y[0]


def test_the_same_data_gives_the_same_figure() -> None:
    first, second = (importance_figure(ROWS, TOKENS, DOCUMENTS).to_json() for _ in range(2))
    assert first == second
