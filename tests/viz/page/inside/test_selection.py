"""The selection of the page: picks come from the browser and are not to be trusted."""

import json
import math
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viz.drawing.picture import pick
from viz.page.inside.selection import Bounds, Query, Selection

BOUNDS = Bounds(("vanilla", "pine"), num_layers=3, num_heads=2, num_documents=4, num_suffix=10)
START = Selection("pine", Query("suffix", 5), layer=1, head=0)


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ({"method": "vanilla"}, {"method": "vanilla"}),
        ({"query": "document 3"}, {"query": Query("document", 3)}),
        ({"query": "suffix 9"}, {"query": Query("suffix", 9)}),
        ({"layer": 2, "head": 1}, {"layer": 2, "head": 1}),
        ({"layer": None}, {"layer": None}),
        ({"head": None}, {"head": None}),
        ({"normalization": "log"}, {"normalization": "log"}),
        ({"with_prefix": False}, {"with_prefix": False}),
        ({"other": "method:pcw"}, {"other": "method:pcw"}),
        ({"rows": "head"}, {"rows": "head"}),
        ({"with_sink": True}, {"with_sink": True}),
    ],
)
def test_a_pick_changes_what_it_names_and_nothing_else(
    what: dict[str, Any], expected: dict[str, Any]
) -> None:
    after = START.picked(json.loads(pick(**what)), BOUNDS)
    for field in vars(START):
        assert getattr(after, field) == expected.get(field, getattr(START, field)), field


@pytest.mark.parametrize(
    "what",
    [
        {"method": "mask_only"},
        {"query": "document 4"},
        {"query": "suffix 10"},
        {"query": "suffix -1"},
        {"query": "suffix ²"},
        {"query": 3},
        {"layer": 3},
        {"layer": -1},
        {"layer": True},
        {"layer": 1.0},
        {"head": "0"},
        {"normalization": "sum"},
        {"with_prefix": 1},
        {"with_sink": 1},
        {"other": "x" * 65},
        {"rows": "column"},
        {"layer": math.inf},
        {"__class__": "x", "layers": 1},
    ],
)
def test_what_is_not_in_the_run_is_left_as_it_was(what: dict[str, Any]) -> None:
    assert START.picked(what, BOUNDS) == START


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
fields = st.sampled_from(list(vars(START)))


@given(st.dictionaries(fields | st.text(), anything))
def test_any_pick_leaves_a_selection_of_the_run(what: dict[str, Any]) -> None:
    after = START.picked(what, BOUNDS)
    assert after.method in BOUNDS.methods
    assert BOUNDS.has(after.query)
    assert after.layer in (None, 0, 1, 2) and after.head in (None, 0, 1)
    assert after.normalization in ("raw", "share", "log")
    assert isinstance(after.with_prefix, bool)
    assert after.picked({}, BOUNDS) == after


@pytest.mark.parametrize("kind", ["document", "suffix"])
@pytest.mark.parametrize("index", [0, 7, 123_456])
def test_a_query_is_read_back_from_its_name(kind: Literal["document", "suffix"], index: int) -> None:
    query = Query(kind, index)
    assert Query.parse(str(query)) == query


@pytest.mark.parametrize(
    "text", ["", "document", "document 1 2", "prefix 1", "suffix 1234567", None, 4, "٣ 3"]
)
def test_other_names_are_no_query(text: object) -> None:
    assert Query.parse(text) is None
