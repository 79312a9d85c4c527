"""Tests of words, slots, ribbons and values, as the scripts of the page compute them."""

import csv
import io
import json
import random
import re
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from tests.support.javascript import Call, scripts
from viz.cards.compare import word_diff
from viz.export.standalone import LEVELS, MIN_PACKED_CELLS, packed_json
from viz.page.links import MAX_QR_BYTES, qr_rows


@pytest.fixture(scope="module")
def call() -> Call:
    return scripts("answers", "card", "documents", "drafts", "figures", "guess", "last_slide", "worksheet")


@pytest.mark.parametrize(("count", "text"), [(0, "0 orders"), (1, "1 order"), (2, "2 orders")])
def test_plural_adds_s_unless_one(call: Call, count: int, text: str) -> None:
    assert call("common.plural", count, "order") == text


def test_answers_compare_words_as_python_does(call: Call) -> None:
    draw = random.Random(7)
    parts = ("the ", "key", " is", "Clara. ", "\n", "鑰匙", "it's ", "naïve", "_x1 ", "¿")
    for _ in range(200):
        pair = ["".join(draw.choices(parts, k=draw.randrange(12))) for _ in range(2)]
        found = [
            [[word["word"], not word["isShared"]] for word in side] for side in call("answers.compare", pair)
        ]
        assert found == [
            [[word, changed] for words, changed in runs for word in words] for runs in word_diff(*pair)
        ], pair


@pytest.mark.parametrize(
    ("truth", "fact"), [("same", "stays the same"), ("different", "order alone changes")]
)
@pytest.mark.parametrize("guess", ["same", "different"])
def test_fact_after_a_guess_is_stated_unconditionally(call: Call, guess: str, truth: str, fact: str) -> None:
    first, second, _ = call("guess.verdictOf", guess, truth).split(".")
    assert fact in first and (guess in second) == (guess != truth)


def test_fact_without_a_guess_is_stated_alone(call: Call) -> None:
    for truth in ("same", "different"):
        assert (
            call("guess.verdictOf", "", truth) == call("guess.verdictOf", "same", truth).split(".")[0] + "."
        )


def test_tally_has_shares_of_all_guesses(call: Call) -> None:
    bars = call("guess.tallyOf", {"same": 6, "different": 18}, "different")
    assert [(bar["guess"], bar["count"], bar["share"], bar["isTrue"]) for bar in bars] == [
        ("same", 6, 0.25, False), ("different", 18, 0.75, True),
    ]  # fmt: skip
    assert call("guess.tallyOf", {"same": 0, "different": 0}, "same") == []


@pytest.mark.parametrize(
    ("texts", "shown", "pair"),
    [
        (["x", "y", "x"], 0, [0, 1]),
        (["x", "x", "y", "x", "x", "x"], 0, [2, 4]),  # the shown order and its swap have one answer
        (["x", "x", "x", "x", "x", "x"], 2, [2, 4]),
        (["x"], 0, None),
        (["x", "", "y"], 0, None),  # the swap of an order is not finished, or not computed
    ],
)
def test_guess_prefers_a_swap_that_changes_the_answer(
    call: Call, texts: list[str], shown: int, pair: Any
) -> None:
    orders = [[0, 1, 2], [1, 0, 2], [0, 2, 1], [1, 2, 0], [2, 0, 1], [2, 1, 0]][: len(texts)]
    answers = [{"text": text, "is_done": bool(text)} for text in texts]
    methods = [{"is_order_invariant": invariant, "answers": answers} for invariant in (True, False)]
    found = call("guess.pairOf", {"methods": methods, "orders": orders, "shown": shown})
    assert (found and [found["before"], found["after"]]) == pair
    assert not found or found["answers"] == [texts[order] for order in pair]


@pytest.mark.parametrize(("side", "module"), [(41 * 4, 4), (41 * 4 - 1, 0), (41 * 7 + 3, 7)])
def test_code_without_room_for_its_modules_is_not_drawn(call: Call, side: int, module: int) -> None:
    assert call("last_slide.moduleOf", ["1" * 33] * 33, side) == module
    assert call("last_slide.moduleOf", [], side) == 0


def test_card_has_room_for_the_longest_code_of_the_server(call: Call) -> None:
    rows = qr_rows("x" * MAX_QR_BYTES)
    assert call("card.fitting", rows) == rows
    assert call("card.fitting", ["1" * (len(rows) + 4)] * (len(rows) + 4)) is None
    assert call("card.fitting", []) is None


def test_worksheet_has_headings_links_and_one_list(call: Call) -> None:
    lines = [
        {"name": "H4", "text": "1. Swap"},
        {"name": "P", "text": "Open", "link": "https://page/#session=x"},
        {"name": "LI", "text": "one"},
        {"name": "LI", "text": "two"},
        {"name": "P", "text": "Why?"},
    ]
    expected = "## 1. Swap\n\n[Open](https://page/#session=x)\n\n- one\n- two\n\nWhy?\n"
    assert call("worksheet.markdownOf", lines) == expected


def test_draft_with_own_text_is_not_that_of_the_page(call: Call) -> None:
    draft = {"question": "Which?", "documents": [{"text": "y"}, {"text": "x"}, {"text": " "}]}
    for texts, has_own in ((["Which?", "x", "y"], False), (["Which?", "x"], True), (["x", "y"], True)):
        assert call("drafts.hasOwnText", json.dumps(draft), texts) is has_own
    assert call("drafts.hasOwnText", "", ["x"]) is False


