"""What every picture has."""

import json
import math
from typing import Any

from tests.support.viz_reading import HOSTILE, assert_harmless, read_html
from viz.cards.glossary import TERMS, explanations_html, glossary_html, term
from viz.drawing.picture import Numbers, pick, picture, switch


def numbers_in(html: str) -> Any:
    (template,) = read_html(html).with_class("pine-numbers")
    return json.loads(template.text)


def test_a_picture_carries_its_caption_its_numbers_and_its_buttons() -> None:
    numbers = Numbers(("query", "value"), (("A", 0.123456789), ("B", None)))
    html = picture("<p>drawn</p>", name="thing", caption="What it shows.", numbers=numbers)
    assert numbers_in(html) == {
        "name": "thing",
        "caption": "What it shows.",
        "columns": ["query", "value"],
        "rows": [["A", 0.123456789], ["B", None]],
    }
    (figure,) = read_html(html).all("figure")
    assert figure.attributes["data-name"] == "thing"
    assert figure.all("figcaption")[0].text == "What it shows."
    assert [button.attributes["data-save"] for button in figure.all("button")] == [
        "png", "svg", "html", "csv", "json",
    ]  # fmt: skip
    assert not figure.with_class("pine-readout")


def test_a_readout_says_something_before_anything_is_hovered() -> None:
    html = picture("", name="x", caption="c", numbers=Numbers((), ()), readout="Hover a cell.")
    (line,) = read_html(html).with_class("pine-readout")
    assert line.text == line.attributes["data-rest"] == "Hover a cell."


def test_what_is_not_a_number_is_null_in_json() -> None:
    html = picture("", name="x", caption="c", numbers=Numbers(("v",), ((math.nan,), (math.inf,), (0.0,))))
    assert numbers_in(html)["rows"] == [[None], [None], [0.0]]


def test_hostile_text_stays_text_in_captions_numbers_and_switches() -> None:
    for text in HOSTILE:
        numbers = Numbers((text,), ((text,),))
        html = picture("", name="x", caption=text, title=text, readout=text, numbers=numbers)
        assert numbers_in(html)["rows"] == [[text]]
        assert_harmless(html)
        assert_harmless(switch(text, [(text, {"other": text})], text))


def test_a_switch_has_one_button_pressed_and_each_picks_its_own() -> None:
    html = switch(
        "Values", [("raw", {"normalization": "raw"}), ("share", {"normalization": "share"})], "share"
    )
    buttons = read_html(html).all("button")
    assert [button.attributes["aria-pressed"] for button in buttons] == ["false", "true"]
    assert [json.loads(button.attributes["data-pick"]) for button in buttons] == [
        {"normalization": "raw"},
        {"normalization": "share"},
    ]
    assert json.loads(pick(layer=None, head=3)) == {"layer": None, "head": 3}


def test_every_word_points_at_its_explanation() -> None:
    page = read_html(explanations_html())
    explained = {div.attributes["id"]: div.text for div in page.with_class("pine-explanation")}
    assert len(explained) == len(TERMS)
    for name, found in TERMS.items():
        (button,) = read_html(term(name)).all("button")
        assert button.text == name
        assert found.meaning in explained[button.attributes["popovertarget"]]
        assert found.meaning in glossary_html().replace("&#39;", "'")
