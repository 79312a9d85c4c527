"""Positions: grids, rulers and orders of heads come out number by number, and masked is never zero."""

from typing import Any

import numpy as np
import pytest

from tests.support.viz_reading import HOSTILE, assert_harmless, read_html, table_cells
from viz.drawing.identity import DECODED, PREFIX, SUFFIX, document_segment
from viz.drawing.ramps import BLUES, CIVIDIS, ramp_color
from viz.drawing.tokens import Token
from viz.figures.positions import (
    MASKED,
    View,
    position_table,
    sharing_documents,
    table_numbers,
    tied_documents,
    view_text,
)
from viz.figures.rulers import (
    MethodView,
    axis_ticks,
    method_numbers,
    method_rulers,
    position_ruler,
    ruler_lanes,
    ruler_numbers,
)

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


def paper_table(positions: np.ndarray = PINE) -> str:
    return position_table(
        positions,
        QUERY_POSITIONS,
        TOKENS,
        TOKENS,
        label="The paper's example",
        title="PINE",
    )


def view(**changes: Any) -> View:
    """Query at 88 in document A; from near to far A (own), B, D, C, the last two tied."""
    values: dict[str, Any] = {
        "query": "token 8 of document A",
        "segment": document_segment(0),
        "query_position": 88,
        "prefix_length": 22,
        "documents": tuple(document_segment(i) for i in (2, 0, 1, 3)),
        "lengths": np.array([20, 18, 14, 25]),
        "starts": np.array([22, 81, 67, 42]),
        "importance": np.array([0.02, np.nan, 0.31, 0.02], dtype=np.float32),
        "own_document": 1,
    }
    return View(**{**values, **changes})


def suffix_view(**changes: Any) -> View:
    """The question's last token at 99, which may not read document B and sees the others as A does."""
    values: dict[str, Any] = {
        "query": "the question",
        "segment": SUFFIX,
        "query_position": 99,
        "starts": np.array([22, 81, MASKED, 42]),
        "importance": None,
        "own_document": None,
    }
    return view(**{**values, **changes})


def test_the_papers_grid_comes_out_number_by_number() -> None:
    rows = table_cells(read_html(paper_table()).all("table")[0])
    shown = [[cell.text if "pine-number" in cell.classes else "." for cell in row[:-1]] for row in rows]
    assert shown == [["." if p == MASKED else str(p) for p in row] for row in PINE.tolist()]
    assert [row[-1].text for row in rows] == [str(p) for p in QUERY_POSITIONS]


def test_masked_cells_are_hatched_and_without_a_number_and_zero_is_a_number() -> None:
    positions = np.where(PINE == MASKED, MASKED, PINE - 1)
    rows = table_cells(read_html(paper_table(positions)).all("table")[0])
    for q in range(8):
        for k in range(8):
            cell = rows[q][k]
            is_masked = positions[q, k] == MASKED
            assert ("pine-masked" in cell.classes) == is_masked
            assert cell.text == ("masked" if is_masked else str(positions[q, k]))
            assert ("style" in cell.attributes) != is_masked
    assert rows[1][0].text == "0"


def test_later_positions_are_darker() -> None:
    row = table_cells(read_html(paper_table()).all("table")[0])[7]
    fills = {int(cell.text): cell.attributes["style"].split(";")[0] for cell in row[:-1]}
    assert fills[1] == f"--pine-fill:{BLUES[0]}" and fills[8] == f"--pine-fill:{BLUES[-1]}"
    assert len(set(fills.values())) == 8


def test_ramps_meet_their_stops_and_lie_between_them() -> None:
    assert ramp_color(CIVIDIS, 0) == "#00224E" and ramp_color(CIVIDIS, 1) == "#FEE838"
    assert ramp_color(("#000000", "#FFFFFF"), 0.5) == "#808080"
    assert ramp_color(("#000000", "#FFFFFF"), 7) == "#FFFFFF"


def test_headers_name_tokens_and_their_segments() -> None:
    table = read_html(paper_table()).all("table")[0]
    columns = [head.text for head in table.all("thead")[0].all("tr")[1].all("th")]
    assert columns == ["SYS", "D1a", "D1b", "D2a", "D2b", "D3a", "D3b", "X"]
    groups = table.all("thead")[0].all("tr")[0].all("th")
    assert [g.text for g in groups] == ["SYS", "A", "B", "C", "SUF", "query’s position"]
    assert [g.attributes.get("colspan") for g in groups[:-1]] == ["1", "2", "2", "2", "1"]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_tokens_come_out_as_text(text: str) -> None:
    tokens = [Token(text, PREFIX, 0)]
    html = position_table(np.array([[0]]), np.array([0]), tokens, tokens, title=text, label=text)
    assert_harmless(html)
    assert text in read_html(html).all("h4")[0].text
    hostile = view(query=text)
    assert_harmless(position_ruler(hostile))
    assert_harmless(method_rulers([MethodView(text, hostile)]))


