"""Positions: grids, rulers and orders of heads come out number by number, and masked is never zero."""

import json
import re
from typing import Any

import numpy as np
import pytest

from tests.support.viz_reading import HOSTILE, assert_harmless, read_html, table_cells
from viz.drawing.identity import DECODED, PREFIX, SUFFIX, document_segment
from viz.drawing.picture import pick
from viz.drawing.ramps import BLUES, CIVIDIS, ramp_color
from viz.drawing.tokens import Token
from viz.figures.head_orders import HeadGroup, distinct_orders, head_groups, order_numbers, order_strip
from viz.figures.positions import (
    MASKED,
    View,
    document_grid,
    grid_numbers,
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


def paper_table(positions: np.ndarray = PINE, selected: int | None = None) -> str:
    return position_table(
        positions,
        QUERY_POSITIONS,
        TOKENS,
        TOKENS,
        label="The paper's example",
        title="PINE",
        selected=selected,
    )


def view(**changes: Any) -> View:
    """Query at 88 in document A; from near to far A (own), B, D, C, the last two tied."""
    values: dict[str, Any] = {
        "query": "token 8 of document A",
        "segment": document_segment(0),
        "label": "last token",
        "query_position": 88,
        "prefix_length": 22,
        "documents": tuple(document_segment(i) for i in (2, 0, 1, 3)),
        "lengths": np.array([20, 18, 14, 25]),
        "starts": np.array([22, 81, 67, 42]),
        "importance": np.array([0.02, np.nan, 0.31, 0.02], dtype=np.float32),
        "own_document": 1,
        "selects": "document 1",
    }
    return View(**{**values, **changes})


def suffix_view(**changes: Any) -> View:
    """The question's last token at 99, which may not read document B and sees the others as A does."""
    values: dict[str, Any] = {
        "query": "the question",
        "segment": SUFFIX,
        "label": "?",
        "query_position": 99,
        "starts": np.array([22, 81, MASKED, 42]),
        "importance": None,
        "own_document": None,
        "selects": "suffix 0",
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


def test_headers_and_the_selected_row() -> None:
    table = read_html(paper_table(selected=3)).all("table")[0]
    columns = [head.text for head in table.all("thead")[0].all("tr")[1].all("th")]
    assert columns == ["SYS", "D1a", "D1b", "D2a", "D2b", "D3a", "D3b", "X"]
    groups = table.all("thead")[0].all("tr")[0].all("th")
    assert [g.text for g in groups] == ["SYS", "A", "B", "C", "SUF", "query’s position"]
    assert [g.attributes.get("colspan") for g in groups[:-1]] == ["1", "2", "2", "2", "1"]
    assert not re.search("data-pick|<button", paper_table(selected=3))
    rows = [row for body in table.all("tbody") for row in body.all("tr")]
    assert [q for q, row in enumerate(rows) if "pine-selected" in row.classes] == [3]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_tokens_come_out_as_text(text: str) -> None:
    tokens = [Token(text, PREFIX, 0)]
    html = position_table(
        np.array([[0]]), np.array([0]), tokens, tokens, title=text, label=text, picks=[pick(query=text)]
    )
    assert_harmless(html)
    assert text in read_html(html).all("h4")[0].text
    hostile = view(query=text, label=text, selects=text)
    assert_harmless(position_ruler(hostile))
    assert_harmless(document_grid([hostile], label=text, selected=text))
    assert_harmless(method_rulers([MethodView(text, hostile, text)], chosen=text))


# By document and by token: what is in a cell, and what a click on it picks


def test_a_cell_says_first_and_last_position_and_masked_has_no_number() -> None:
    root = read_html(document_grid([view(), suffix_view()], label="positions"))
    assert [cell.text for cell in root.all("thead")[0].all("th")][:4] == ["C", "A", "B", "D"]
    rows = table_cells(root.all("table")[0])
    assert [cell.text for cell in rows[0]] == ["22–41", "81–98", "67–80", "42–66", "88"]
    assert [cell.text for cell in rows[1]] == ["22–41", "81–98", "masked", "42–66", "99"]
    assert ["pine-masked" in cell.classes for cell in rows[1]] == [False, False, True, False, False]
    assert ["pine-own" in cell.classes for cell in rows[0]] == [False, True, False, False, False]
    assert rows[0][2].attributes["title"] == "Token 8 of document A sees document B at 67–80"
    assert rows[1][2].attributes["title"] == "The question may not read document B"


def test_the_nearer_a_document_ends_the_darker_it_is() -> None:
    row = table_cells(read_html(document_grid([view()], label="positions")).all("table")[0])[0]
    fills = [cell.attributes["style"].split(";")[0].removeprefix("--pine-fill:") for cell in row[:4]]
    # The table shows 22 to 98; document C ends at 41.
    assert fills[1] == BLUES[-1] and fills[0] == ramp_color(BLUES, 19 / 76)


def test_a_row_picks_its_query_and_the_chosen_one_is_marked() -> None:
    root = read_html(document_grid([view(), suffix_view()], label="positions", selected="suffix 0"))
    for row, query in zip(root.all("tbody")[0].all("tr"), ("document 1", "suffix 0"), strict=True):
        picks = [json.loads(button.attributes["data-pick"]) for button in row.all("button")]
        assert picks == [{"query": query}] and "pine-row" in row.classes
        is_chosen = query == "suffix 0"
        assert row.all("button")[0].attributes["aria-pressed"] == str(is_chosen).lower()
        assert row.all("button")[0].attributes["tabindex"] == ("0" if is_chosen else "-1")
        assert ("pine-selected" in row.classes) == is_chosen


def test_one_row_of_a_table_can_always_be_reached_by_the_tab_key() -> None:
    for selected in ("", "suffix 7"):
        root = read_html(document_grid([view(), suffix_view()], label="positions", selected=selected))
        assert [button.attributes["tabindex"] for button in root.all("button")] == ["0", "-1"]


def test_a_token_row_picks_what_it_is_told_to() -> None:
    picks = ["", *(pick(query=f"document {d}", window=3) for d in (0, 0, 1, 1, 2, 2)), pick(query="suffix 0")]
    html = position_table(PINE, QUERY_POSITIONS, TOKENS, TOKENS, label="tokens", picks=picks, selected=7)
    rows = read_html(html).all("tbody")
    assert not rows[0].all("button")
    buttons = [button for body in rows for button in body.all("button")]
    assert [button.attributes["data-pick"] for button in buttons] == picks[1:]
    assert [button.attributes["tabindex"] for button in buttons] == ["-1"] * 6 + ["0"]


def test_the_numbers_of_the_grids_are_those_drawn() -> None:
    numbers = grid_numbers([view(), suffix_view()])
    assert numbers.columns[2:4] == ("C first", "C last")
    assert numbers.rows == (
        ("token 8 of document A", 88, 22, 41, 81, 98, 67, 80, 42, 66),
        ("the question", 99, 22, 41, 81, 98, None, None, 42, 66),
    )
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
    unread = view(documents=many, lengths=np.full(9, 1), starts=np.full(9, MASKED), importance=None)
    assert view_text(unread).endswith("sees no document. It may not read 9 documents.")


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
        "X", DECODED, "X", 7, 1, tuple(document_segment(d) for d in range(3)), np.array([2, 2, 2]),
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
        MethodView("Vanilla", suffix_view(), "vanilla"),
        MethodView("PCW", shared, "pcw"),
        MethodView("NIA", None, "nia"),
    ]


def test_methods_stand_on_one_axis() -> None:
    root = read_html(method_rulers(method_rows(), chosen="pcw"))
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


def test_a_row_picks_its_method_and_says_what_it_sees() -> None:
    rows = read_html(method_rulers(method_rows(), chosen="pcw")).with_class("pine-ruler-row")[:3]
    assert [json.loads(row.attributes["data-pick"]) for row in rows] == [
        {"method": "vanilla"}, {"method": "pcw"}, {"method": "nia"},
    ]  # fmt: skip
    assert [row.attributes["tabindex"] for row in rows] == ["-1", "0", "-1"]
    assert [row.attributes["aria-pressed"] for row in rows] == ["false", "true", "false"]
    assert rows[0].attributes["aria-label"] == f"Vanilla: {view_text(suffix_view())}"
    assert "over before that token" in rows[2].text and not rows[2].with_class("pine-ruler-track")


def test_rows_without_a_method_are_pictures_not_buttons() -> None:
    root = read_html(method_rulers([MethodView("Vanilla", view())]))
    assert "data-pick" not in root.with_class("pine-ruler-row")[0].attributes
    assert root.with_class("pine-ruler-row")[0].attributes["role"] == "img"


def test_the_numbers_of_the_rows_leave_out_methods_without_that_query() -> None:
    numbers = method_numbers(method_rows())
    assert len(numbers.rows) == 8 and {row[0] for row in numbers.rows} == {"Vanilla", "PCW"}
    assert numbers.rows[2] == ("Vanilla", 99, "B", None, None)
    assert numbers.rows[4] == ("PCW", 46, "C", 22, 41)


# How many orders the heads use

# Two layers, four heads, documents of 2, 1 and 3 tokens after a prefix of 1. Nearest first: layer 0 BAC, BAC,
# CBA, BAC; layer 1 CAB, BAC, ACB, CBA.
BAC, CBA, CAB, ACB = [4, 6, 1], [1, 3, 4], [2, 1, 4], [5, 1, 2]
STARTS = np.array([[BAC, BAC, CBA, BAC], [CAB, BAC, ACB, CBA]])
THREE = tuple(document_segment(d) for d in range(3))


def test_distinct_orders_are_counted_by_layer() -> None:
    assert distinct_orders(STARTS).tolist() == [2, 4]
    assert distinct_orders(STARTS[:1, :1]).tolist() == [1]
    # Where a document is masked, the others make the order: A before C in three heads, C before A in one.
    masked = np.where(np.array([False, True, False]), MASKED, STARTS)
    assert distinct_orders(masked).tolist() == [2, 2]


def test_heads_with_one_order_are_a_group_and_the_largest_comes_first() -> None:
    assert head_groups(STARTS[0]) == (HeadGroup((1, 0, 2), (0, 1, 3)), HeadGroup((2, 1, 0), (2,)))
    assert [group.heads for group in head_groups(STARTS[1])] == [(0,), (1,), (2,), (3,)]
    masked = np.where(np.array([False, True, False]), MASKED, STARTS[0])
    assert [group.order for group in head_groups(masked)] == [(0, 2), (2, 0)]


def test_the_strip_counts_orders_and_picks_layers_and_heads() -> None:
    root = read_html(order_strip(STARTS, THREE, layer=0, head=3))
    cells = root.with_class("pine-strip-cell")
    assert [cell.with_class("pine-strip-count")[0].text for cell in cells] == ["2", "4"]
    assert [json.loads(cell.attributes["data-pick"]) for cell in cells] == [{"layer": 0}, {"layer": 1}]
    assert cells[1].attributes["aria-label"] == "Layer 1: 4 different orders among 4 heads"
    assert [cell.attributes["tabindex"] for cell in cells] == ["0", "-1"]
    groups = root.with_class("pine-head-group")
    assert [[badge.text for badge in group.with_class("pine-badge")] for group in groups] == [
        ["B", "A", "C"], ["C", "B", "A"],
    ]  # fmt: skip
    heads = [[json.loads(head.attributes["data-pick"]) for head in g.with_class("pine-head")] for g in groups]
    assert heads == [[{"layer": 0, "head": h} for h in (0, 1, 3)], [{"layer": 0, "head": 2}]]
    chosen = [head.text for head in root.with_class("pine-head") if "pine-chosen" in head.classes]
    assert chosen == ["head 3"]


def test_the_strip_shows_the_nearest_of_many_documents_and_says_how_many_more() -> None:
    documents = tuple(document_segment(d) for d in range(11))
    group = read_html(order_strip(np.arange(11)[None, None], documents, layer=0, head=0)).with_class(
        "pine-head-order"
    )[0]
    assert [badge.text for badge in group.with_class("pine-badge")] == list("KJIHGFED")
    assert "and 3 more" in group.text


def test_the_numbers_of_the_strip_have_every_head() -> None:
    rows = order_numbers(STARTS, THREE).rows
    assert len(rows) == 8 and rows[2] == (0, 2, 2, "C B A") and rows[4] == (1, 0, 4, "C A B")
