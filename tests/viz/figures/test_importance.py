"""Importance: numbers equal the arrays, the diagonal is outside the scale, rows and cells pick."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.viz_reading import HOSTILE, Element, assert_harmless, read_html, table_cells
from viz.drawing.identity import DECODED, PREFIX, document_segment, ink_on
from viz.drawing.levels import TOP_LEVEL, Scale
from viz.drawing.numbers import format_difference, format_value, plain_values
from viz.drawing.ramps import CIVIDIS, ramp_color
from viz.drawing.styles import figure_styles
from viz.drawing.tokens import Token
from viz.figures.heads import ROOMY, head_strip
from viz.figures.importance import (
    Normalisation,
    attention_caption,
    attention_shares,
    importance_caption,
    most_decisive,
    normalise,
    place_name,
    select_importance,
    spread,
)
from viz.figures.importance_matrix import (
    NUMBERED_COLUMNS,
    ROW_LIMIT,
    attention_picture,
    importance_picture,
    written_picture,
)

NAN = np.nan
MATRIX = np.array([[NAN, 0.5, 1.5], [0.0, NAN, 0.25], [3.0, 1.0, NAN]], dtype=np.float32)
DOCUMENTS = [document_segment(i) for i in (2, 0, 1)]
QUERIES = ["document 0", "document 1", "document 2"]
ROWS = np.array([[0.5, 0.25, 0.25], [0.0, 3.0, 1.0]], dtype=np.float32)
TOKENS = [Token(" Paris", DECODED, 0), Token(".", DECODED, 1)]


def documents_html(
    *, normalisation: Normalisation = "raw", selected: int | None = None, caption: str = "c"
) -> str:
    return importance_picture(
        MATRIX, DOCUMENTS, queries=QUERIES, caption=caption, normalisation=normalisation, selected=selected
    )


def written_html(
    values: np.ndarray = ROWS,
    tokens: list[Token] = TOKENS,
    *,
    selected: int | None = None,
    normalisation: Normalisation = "raw",
) -> str:
    return written_picture(
        values,
        tokens,
        DOCUMENTS[: values.shape[1]],
        queries=[f"suffix {10 + step}" for step in range(len(tokens))],
        caption="c",
        normalisation=normalisation,
        selected=selected,
        measure="importance",
    )


def strip_html(values: np.ndarray, layer: int | None = None, head: int | None = None) -> str:
    return head_strip(values, layer=layer, head=head, caption="c", measure="spread", title="t", name="n")


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


def test_spread_is_zero_for_equal_documents_and_one_for_a_winner() -> None:
    equal, winner = np.full((3, 3), 0.2, np.float32), np.tile([0, 5, 0], (3, 1)).astype(np.float32)
    stacked = np.stack([equal, winner, MATRIX])[None]
    spreads = spread(stacked)
    assert spreads.dtype == np.float32 and spreads.shape == (1, 3)
    # MATRIX: shares differ by 0.5, 1.0 and 0.5.
    np.testing.assert_allclose(spreads, [[0, 1, 2 / 3]], rtol=1e-6)
    assert most_decisive(spreads) == (0, 1)
    assert spread(np.full((1, 1, 1, 1), NAN, np.float32)).tolist() == [[0]]
    assert spread(np.zeros((1, 1, 2, 3), np.float32)).tolist() == [[0]]


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


@pytest.mark.parametrize("normalisation", ["raw", "share", "log"])
def test_the_saved_numbers_are_those_drawn_unrounded(normalisation: Normalisation) -> None:
    saved = numbers(documents_html(normalisation=normalisation))
    assert saved["columns"] == ["query", "C", "A", "B"]
    assert [row[0] for row in saved["rows"]] == ["C", "A", "B"]
    values = np.array([row[1:] for row in saved["rows"]], dtype=np.float32)
    np.testing.assert_array_equal(values, normalise(MATRIX, normalisation))


def test_the_scale_says_its_ends_and_its_kind() -> None:
    def scale(normalisation: Normalisation) -> list[str]:
        spans = read_html(documents_html(normalisation=normalisation)).with_class("pine-scale")[0].all("span")
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
        normalisation="raw",
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
        normalisation="raw",
        selected=None,
    )
    rows = table_cells(table(html))
    assert rows[0][1].text == "" and "title" not in rows[0][1].attributes
    assert level(rows[-1][-2]) == TOP_LEVEL
    # The preview of a cell is found in the numbers, counted from the end of the row.
    assert numbers(html)["rows"][3][-1] == values[3, -1] and len(rows[3]) == count


# Words of the answer


def test_the_words_are_buttons_and_rows_that_pick_the_same_step() -> None:
    root = read_html(written_html(selected=1))
    words = root.with_class("pine-answer-tokens")[0].all("button")
    rows = root.all("table")[0].all("button")
    assert [word.text for word in words] == ["␣Paris", "."]
    for buttons in (words, rows):
        assert [button.attributes["data-pick"] for button in buttons] == [
            '{"query": "suffix 10"}',
            '{"query": "suffix 11"}',
        ]
        assert [button.attributes["aria-pressed"] for button in buttons] == ["false", "true"]
        assert [button.attributes["tabindex"] for button in buttons] == ["-1", "0"]
    assert [[cell.text for cell in row] for row in table_cells(root.all("table")[0])] == [
        ["0.500", "0.250", "0.250"], ["0", "3.00", "1.00"],
    ]  # fmt: skip
    assert numbers(written_html())["rows"] == [[1, " Paris", 0.5, 0.25, 0.25], [2, ".", 0.0, 3.0, 1.0]]


def test_of_many_words_those_around_the_chosen_one_are_drawn() -> None:
    values = np.arange(1, 301, dtype=np.float32)[:, None]
    tokens = [Token("t", DECODED, i) for i in range(300)]
    root = read_html(written_html(values, tokens, selected=200))
    rows = root.all("table")[0].all("tbody")[0].all("tr")
    assert len(rows) == ROW_LIMIT
    [chosen] = [row for row in rows if "pine-selected" in row.classes]
    assert chosen.all("button")[0].attributes["data-pick"] == '{"query": "suffix 210"}'
    assert chosen.all("td")[0].text == format_value(201)
    assert len(root.with_class("pine-answer-tokens")[0].all("button")) == 300
    caption = root.all("figcaption")[0].text
    assert caption.startswith("Answer tokens 169 to 232 of 300 are drawn, around the chosen one.")
    first = read_html(written_html(values, tokens)).all("figcaption")[0].text
    assert first.startswith("Answer tokens 1 to 64 of 300 are drawn. ")


def test_an_answer_without_words_says_so() -> None:
    assert "No token" in written_html(np.zeros((0, 3), np.float32), [])


# Attention


def test_bars_are_as_long_as_the_shares() -> None:
    html = attention_picture(
        np.array([0.5, 0.125, 0], np.float32), [PREFIX, *DOCUMENTS[:2]], caption="c", when="now"
    )
    root = read_html(html)
    assert [head.text for head in root.all("tbody")[0].all("th")] == ["SYS the prefix", "C", "A"]
    widths = [bar.attributes["style"] for bar in root.with_class("pine-bar")]
    assert widths == ["width:100.0%", "width:25.0%", "width:0.0%"]
    assert [cell.text for [cell] in table_cells(root.all("table")[0])] == ["0.500", "0.125", "0"]
    assert numbers(html)["rows"] == [["SYS", 0.5], ["C", 0.125], ["A", 0.0]]


# Heads


def test_a_cell_of_the_strip_picks_its_layer_and_head() -> None:
    spreads = np.random.default_rng(0).random((5, 3)).astype(np.float32)
    html = strip_html(spreads, 4, 2)
    body = table(html).all("tbody")[0]
    for head, row in enumerate(body.all("tr")):
        shared = json.loads(row.attributes["data-shared"])
        for layer, cell in enumerate(row.all("td")):
            assert shared | json.loads(cell.attributes["data-pick"]) == {"layer": layer, "head": head}
            assert cell.attributes["title"] == (
                f"layer {layer}, head {head}: spread {format_value(spreads[layer, head])}"
            )
            assert level(cell) == round(float(spreads[layer, head] / spreads.max()) * TOP_LEVEL)
        assert shared | json.loads(row.all("th")[0].attributes["data-pick"]) == {"layer": None, "head": head}
    heads = table(html).all("thead")[0].all("th")
    assert [json.loads(head.attributes["data-pick"]) for head in heads] == [
        {"layer": layer, "head": None} for layer in range(5)
    ]
    saved = numbers(html)
    assert saved["columns"] == ["head", *(f"layer {layer}" for layer in range(5))]
    drawn = np.array([row[1:] for row in saved["rows"]], np.float32)
    np.testing.assert_array_equal(drawn, spreads.T)


@pytest.mark.parametrize(
    ("layer", "head", "chosen", "focus"),
    [
        (2, 1, [(2, 1)], (2, 1)),
        (2, None, [(2, 0), (2, 1)], (2, 0)),
        (None, 1, None, (0, 1)),
        (None, None, [], (0, 0)),
    ],
)
@pytest.mark.parametrize("num_layers", [3, ROOMY + 1])
def test_the_chosen_heads_are_outlined_and_one_cell_is_in_the_tab_order(
    num_layers: int,
    layer: int | None,
    head: int | None,
    chosen: list[tuple[int, int]] | None,
    focus: tuple[int, int],
) -> None:
    rows = table_cells(table(strip_html(np.ones((num_layers, 2), np.float32), layer, head)))[-2:]
    places = [(a, h, cell) for h, row in enumerate(rows) for a, cell in enumerate(row)]
    outlined = {(a, h) for a, h, cell in places if "pine-chosen" in cell.classes}
    expected = {(a, head) for a in range(num_layers)} if chosen is None else set(chosen)
    assert outlined == expected
    assert {(a, h) for a, h, cell in places if cell.attributes.get("aria-selected") == "true"} == outlined
    assert [(a, h) for a, h, cell in places if cell.attributes.get("tabindex") == "0"] == [focus]


def test_a_strip_of_the_largest_models_is_small_and_bare() -> None:
    spreads = np.random.default_rng(0).random((80, 64)).astype(np.float32)
    html = strip_html(spreads, 3, 5)
    assert len(html.encode()) < 300_000
    cells = [cell for row in table_cells(table(html)) for cell in row]
    assert len(cells) == 80 * 64 and not any(cell.children or cell.text for cell in cells)
    assert read_html(html).with_class("pine-bare")


def test_a_matrix_of_fifty_documents_stays_small() -> None:
    segments = [document_segment(i) for i in range(50)]
    values = np.random.default_rng(0).random((ROW_LIMIT, 50)).astype(np.float32)
    html = written_picture(
        values,
        [Token(" word", DECODED, i) for i in range(ROW_LIMIT)],
        segments,
        queries=["suffix 1"] * ROW_LIMIT,
        caption="c",
        normalisation="share",
        selected=3,
        measure="importance",
    )
    assert len(html.encode()) < 250_000


# Words


def test_captions_name_layer_head_aggregation_and_dtype() -> None:
    caption = importance_caption(method="PINE", layer=3, head=None, normalisation="share", dtype="float32")
    for part in ("PINE", "layer 3, mean over heads", "share of its row", "float32", "not a full explanation"):
        assert part in caption
    other = importance_caption(
        method="PINE", layer=None, head=5, normalisation="raw", dtype="bfloat16", rows="token"
    )
    assert "mean over layers, head 5" in other and "each answer token" in other and "share" not in other
    assert "logarithmic" in importance_caption(
        method="PINE", layer=0, head=0, normalisation="log", dtype="float32"
    )
    assert place_name(None, None) == "mean over layers and heads"


def test_the_caption_of_attention_says_what_is_left_out() -> None:
    def caption(*, with_rest: bool) -> str:
        return attention_caption(
            method="PCW", layer=1, head=2, with_rest=with_rest, dtype="float32", when="while"
        )

    assert "share of all attention, while, computed in float32" in caption(with_rest=True)
    assert "left out" not in caption(with_rest=True)
    assert "prefix, question and answer are left out" in caption(with_rest=False)


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
    written = written_html(ROWS[:1], [Token(text, DECODED, 0)])
    assert_harmless(written)
    assert numbers(written)["rows"][0][1] == text