# By document and by token: what is in a cell, and what a click on it picks


def test_the_numbers_of_the_table_are_those_drawn() -> None:
    tokens = table_numbers(PINE, QUERY_POSITIONS, TOKENS, TOKENS)
    assert tokens.rows[3][1:] == (6, 1, 2, 3, 6, None, 4, 5, None)
    assert tokens.columns[2:] == tuple(token.name for token in TOKENS)


# Rulers


def test_lanes_keep_overlapping_documents_apart() -> None:
    assert ruler_lanes(np.array([22, 81, 67, 42]), np.array([20, 18, 14, 25])).tolist() == [0, 0, 0, 0]
    assert ruler_lanes(np.array([2, 2, 2]), np.array([3, 1, 2])).tolist() == [0, 1, 2]
    assert ruler_lanes(np.array([0, 2, 4, MASKED]), np.array([3, 3, 2, 9])).tolist() == [0, 1, 0, MASKED]


def test_blocks_stand_at_their_positions() -> None:
    root = read_html(position_ruler(view()))
    blocks = {block.text: block.attributes["style"] for block in root.with_class("pine-block")}
    # 99 positions, so one is 100/99 = 1.0101 percent.
    assert blocks["C"].startswith("left:22.222%;width:20.202%;--pine-lane:0")
    assert blocks["A"].startswith("left:81.818%;width:18.182%;--pine-lane:0")
    assert blocks["SYS"].startswith("left:0;width:22.222%")
    assert root.with_class("pine-ruler-query")[0].text == "query at 88"
    # Positions 89 to 98 of its own document come after the query.
    assert (
        root.with_class("pine-block-future")[0]
        .attributes["style"]
        .startswith("left:89.899%;width:calc(10.101% - 2px)")
    )


def test_the_table_beside_the_ruler_goes_from_near_to_far_with_importance_in_proportion() -> None:
    root = read_html(position_ruler(view()))
    rows = root.all("tbody")[0].all("tr")
    assert [row.all("th")[0].text for row in rows] == ["A", "B", "D", "C"]
    assert [row.all("td")[0].text for row in rows] == ["81–98", "67–80", "42–66", "22–41"]
    assert [row.all("td")[1].text for row in rows] == ["not ranked", "0.310", "0.0200", "0.0200"]
    assert [bar.attributes["style"] for bar in root.with_class("pine-bar")] == [
        "width:100.0%", "width:6.5%", "width:6.5%",
    ]  # fmt: skip
    assert [row.all("td")[2].text for row in rows] == [
        "its own document, always nearest",
        "",
        "tie, broken by token ids",
        "tie, broken by token ids",
    ]


def test_ties_are_exact_and_leave_out_the_own_document() -> None:
    assert tied_documents(view()) == (0, 3)
    near = np.array([0.02, np.nan, 0.31, np.nextafter(np.float32(0.02), np.float32(1))], dtype=np.float32)
    assert tied_documents(view(importance=near)) == ()
    assert tied_documents(view(importance=None)) == ()


def test_shared_positions_are_stacked_and_said() -> None:
    shared = view(query_position=47, starts=np.full(4, 22), importance=None, own_document=None)
    assert sharing_documents(shared) == (0, 1, 2, 3) and sharing_documents(view()) == ()
    root = read_html(position_ruler(shared))
    lanes = [
        style.split("--pine-lane:")[1][0]
        for style in (b.attributes["style"] for b in root.with_class("pine-block")[1:])
    ]
    assert lanes == ["0", "1", "2", "3"]
    assert "Documents C, A, B and D share positions." in view_text(shared)
    assert "importance" not in root.all("thead")[0].text


def test_the_sentence_says_what_the_ruler_shows() -> None:
    assert view_text(view()) == (
        "Token 8 of document A stands at position 88 and sees, nearest first: its own document A at 81–98, "
        "read up to 88, document B at 67–80, document D at 42–66, document C at 22–41. "
        "Documents C and D tie in importance: their token ids decide, never their slots."
    )


def test_a_sentence_lists_only_the_nearest_of_many() -> None:
    """Documents of one token at 1 .. 9, the last two of them at the same position."""
    many = tuple(document_segment(d) for d in range(9))
    text = view_text(
        view(
            documents=many, lengths=np.full(9, 1), starts=np.array([1, 2, 3, 4, 5, 6, 7, 8, 8]),
            importance=None, own_document=None,
        )
    )  # fmt: skip
    assert "nearest first: document H at 8, document I at 8, document G at 7" in text
    assert text.endswith("document D at 4, and 3 more. Documents H and I share positions.")
    unparsed = view(documents=many, lengths=np.full(9, 1), starts=np.full(9, MASKED), importance=None)
    assert view_text(unparsed).endswith("sees no document. It may not read 9 documents.")


