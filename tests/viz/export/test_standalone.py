"""Pictures away from the page: what they still do, and their numbers."""

import csv
import io
import json

import plotly.graph_objects as go

from tests.support.viz_reading import HOSTILE, read_html
from viz.drawing.picture import Numbers, picture, switch
from viz.export.packed import packed_json
from viz.export.standalone import Section, as_csv, drawn_numbers, pictures_page, strip_interaction


def test_a_still_picture_selects_nothing() -> None:
    live = switch("Head", [("all", {"head": None}), ("first", {"head": 0})], "all")
    assert live.count("data-pick") == 2
    assert "data-pick" not in strip_interaction(live)
    assert read_html(strip_interaction(live)).text == read_html(live).text
    line = "<p>Point at a cell for its number; a click on a row selects that document.</p>"
    assert strip_interaction(line) == "<p>Point at a cell for its number.</p>"
    assert strip_interaction("Point at a token. A click selects its query.") == "Point at a token."


NUMBERS = Numbers(("text", "value"), ((HOSTILE[0], 0.1), ("=1+1", None), ('a "b", c', -3), ("two\nlines", 7)))


def test_the_numbers_of_drawn_pictures_are_those_that_were_drawn() -> None:
    html = picture("<p></p>", name="one", caption=HOSTILE[0], numbers=NUMBERS)
    other = picture("<p></p>", name="two", caption="Two.", numbers=Numbers(("a",), ()))
    first, second = drawn_numbers(f"<div>{html}{other}</div>")
    assert (first.name, first.caption, first.numbers) == ("one", HOSTILE[0], NUMBERS)
    assert (second.name, second.numbers) == ("two", Numbers(("a",), ()))


def test_a_table_holds_its_texts_and_no_formula() -> None:
    rows = list(csv.reader(io.StringIO(as_csv(NUMBERS), newline="")))
    assert rows == [
        ["text", "value"],
        [HOSTILE[0], "0.1"],
        ["'=1+1", ""],
        ['a "b", c', "-3"],
        ["two\nlines", "7"],
    ]


def test_a_page_of_pictures_needs_nothing_else() -> None:
    drawn = picture('<p data-pick="{}"></p>', name="one", caption="One.", numbers=NUMBERS)
    figure = go.Figure(layout={"meta": {"name": HOSTILE[0], "caption": "A row. A click chooses it."}})
    packed = packed_json(figure)
    page = pictures_page(
        [Section(HOSTILE[0], drawn, (packed,))],
        title=HOSTILE[0],
        about="",
        styles="p {}",
        scripts=["let one = 1;"],
    )
    root = read_html(page)
    [written] = [script.text for script in root.all("script") if "type" in script.attributes]
    assert json.loads(written)["layout"]["meta"] == {"name": HOSTILE[0], "caption": "A row."}
    assert HOSTILE[0] in root.text
    assert 'data-pick="' not in page and "http:" not in page and "https:" not in page
    assert [json.loads(each.text)["name"] for each in root.with_class("pine-numbers")] == ["one"]
