"""Tables and rulers of the tutorial: numbers of the paper's example, positions, ties and importances."""

from typing import Any

import numpy as np
import pytest

from tests.support.viz_reading import read_html, table_cells
from viz.cards.importance_table import MAX_LEVEL, MAX_NUMBERED, importance_table
from viz.cards.position_table import Token, position_table, table_rows
from viz.cards.rulers import (
    QueryView,
    axis_ticks,
    method_rulers,
    overlapping_documents,
    position_ruler,
    tied_documents,
    view_text,
)
from viz.drawing.identity import PREFIX, SUFFIX, document_segment
from viz.export.numbers import picture_numbers
from viz.figures.positions import MASKED
from viz.theme import BLUES

_ = MASKED
# The paper's running example (specification 6.1), PINE, 1-based.
PINE = np.array(
    [
        [1, _, _, _, _, _, _, _],
        [1, 6, _, 4, 5, 2, 3, _],
        [1, 6, 7, 4, 5, 2, 3, _],
        [1, 2, 3, 6, _, 4, 5, _],
        [1, 2, 3, 6, 7, 4, 5, _],
        [1, 4, 5, 2, 3, 6, _, _],
        [1, 4, 5, 2, 3, 6, 7, _],
        [1, 2, 3, 6, 7, 4, 5, 8],
    ]
)
QUERY_POSITIONS = np.array([1, 6, 7, 6, 7, 6, 7, 8])
TOKENS = [
    Token("SYS", PREFIX, 0),
    *(Token(f"D{d + 1}{'ab'[o]}", document_segment(d), o) for d in range(3) for o in range(2)),
    Token("X", SUFFIX, 0),
]
NAN = np.nan
MATRIX = np.array([[NAN, 0.5, 1.5], [0.0, NAN, 0.25], [3.0, 1.0, NAN]], dtype=np.float32)


def view(**changes: Any) -> QueryView:
    """Query at 88 in document A; from near to far A (its own), B, D, C, the last two tied."""
    values: dict[str, Any] = {
        "query": "token 8 of document A",
        "query_position": 88,
        "prefix_length": 22,
        "documents": tuple(document_segment(i) for i in (2, 0, 1, 3)),
        "lengths": np.array([20, 18, 14, 25]),
        "starts": np.array([22, 81, 67, 42]),
        "importance": np.array([0.02, NAN, 0.31, 0.02], dtype=np.float32),
        "own_document": 1,
    }
    return QueryView(**{**values, **changes})


def importance(values: np.ndarray) -> str:
    documents = [document_segment(i) for i in (2, 0, 1, *range(3, len(values)))][: len(values)]
    return importance_table(values, documents, method="PINE", layer=3, head=None, dtype="float32")


@pytest.mark.parametrize("shift", [0, 1])
def test_position_table_has_the_numbers_of_the_paper(shift: int) -> None:
    positions = np.where(PINE == MASKED, MASKED, PINE - shift)
    html = position_table(positions, QUERY_POSITIONS, TOKENS, TOKENS, label="example")
    (table,) = read_html(html).all("table")
    rows = table_cells(table)
    for q, k in np.ndindex(8, 8):
        is_masked = positions[q, k] == MASKED
        assert rows[q][k].text == ("masked" if is_masked else str(positions[q, k]))
        assert ("pine-masked" in rows[q][k].classes) == is_masked
    assert [row[-1].text for row in rows] == [str(position) for position in QUERY_POSITIONS]
    fills = [cell.attributes["style"].split(";")[0] for cell in (rows[7][0], rows[7][7])]
    assert fills == [f"--pine-fill:{BLUES[0]}", f"--pine-fill:{BLUES[-1]}"]
    groups = table.all("thead")[0].all("tr")[0].all("th")
    assert [group.attributes.get("colspan") for group in groups[:-1]] == ["1", "2", "2", "2", "1"]
    names = [token.name for token in TOKENS]
    assert table_rows(PINE, QUERY_POSITIONS, names)[3] == (names[3], 6, 1, 2, 3, 6, None, 4, 5, None)
    assert Token(" cat", document_segment(1), 2).name == "token 3 “␣cat” of document B"


def test_ruler_blocks_are_at_their_positions() -> None:
    root = read_html(position_ruler(view(), name="ruler", caption="c"))
    blocks = {block.text: block.attributes["style"] for block in root.with_class("pine-block")}
    # 99 positions, so one is 100/99 = 1.0101 percent.
    assert blocks["C"].startswith("left:22.222%;width:20.202%;--pine-lane:0")
    assert blocks["A"].startswith("left:81.818%;width:18.182%;--pine-lane:0")
    assert blocks["SYS"].startswith("left:0;width:22.222%")
    (future,) = root.with_class("pine-block-future")
    assert future.attributes["style"].startswith("left:89.899%;width:calc(10.101% - 2px)")
    rows = root.all("tbody")[0].all("tr")
    assert [row.all("th")[0].text for row in rows] == ["A", "B", "D", "C"]
    assert [row.all("td")[0].text for row in rows] == ["81–98", "67–80", "42–66", "22–41"]
    assert [row.all("td")[1].text for row in rows] == ["not ranked", "0.310", "0.0200", "0.0200"]
    assert ["tie" in row.all("td")[2].text for row in rows] == [False, False, True, True]


