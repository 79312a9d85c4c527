"""Figures away from the page: packed for the browser, and in a document."""

import base64
import json

import numpy as np
import plotly.graph_objects as go
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from tests.support.viz_reading import HOSTILE, picture_numbers, read_html
from viz.drawing.pictures import Numbers, picture, switch
from viz.export.standalone import LEVELS, MIN_PACKED_CELLS, packed_json, pictures_page, strip_interaction

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