def test_moved_slot_keeps_the_others_in_order(call: Call) -> None:
    assert call("documents.moveSlot", list("abcd"), 0, 2) == ["b", "c", "a", "d"]
    assert call("documents.moveSlot", list("abcd"), 3, 0) == ["d", "a", "b", "c"]


def test_letters_close_their_gaps_in_order(call: Call) -> None:
    slots = [{"card": name, "letter": letter} for name, letter in (("x", 4), ("y", 0), ("z", 2))]
    assert [slot["letter"] for slot in call("documents.closeGaps", slots)] == [2, 0, 1]


def test_card_counts_distinct_answers_most_frequent_first(call: Call) -> None:
    given = [
        {
            "text": text,
            "verdict": None,
            "origin": None,
            "is_done": True,
            "is_correct": True,
            "is_cut_off": False,
        }
        for text in ("x", "y", "y")
    ]
    found = call("card.distinctAnswers", {"answers": [*given, None]})
    assert [(one["text"], one["count"]) for one in found] == [("y", 2), ("x", 1)]


def test_long_answer_begins_near_its_first_source(call: Call) -> None:
    text = "word " * 20 + "castle 𝕏 ends"
    sources = [{"start": 100, "stop": 106, "document": 2}, {"start": 109, "stop": 113, "document": 0}]
    before, first, between, second, after = call("ribbons.partsOf", {"text": text, "sources": sources}, 12)
    assert (first, second) == ({"text": "castle", "document": 2}, {"text": "ends", "document": 0})
    assert before["text"] == "… word word " and (between["text"], after["text"]) == (" 𝕏 ", "")
    assert call("ribbons.partsOf", {"text": "plain"}) == [{"text": "plain"}]


def test_ribbon_is_as_wide_as_the_fall_of_the_answer(call: Call) -> None:
    falls = [-3.0, 0.0, 2.0, 6.0, 20.0, 40.0]
    shares = [call("ribbons.shareOf", {"falls": falls}, place) for place in range(len(falls))]
    assert 0 < shares[0] == shares[1] < shares[2] < shares[3] < shares[4] == shares[5] == 1
    assert shares[0] < call("ribbons.shareOf", {}, 0) == call("ribbons.shareOf", {"falls": None}, 0) < 1
    said = [call("ribbons.likelihood", {"falls": falls}, place) for place in range(4)]
    assert said[:2] == ["", ""] == [call("ribbons.likelihood", {}, 0), said[0]]
    assert "7.4 times" in said[2] and "400 times" in said[3]
    assert "is more than a million times" in call("ribbons.likelihood", {"falls": [14]}, 0)


BAR = {"left": 0, "top": 0, "bottom": 20, "width": 100}
TEXT = {"left": 0, "top": 24, "bottom": 60, "width": 300}


def numbers(path: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", path)]


def test_ribbon_to_a_lower_word_is_as_wide_as_the_share(call: Call) -> None:
    word = {"left": 200, "top": 80, "bottom": 100, "width": 40}
    for share in (0.2, 1.0):
        path = numbers(call("ribbons.outline", BAR, word, share, word))
        left, right = path[6], path[8]
        assert (left + right) / 2 == 220 and right - left == pytest.approx(22 * share)
        assert path[1] == 20 and path[7] == 80  # from the bar to the top of the word


def test_ribbon_to_a_word_beside_goes_around_the_text(call: Call) -> None:
    last_line = {"left": 200, "top": 32, "bottom": 56, "width": 40}
    assert max(numbers(call("ribbons.outline", BAR, last_line, 0.5, TEXT))[1::2]) > TEXT["bottom"]
    first_line = {"left": 200, "top": 24, "bottom": 40, "width": 40}
    assert min(numbers(call("ribbons.outline", BAR, first_line, 0.5, TEXT))[1::2]) < BAR["top"]


def test_packed_matrix_is_unpacked_within_a_level(call: Call) -> None:
    side = int(np.ceil(np.sqrt(MIN_PACKED_CELLS)))
    values = np.linspace(-3, 5, side * side).reshape(side, side)
    values[0, 1] = np.nan
    packed = json.loads(packed_json(go.Figure(go.Heatmap(z=values))))["data"][0]
    found = np.array(call("figures.unpacked", packed)["z"], dtype=float)
    np.testing.assert_allclose(found, values, atol=8 / LEVELS / 2 + 1e-12, equal_nan=True)


def test_mark_selects_row_and_column_of_its_trace(call: Call) -> None:
    matrix = {
        "type": "heatmap",
        "x0": 0,
        "y0": 0,
        "meta": {"x": [{"layer": 0}, {"layer": 1}], "y": {"token": "#"}},
    }
    assert call("figures.selectionOf", matrix, 7, 1) == {"layer": 1, "token": 7}
    bars = {"type": "bar", "x": [0, 1], "y": [4, 5], "meta": {"x": [{"query": "a"}, {"query": "b"}]}}
    assert call("figures.selectionOf", bars, 0, 1) == {"query": "b"}
    assert call("figures.selectionOf", {"type": "bar", "x": [0], "y": [4]}, 0, 0) == {}


def test_csv_escapes_quotes_and_formulas(call: Call) -> None:
    rows = [['a "b", c', -1.5, None], ["=1+1", 2, "x\ny"]]
    text = call("pictures.csvOf", {"columns": ["x", "y", "z"], "rows": rows})
    assert list(csv.reader(io.StringIO(text, newline=""))) == [
        ["x", "y", "z"],
        ['a "b", c', "-1.5", ""],
        ["'=1+1", "2", "x\ny"],
    ]
