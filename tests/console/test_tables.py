"""Rows for people: no word is broken at any width, and nothing is lost."""

import io
import re

import pytest
from rich.console import Console

from pine_engine.console.tables import print_rows

Row = dict[str, object]

ANSWER = (
    "The moon pulls [b]the sea[/b] towards itself, twice a day.\n\nSee https://example.org/" + "tides/" * 20
)
ROWS: list[Row] = [
    {"method": "pine_input_order", "answer": ANSWER, "tokens": 12, "decoding, s per token": 0.0123456},
    {
        "method": "stock",
        "answer": "Yes",
        "tokens": None,
        "decoding, s per token": 1e-06,
        "promise kept": True,
    },
]


def shown(rows: list[Row], width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_rows(console, rows)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def words(text: str) -> list[str]:
    return [word for word in re.split(r"[\s│┃]+", text) if re.search(r"\w", word)]


@pytest.mark.parametrize("width", [60, 80, 120, 400])
def test_every_word_of_titles_and_cells_is_whole(width: int) -> None:
    printed = words(shown(ROWS, width))
    titles = {word for row in ROWS for title in row for word in title.split()}
    cells = {*ANSWER.split(), "pine_input_order", "stock", "12", "0.01235", "1e-06", "yes", "Yes"}
    assert (titles - {"method"}) | cells <= set(printed)  # a block's title needs no name


def test_a_table_where_there_is_room_else_a_block_for_each_row() -> None:
    rows: list[Row] = [{"method": "pine", "max |Δ logit|": 0.0}, {"method": "vanilla", "max |Δ logit|": 3.25}]
    assert "│ vanilla │ 3.25          │" in shown(rows, 27)
    assert shown(rows, 17) == "pine\n  max |Δ logit|  0\n\nvanilla\n  max |Δ logit|  3.25\n"


def test_the_one_wide_column_of_a_table_goes_on_in_further_lines() -> None:
    rows: list[Row] = [
        {"check": "rows", "meaning": "bits of a row do not depend on the others that are fed with it"}
    ]
    assert "│ rows  │ bits of a row do not depend on the  │" in shown(rows, 47)
    assert "│" not in shown(rows, 40)


def test_long_values_of_a_block_go_on_below_their_start() -> None:
    rows: list[Row] = [
        {"case": "a", "problem": "one two three four five six\nseven", "path": "/a/path/of/many/letters"}
    ]
    assert shown(rows, 26).splitlines() == [
        "a",
        "  problem  one two three",
        "           four five six",
        "           seven",
        "  path     /a/path/of/many/letters",
    ]


def test_what_a_row_does_not_have_is_a_dash_in_a_table_and_left_out_of_its_block() -> None:
    rows: list[Row] = [
        {"method": "a", "tokens": None, "time, s": 0.5},
        {"method": "b", "tokens": 3, "time, s": 0.5},
    ]
    assert "│ a      │ -      │" in shown(rows, 80)
    assert shown(rows[:1], 10) == "a\n  time, s  0.5\n"
