"""Tests of the table of answers as plain data."""

from typing import Any

import pytest

from tests.support.javascript import Call, scripts

DOCUMENTS = [{"letter": letter, "color": f"#{letter}", "ink": "#fff"} for letter in "ABC"]


@pytest.fixture(scope="module")
def call() -> Call:
    return scripts("order_rows", "card")


def answer(text: str, **fields: Any) -> dict[str, Any]:
    given = {"is_done": True, "is_correct": None, "is_cut_off": False, "is_comparable": True, "verdict": None}
    return {"text": text, **given, **fields}


def table(call: Call, answers: list[Any], **options: Any) -> Any:
    bars = [{"document": 1, "left": 0.4}, {"document": 0, "left": 0.1}]
    method: dict[str, Any] = {"name": "pine", "label": "PINE", "is_compared": True, "answers": answers}
    method |= {"positions": [bars, []], "queries": [0.5]}
    orders = options.pop("orders", [[0, 1], [1, 0]])
    state = {"orders": orders, "methods": [method], "no_positions": "none", "rule": "exact"}
    state["is_busy"] = options.pop("is_busy", False)
    given = {"documents": DOCUMENTS, "shown": 0, "sortedBy": -1, "sampledFrom": 4}
    return call("order_rows.tableOf", state, given | options)


@pytest.mark.parametrize(
    ("correct", "text"),
    [
        ((None, None), "2 answers"),
        ((True, False), "1 of 2 correct · 2 answers"),
        ((True, True), "2 of 2 correct · 2 answers"),
    ],
)
def test_count_text_has_correct_and_distinct_answers(call: Call, correct: tuple[Any, Any], text: str) -> None:
    answers = [answer(name, is_correct=one) for name, one in zip("xy", correct, strict=True)]
    assert call("order_rows.countText", {"answers": [*answers, None]}) == text


def test_left_out_document_adds_the_answer_without_it(call: Call) -> None:
    given = answer("x", without=["y", None])
    rows = [table(call, [given, None], leftOut=letter)["rows"][0] for letter in (-1, 0, 1)]
    assert [row["without"] for row in rows] == [
        None, {"name": "without A:", "text": "y"}, {"name": "without B:", "text": "…"},
    ]  # fmt: skip
    assert [(row["text"], row["leftOut"]) for row in rows] == [("x", -1), ("x", 0), ("x", 1)]
    assert table(call, [given, None], leftOut=1)["status"].endswith("A B, without B")


def test_count_text_compares_verdicts_and_omits_other_dtypes(call: Call) -> None:
    one, two = (answer(text, verdict="A") for text in ("A wins", "I say A"))
    assert call("order_rows.countText", {"answers": [one, two]}) == "1 verdict"
    other = answer("z", is_comparable=False)
    assert call("order_rows.countText", {"answers": [answer("x"), other]}) == "1 answer"
    assert call("order_rows.countText", {"answers": [None, answer("x", is_done=False)]}) == ""


def test_answer_cut_off_is_counted_apart(call: Call) -> None:
    answers = [answer("x", is_correct=True), answer("x", is_correct=True, is_cut_off=True)]
    assert call("order_rows.countText", {"answers": answers}) == "2 of 2 correct · 1 (✓) · 1 answer"
    row = table(call, answers, shown=1)["rows"][0]
    assert row["mark"]["sign"] == "(✓)" and row["mark"]["kind"] == "contains the answer, cut off"
    assert row["markTitle"] == "contains the answer, cut off; exact"


def test_equal_answers_have_one_shade(call: Call) -> None:
    ticks = table(call, [answer("x", is_correct=True), answer("y")])["rows"][0]["ticks"]
    assert [(tick["name"], tick["shade"], tick["kind"]) for tick in ticks] == [
        ("", 0, "correct"), ("", 1, "done"),
    ]  # fmt: skip
    ticks = table(call, [answer("x"), answer("x", is_comparable=False)])["rows"][0]["ticks"]
    assert [(tick["name"], tick["shade"]) for tick in ticks] == [("", 0), ("*", 0)]
    assert ticks[1]["says"].endswith("computed with another dtype than the other orders")


def test_distinct_answer_is_one_chip_with_an_unrepeated_mark(call: Call) -> None:
    texts = ["x", *"yxyzuvwt"]
    shown = table(call, list(map(answer, texts)), orders=[[0, 1]] * len(texts))
    chips = shown["chips"]
    assert [chip["text"] for chip in chips] == list(dict.fromkeys(texts))
    assert len({(chip["mark"]["shade"], chip["mark"]["isNotched"]) for chip in chips}) == len(chips) == 7
    many = [answer(str(number)) for number in range(60)]
    marks = [chip["mark"] for chip in table(call, many, orders=[[0, 1]] * len(many))["chips"]]
    assert [mark["name"] for mark in marks[:14]] == [""] * 12 + ["a", "b"]
    assert len({(mark["shade"], mark["isNotched"], mark["name"]) for mark in marks}) == len(many)
    verdicts = table(call, [answer("so A", verdict="A"), answer("A!", verdict="A")])["chips"]
    assert [(chip["text"], chip["mark"]["color"]) for chip in verdicts] == [("verdict A", "#A")]


