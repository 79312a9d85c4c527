"""What the browser gets of a figure."""

import base64
import json

import numpy as np
import plotly.graph_objects as go
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from viz.export.packed import LEVELS, PACKED_FROM, packed_json

SIDE = int(PACKED_FROM**0.5)
VALUES = st.floats(-1e3, 1e3, width=32) | st.just(float("nan"))


@settings(max_examples=10)
@given(arrays(np.float32, (SIDE, SIDE + 1), elements=VALUES, fill=st.just(float("nan"))))
def test_a_large_matrix_is_a_byte_a_cell_and_blank_where_it_was(values: np.ndarray) -> None:
    (trace,) = json.loads(packed_json(go.Figure(go.Heatmap(z=values, meta={"a": 1}))))["data"]
    assert (trace["z"]["dtype"], trace["z"]["shape"], trace["meta"]["a"]) == ("u1", f"{SIDE}, {SIDE + 1}", 1)
    levels = np.frombuffer(base64.b64decode(trace["z"]["bdata"]), np.uint8).reshape(values.shape)
    low, high = trace["meta"]["levels"]
    np.testing.assert_array_equal(levels == 0, np.isnan(values))
    found = low + (levels.astype(float) - 1) / LEVELS * (high - low)
    known = ~np.isnan(values)
    np.testing.assert_allclose(found[known], values[known], atol=(high - low) / LEVELS * 0.51)


def test_what_is_small_stays_as_it_is_and_so_does_the_figure() -> None:
    small, large = np.ones((9, 9), np.float32), np.ones((SIDE, SIDE), np.float32)
    figure = go.Figure([go.Heatmap(z=small), go.Heatmap(z=large)])
    first, second = json.loads(packed_json(figure))["data"]
    assert (first["z"]["dtype"], second["z"]["dtype"]) == ("f4", "u1")
    assert figure.data[1].z.dtype == np.float32 and figure.data[1].meta is None


def test_it_can_stand_in_a_script_and_offers_no_upload() -> None:
    said = packed_json(go.Figure(go.Bar(x=["</script><b>"], y=[1])))
    assert "<" not in said
    assert json.loads(said)["data"][0]["x"] == ["</script><b>"]
    assert json.loads(said)["config"]["showSendToCloud"] is False