def test_ruler_numbers_end_with_the_masked_documents() -> None:
    masked = view(starts=np.array([22, 81, MASKED, 42]))
    (named,) = picture_numbers(position_ruler(masked, name="ruler", caption="c"))
    assert [row[:3] for row in named.numbers.rows] == [
        ("A", 81, 98),
        ("D", 42, 66),
        ("C", 22, 41),
        ("B", None, None),
    ]
    assert [row[4:] for row in named.numbers.rows] == [
        *((True, False), (False, True), (False, True), (False, False))
    ]
    assert view_text(masked).count("It may not read document B.") == 1


def test_ties_are_exact() -> None:
    assert tied_documents(view()) == [0, 3]
    near = np.array([0.02, NAN, 0.31, np.nextafter(np.float32(0.02), np.float32(1))], dtype=np.float32)
    assert tied_documents(view(importance=near)) == tied_documents(view(importance=None)) == []


def test_overlapping_documents_are_stacked() -> None:
    shared = view(query_position=47, starts=np.full(4, 22), importance=None, own_document=None)
    assert overlapping_documents(shared) == [0, 1, 2, 3] and overlapping_documents(view()) == []
    root = read_html(position_ruler(shared, name="ruler", caption="c"))
    styles = [block.attributes["style"] for block in root.with_class("pine-block")[1:]]
    assert [style.split("--pine-lane:")[1][0] for style in styles] == ["0", "1", "2", "3"]
    assert "Documents C, A, B and D share positions." in view_text(shared)
    assert view_text(view()).startswith(
        "Token 8 of document A stands at position 88 and sees, nearest first: its own document A at 81–98, "
        "read up to 88, document B at 67–80,"
    )


def test_low_lanes_have_no_letters() -> None:
    many = view(
        documents=tuple(document_segment(d) for d in range(40)),
        lengths=np.full(40, 20), starts=np.full(40, 22), importance=None, own_document=None,
    )  # fmt: skip
    root = read_html(position_ruler(many, name="ruler", caption="c"))
    assert {block.text for block in root.with_class("pine-block")} == {""}
    assert "and 34 more" in view_text(many) and "40 documents" in view_text(many)


def test_method_rulers_have_one_axis() -> None:
    question = view(query_position=99, starts=np.array([22, 81, MASKED, 42]), own_document=None)
    shared = view(query_position=46, starts=np.full(4, 22), importance=None, own_document=None)
    html = method_rulers({"Vanilla": question, "PCW": shared}, name="rulers", caption="c")
    marks = read_html(html).with_class("pine-ruler-query")
    assert [mark.attributes["style"] for mark in marks] == ["left:99.500%", "left:46.500%"]
    (named,) = picture_numbers(html)
    assert named.numbers.rows[2] == ("Vanilla", 99, "B", None, None)
    assert named.numbers.rows[4] == ("PCW", 46, "C", 22, 41)


@pytest.mark.parametrize("total", [1, 2, 8, 53, 99, 2878, 8192])
def test_ticks_are_few_and_inside(total: int) -> None:
    ticks = axis_ticks(total)
    assert ticks[0] == 0 and ticks[-1] < total and len(ticks) <= 8


def test_importance_table_has_shares_and_hatches_the_diagonal() -> None:
    html = importance(MATRIX)
    rows = table_cells(read_html(html).all("table")[0])
    assert [[cell.text for cell in row] for row in rows] == [
        ["none", "0.250", "0.750"], ["0", "none", "1.00"], ["0.750", "0.250", "none"],
    ]  # fmt: skip
    levels = [[next(iter(cell.classes)) for cell in row] for row in rows]
    assert [levels[d][d] for d in range(3)] == ["pine-masked"] * 3
    assert (levels[1][0], levels[1][2], levels[0][1]) == ("l0", f"l{MAX_LEVEL}", "l8")
    (named,) = picture_numbers(html)
    assert named.numbers.rows[0] == ("C", None, 0.25, 0.75)
    assert all(part in named.caption for part in ("PINE", "layer 3, mean over heads", "float32"))
    buttons = read_html(html).all("table")[0].all("button")
    assert buttons[2].attributes["data-readout"] == "document B: most to C 0.750, A 0.250"


def test_importance_table_of_many_documents_has_colors_alone() -> None:
    count = MAX_NUMBERED + 1
    values = np.ones((count, count), np.float32)
    np.fill_diagonal(values, NAN)
    rows = table_cells(read_html(importance(values)).all("table")[0])
    assert rows[0][1].text == "" and rows[0][1].classes == {f"l{MAX_LEVEL}"}
    assert "<table" not in importance(MATRIX[:1, :1])