@pytest.mark.parametrize(
    ("beginning", "ends", "chips"),
    [
        ("The bridge over the river was opened ", ["in 1912.", "in 1913, May"], ["… 1912.", "… 1913, May"]),
        ("It was built ", ["in 1912.", "in 1913."], ["It was built in 1912.", "It was built in 1913."]),
        ("The mayor of the old town is ", ["Ann", "Ann Lee"], ["… Ann", "… Ann Lee"]),
        (
            "世界上最早的一座现代化的跨海铁路大桥和公路大桥是在",
            ["1887年", "1889年"],
            ["… 1887年", "… 1889年"],
        ),
        (
            "The old page has the address example.org/en/",
            ["a", "b"],
            ["… example.org/en/a", "… example.org/en/b"],
        ),
        (
            "It is at https://example.org/docs/en/latest/",
            ["a", "b"],
            ["… mple.org/docs/en/latest/a", "… mple.org/docs/en/latest/b"],
        ),
        ("It is at https://example.org/", ["a", "b"], ["… https://example.org/a", "… https://example.org/b"]),
        (
            "หอไอเฟลตั้งอยู่ที่กรุงปารีสและสร้างเสร็จในปี",
            ["1887", "1889"],
            ["… ารีสและสร้างเสร็จในปี1887", "… ารีสและสร้างเสร็จในปี1889"],
        ),
    ],
)
def test_chips_begin_where_long_answers_differ(
    call: Call, beginning: str, ends: list[str], chips: list[str]
) -> None:
    texts = [beginning + end for end in ends]
    shown = table(call, list(map(answer, [*texts, "Ben"])), orders=[[0, 1]] * 3)["chips"]
    assert [chip["text"] for chip in shown] == [*chips, "Ben"]
    assert [chip["title"] for chip in shown] == [*texts, "Ben"]


def test_chips_of_unlike_beginnings_are_not_cut_alike(call: Call) -> None:
    texts = [f"In {year} the bridge over the river was planned by Lee" for year in (1912, 1913)]
    sources = [{"start": len(texts[0]) - 3, "stop": len(texts[0]), "document": 0}]
    shown = table(call, [answer(text, sources=sources) for text in texts])["chips"]
    assert [chip["text"] for chip in shown] == texts


@pytest.mark.parametrize(
    ("text", "direction"),
    [("بُني الجسر عام 1912", "rtl"), ("1912 ב", "rtl"), ("Bridge جسر", "ltr"), ("١٩١٢", "ltr"), ("", "ltr")],
)
def test_chip_has_the_direction_of_the_first_letter(call: Call, text: str, direction: str) -> None:
    assert table(call, [answer(text), None])["chips"][0]["direction"] == direction


def test_verdicts_have_the_color_of_their_document(call: Call) -> None:
    ticks = table(call, [answer("B.", verdict="B", is_correct=False), answer("=", verdict="tie")])["rows"][0][
        "ticks"
    ]
    assert ticks[0] | {"name": "B", "sign": "✗", "color": "#B", "says": "verdict B, incorrect"} == ticks[0]
    assert ticks[1]["name"] == "=" and "color" not in ticks[1]


def test_stopped_answer_is_muted_and_not_counted(call: Call) -> None:
    answers = [answer("The", is_done=False), answer("The end")]
    stopped, busy = (table(call, answers, is_busy=is_busy)["rows"][0] for is_busy in (False, True))
    assert (stopped["isMuted"], busy["isMuted"], stopped["count"]) == (True, False, "1 answer")
    assert (stopped["text"], stopped["query"]) == ("The", 0.5)
    card = {"answers": [one | {"origin": None} for one in answers]}
    assert [one["text"] for one in call("card.distinctAnswers", card)] == ["The end"]


def test_missing_answers_are_named(call: Call) -> None:
    shown = table(call, [answer("", is_done=False), None])
    assert [tick["label"] for tick in shown["rows"][0]["ticks"]] == [
        "Order A B: not finished",
        "Order B A: not computed",
    ]
    assert table(call, [None, None])["rows"][0]["text"] == "not computed in this order"


def test_orders_are_sorted_by_the_slot_of_a_document(call: Call) -> None:
    shown = table(call, [answer("x"), answer("y")], sortedBy=1)
    assert shown["sequence"] == [1, 0] and shown["status"] == "Order 2 of 2: A B"
    ticks = shown["rows"][0]["ticks"]
    assert [(tick["index"], tick["isShown"], tick["isNextSlot"]) for tick in ticks] == [
        (1, False, False),
        (0, True, True),
    ]
    assert shown["orders"] == "All 2 orders, B in slot 1 → 2"


def test_order_that_was_not_computed_has_no_answer(call: Call) -> None:
    shown = table(call, [answer("x"), answer("y")], shown=-1)
    assert shown["status"] == "This order is not computed." and shown["rows"][0]["barsLabel"] == "none"


@pytest.mark.parametrize(
    ("size", "count", "text"),
    [(3, 6, "All 6 orders"), (3, 2, "2 of 6 orders"), (8, 3, "3 of 40,320 orders (sample)")],
)
def test_orders_text_names_all_some_or_a_sample(call: Call, size: int, count: int, text: str) -> None:
    given = {"sampledFrom": 4, "sortedBy": -1}
    assert call("order_rows.ordersText", [list(range(size))] * count, given) == text


def test_bars_are_read_from_far_to_near(call: Call) -> None:
    assert table(call, [answer("x"), None])["rows"][0]["barsLabel"] == "From far to near: A B"


@pytest.mark.parametrize(
    ("before", "entered", "shown", "after"),
    [
        ([[0, 1]], [1, 0], -1, -1),  # more about the same orders, while the form has another one
        ([[0, 1]], [0, 1], -1, 0),
        ([], [1, 0], -1, 0),
        ([[1, 0]], [], 3, 0),
    ],
)
def test_order_of_the_form_is_shown(
    call: Call, before: list[list[int]], entered: list[int], shown: int, after: int
) -> None:
    assert call("order_rows.shownAfter", before, {"orders": [[0, 1]], "shown": 0}, entered, shown) == after