def test_masked_documents_are_not_on_the_axis_but_named() -> None:
    earlier = view(query_position=45, starts=np.array([22, 42, MASKED, MASKED]), importance=None)
    root = read_html(position_ruler(earlier))
    assert [block.text for block in root.with_class("pine-block")] == ["SYS", "C", "A"]
    assert root.with_class("pine-unseen")[0].text.split() == [
        "Masked,",
        "not",
        "on",
        "the",
        "axis:",
        "B",
        "D",
    ]
    assert view_text(earlier).endswith("It may not read documents B and D.")


def test_the_papers_numbers_can_count_from_one() -> None:
    paper = View(
        "X", DECODED, 7, 1, tuple(document_segment(d) for d in range(3)), np.array([2, 2, 2]),
        np.array([1, 5, 3]), first_position=1,
    )  # fmt: skip
    assert view_text(paper) == (
        "X stands at position 8 and sees, nearest first: "
        "document B at 6–7, document C at 4–5, document A at 2–3."
    )


def test_ticks_are_round_few_and_inside() -> None:
    for total in (1, 2, 8, 53, 99, 2878, 8192):
        ticks = axis_ticks(total)
        assert ticks[0] == 0 and ticks[-1] < total and len(ticks) <= 8
    assert axis_ticks(99) == [0, 20, 40, 60, 80]


def test_what_carries_meaning_in_a_ruler_is_a_box_or_a_hatched_one() -> None:
    """Saved pictures keep boxes and the class pine-masked, and lose gradients and borders on one side."""
    root = read_html(position_ruler(view()))
    assert [part.classes for part in root.with_class("pine-block-future")[0].children] == [{"pine-masked"}]
    assert len(root.with_class("pine-ruler-line")) == 1
    assert len(root.with_class("pine-ruler-tick")) == len(root.with_class("pine-ruler-number")) == 5
    assert not root.all("figure") + root.all("figcaption")


def test_the_numbers_of_a_ruler_go_from_near_to_far_and_end_with_the_masked() -> None:
    numbers = ruler_numbers(view(starts=np.array([22, 81, MASKED, 42])))
    assert [row[:3] for row in numbers.rows] == [
        ("A", 81, 98),
        ("D", 42, 66),
        ("C", 22, 41),
        ("B", None, None),
    ]
    assert [row[4:] for row in numbers.rows] == [(True, False), (False, True), (False, True), (False, False)]
    own, near, *_ = (row[3] for row in numbers.rows)
    assert near == pytest.approx(0.02) and isinstance(own, float) and np.isnan(own)


def test_low_lanes_carry_no_letters_and_stay_in_their_room() -> None:
    many = 40
    shared = view(
        documents=tuple(document_segment(d) for d in range(many)),
        lengths=np.full(many, 20), starts=np.full(many, 22), importance=None, own_document=None,
    )  # fmt: skip
    root = read_html(position_ruler(shared))
    track = root.with_class("pine-ruler-track")[0]
    assert track.attributes["style"] == "--pine-lanes:40;--pine-lane-height:16px"
    assert [block.text for block in root.with_class("pine-block")] == [""] * (many + 1)
    assert len({block.attributes["title"] for block in root.with_class("pine-block")}) == many + 1


# Methods row by row


def method_rows() -> list[MethodView]:
    shared = view(query_position=46, starts=np.full(4, 22), importance=None, own_document=None)
    return [
        MethodView("Vanilla", suffix_view()),
        MethodView("PCW", shared),
    ]


def test_methods_stand_on_one_axis() -> None:
    root = read_html(method_rulers(method_rows()))
    starts = [
        [
            block.attributes["style"].split("%")[0]
            for block in track.with_class("pine-block")
            if block.text == "C"
        ]
        for track in root.with_class("pine-ruler-track")
    ]
    # Document C starts at 22 of 100 positions under both, though PCW's own axis would end at 47.
    assert starts == [["left:22.000"], ["left:22.000"]]
    places = [mark.attributes["style"] for mark in root.with_class("pine-ruler-query")]
    assert places == ["left:99.500%", "left:46.500%"]
    assert [tick.text for tick in root.with_class("pine-ruler-number")] == ["0", "20", "40", "60", "80"]


def test_the_numbers_of_the_rows_are_those_of_their_views() -> None:
    numbers = method_numbers(method_rows())
    assert len(numbers.rows) == 8 and {row[0] for row in numbers.rows} == {"Vanilla", "PCW"}
    assert numbers.rows[2] == ("Vanilla", 99, "B", None, None)
    assert numbers.rows[4] == ("PCW", 46, "C", 22, 41)
