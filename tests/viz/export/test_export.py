"""Figures away from the page: packed for the browser, as numbers, and in a document."""

import base64
import csv
import io
import json

import numpy as np
import plotly.graph_objects as go
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays

import viz
from pine_engine import ShuffleResult
from tests.support.viz_reading import HOSTILE, read_html
from viz.drawing.pictures import Numbers, picture, switch
from viz.export.standalone import (
    LEVELS,
    MIN_PACKED_CELLS,
    as_csv,
    figure_numbers,
    packed_json,
    picture_numbers,
    pictures_page,
    strip_interaction,
)

SIDE = int(MIN_PACKED_CELLS**0.5)
VALUES = st.floats(-1e3, 1e3, width=32) | st.just(float("nan"))
NUMBERS = Numbers(
    ("text", "value"), ((HOSTILE[0], 0.1), ("=1+1", None), ('a "b", c', -3), ("two\nlines", 7)), name="one",
    caption=HOSTILE[0],
)  # fmt: skip


@settings(max_examples=10)
@given(arrays(np.float32, (SIDE, SIDE + 1), elements=VALUES, fill=st.just(float("nan"))))
def test_large_matrix_is_a_byte_per_cell(values: np.ndarray) -> None:
    (trace,) = json.loads(packed_json(go.Figure(go.Heatmap(z=values, meta={"a": 1}))))["data"]
    assert (trace["z"]["dtype"], trace["z"]["shape"], trace["meta"]["a"]) == ("u1", f"{SIDE}, {SIDE + 1}", 1)
    levels = np.frombuffer(base64.b64decode(trace["z"]["bdata"]), np.uint8).reshape(values.shape)
    low, high = trace["meta"]["levels"]
    np.testing.assert_array_equal(levels == 0, np.isnan(values))
    unpacked = low + (levels.astype(float) - 1) / LEVELS * (high - low)
    known = ~np.isnan(values)
    np.testing.assert_allclose(unpacked[known], values[known], atol=(high - low) / LEVELS * 0.51)


def test_packing_keeps_small_matrices_and_the_figure() -> None:
    large = np.ones((SIDE, SIDE), np.float32)
    figure = go.Figure([go.Heatmap(z=large[:9]), go.Heatmap(z=large), go.Bar(x=["</script><b>"], y=[1])])
    packed = packed_json(figure)
    first, second, bars = json.loads(packed)["data"]
    assert (first["z"]["dtype"], second["z"]["dtype"]) == ("f4", "u1")
    assert figure.data[1].z.dtype == np.float32 and figure.data[1].meta is None
    assert "<" not in packed and bars["x"] == ["</script><b>"]
    assert json.loads(packed)["config"]["showSendToCloud"] is False


def test_matrix_numbers_are_its_rows(tiny_shuffle: ShuffleResult) -> None:
    trace = tiny_shuffle.first.traces["pine"]
    figure = viz.plot_importance(trace, layer=1, head=2, order=[2, 0, 1])
    numbers = figure_numbers(figure)
    assert (numbers.name, numbers.caption) == ("importance", figure.layout.meta["caption"])
    assert numbers.columns == ("", "row", "C", "A", "B")
    assert [row[1] for row in numbers.rows] == ["C", "A", "B"] and numbers.rows[0][2] is None
    np.testing.assert_array_equal(np.array([row[2:] for row in numbers.rows], np.float32), figure.data[0].z)
    rows = figure_numbers(viz.plot_answer_importance(trace, ["<b>", "&amp;"])).rows
    assert [row[1] for row in rows] == ["1 <b>", "2 &amp;"]


def test_bar_numbers_have_length_and_start(tiny_shuffle: ShuffleResult) -> None:
    trace = tiny_shuffle.first.traces["vanilla"]
    numbers = figure_numbers(viz.plot_positions(trace, document=1))
    assert numbers.columns == ("", "length", "y", "start")
    name, length, row, start = numbers.rows[0]
    assert (name, length, row) == ("document A", int(trace.layout.lengths[0]), "all layers and heads")
    assert start == trace.document_starts[0, 0, 1, 0]
    assert numbers.rows[2][1] is None and numbers.rows[2][3] is None  # masked


def test_csv_holds_texts_and_no_formula() -> None:
    rows = list(csv.reader(io.StringIO(as_csv(NUMBERS), newline="")))
    assert rows[1:] == [[HOSTILE[0], "0.1"], ["'=1+1", ""], ['a "b", c', "-3"], ["two\nlines", "7"]]


def test_document_has_no_selection_and_no_requests() -> None:
    drawn = picture('<p data-pick="{}"></p>', NUMBERS)
    figure = go.Figure(layout={"meta": {"name": HOSTILE[0], "caption": "A row. Click a cell to select it."}})
    section = (HOSTILE[0], drawn, [packed_json(figure)])
    page = pictures_page([section], run="", title=HOSTILE[0], about="", styles="p {}", scripts=["let a = 1;"])
    root = read_html(page)
    (content,) = [script.text for script in root.all("script") if "type" in script.attributes]
    assert json.loads(content)["layout"]["meta"] == {"name": HOSTILE[0], "caption": "A row."}
    assert HOSTILE[0] in root.text
    assert 'data-pick="' not in page and "http:" not in page and "https:" not in page
    assert picture_numbers(page) == [NUMBERS]


def test_strip_interaction_removes_selections_and_their_sentences() -> None:
    live = switch("Head", [("all", {"head": None}), ("first", {"head": 0})], "all")
    assert "data-pick" not in strip_interaction(live)
    line = "Hover a token to see alternatives. Click to select it as the query."
    assert strip_interaction(line) == "Hover a token to see alternatives."
