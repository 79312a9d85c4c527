"""Identities of documents, text of numbers and tokens, and the frame of pictures."""

import json
import math
from dataclasses import replace

from tests.support.viz_reading import picture_numbers, read_html
from viz.drawing import text as texts
from viz.drawing.identity import (
    DECODED,
    PREFIX,
    SUFFIX,
    document_segment,
    ink_on,
    relative_luminance,
    segment_badge,
)
from viz.drawing.pictures import Numbers, pick, picture, switch


def test_twenty_documents_look_different() -> None:
    documents = [document_segment(i) for i in range(20)]
    assert len({one.color for one in documents}) == 11 == len({one.color for one in documents[:11]})
    assert not {one.color for one in documents} & {PREFIX.color, SUFFIX.color}


def test_badge_text_meets_wcag_aa() -> None:
    for segment in (PREFIX, SUFFIX, *(document_segment(i) for i in range(11))):
        low, high = sorted((relative_luminance(segment.color), relative_luminance(segment.ink)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, segment
    # Values from the WCAG definition.
    assert [round(relative_luminance(c), 4) for c in ("#FFFFFF", "#000000", "#00FF00")] == [1.0, 0.0, 0.7152]
    assert ink_on("#FFFFFF") == "#000000" and ink_on("#000000") == "#FFFFFF"


def test_letter_follows_document_and_slot_the_order() -> None:
    assert [segment.label for segment in (PREFIX, document_segment(2), SUFFIX)] == ["prefix", "C", "question"]
    assert [one.name for one in (document_segment(1), DECODED)] == ["document B", "answer"]
    badge = segment_badge(document_segment(2, slot=0))
    assert ">C</span>" in badge and ">slot 1</span>" in badge
    assert "slot" not in segment_badge(document_segment(2))


def test_numbers_are_never_rounded_to_zero_or_one() -> None:
    values = (0.0, 1e-7, 0.02, 1.5, 12345.0)
    assert [texts.format_value(v) for v in values] == ["0", "1.00e-07", "0.0200", "1.50", "1.23e+04"]
    differences = [texts.format_difference(v) for v in (0.0, 3.2e-6, 5.2341, math.nan)]
    assert differences == ["0.0", "3.2e-06", "5.23", "NaN"]
    percents = [texts.format_percent(p) for p in (1, 0.99999, 0.995, 0.621, 0.0995, 0.00012, 0)]
    assert percents == ["100%", ">99%", ">99%", "62%", "10%", "0.012%", "0%"]


def test_texts_are_visible_and_shortened() -> None:
    assert texts.visible_text(" a\n\tb") == "␣a⏎⇥b" and texts.visible_text("") == "∅"
    assert texts.visible_text("\x00\u202e") == "\\u0000\\u202e"
    assert (texts.shorten("abcdef", 4), texts.shorten("abcd", 4)) == ("abc…", "abcd")
    assert [texts.join_words("abc"[:n]) for n in (1, 2, 3)] == ["a", "a and b", "a, b and c"]


def test_picture_has_caption_numbers_and_buttons() -> None:
    rows = ("A", 0.123456789), ("B", None), ("C", math.inf)
    numbers = Numbers(("query", "value"), rows, "thing", "Caption.")
    html = picture("<p>drawn</p>", numbers, readout="Hover a cell.")
    assert picture_numbers(html) == [replace(numbers, rows=(*rows[:2], ("C", None)))]
    (figure,) = read_html(html).all("figure")
    formats = [button.attributes["data-save"] for button in figure.all("button")]
    assert formats == ["png", "svg", "html", "csv", "json"]
    (line,) = figure.with_class("pine-readout")
    assert line.text == line.attributes["data-default-text"] == "Hover a cell."
    assert "pine-readout" not in picture("", Numbers((), ()))


def test_switch_has_one_pressed_button() -> None:
    html = switch("Values", [("raw", {"head": 1}), ("share", {"head": None})], "share")
    buttons = read_html(html).all("button")
    assert [button.attributes["aria-pressed"] for button in buttons] == ["false", "true"]
    assert [json.loads(button.attributes["data-pick"]) for button in buttons] == [{"head": 1}, {"head": None}]
    assert json.loads(pick(layer=None, head=3)) == {"layer": None, "head": 3}
