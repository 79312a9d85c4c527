"""The shuffle table and the spread below it: orders, marks and differences as measured."""

import json
from dataclasses import replace

import pytest

from tests.support.viz_reading import HOSTILE, assert_harmless, read_html, table_cells
from viz.figures.shuffle import (
    FirstDifference,
    ShuffleCell,
    ShuffleColumn,
    ShuffleRow,
    score_line,
    shuffle_table,
    total_of,
    verdict_line,
)
from viz.figures.spread import spread_picture, spread_strips

COLUMNS = [ShuffleColumn("vanilla", "Vanilla", False), ShuffleColumn("pine", "PINE", True)]
PARIS = ShuffleCell("Paris.", True, None, 0.0, True, -1.5)
LYON = ShuffleCell("Lyon.", False, FirstDifference(2, " Lyon", " Paris"), 5.2341, False, -4.0)
CLOSE = ShuffleCell("Paris.", True, None, 3.2e-6, False, -1.5000021)
ROWS = [
    ShuffleRow((0, 1, 2), {"vanilla": PARIS, "pine": PARIS}, "as entered"),
    ShuffleRow((2, 0, 1), {"vanilla": LYON, "pine": PARIS}),
    ShuffleRow((1, 2, 0), {"vanilla": CLOSE}),
]


def test_the_score_counts_the_first_row_and_only_what_was_tried() -> None:
    assert score_line(COLUMNS, ROWS) == "Vanilla: 2 of 3 orders identical; PINE: 2 of 2"
    assert read_html(shuffle_table(COLUMNS, ROWS)).with_class("pine-score")[0].text == score_line(
        COLUMNS, ROWS
    )


def test_an_order_is_written_as_letters_in_slots() -> None:
    rows = read_html(shuffle_table(COLUMNS, ROWS)).all("tbody")[0].all("tr")
    badges = [[badge.text for badge in row.all("th")[0].with_class("pine-badge")] for row in rows]
    assert badges == [["A", "B", "C"], ["C", "A", "B"], ["B", "C", "A"]]
    assert [slot.text for slot in rows[1].all("small")] == ["in slot1", "in slot2", "in slot3"]
    assert "as entered" in rows[0].all("th")[0].text


def test_marks_are_words_and_signs_against_the_first_row() -> None:
    rows = table_cells(read_html(shuffle_table(COLUMNS, ROWS)).all("table")[0])
    marks = [[mark.text for cell in row for mark in cell.with_class("pine-mark")] for row in rows]
    assert marks == [["first row", "first row"], ["changed ✗", "same ✓"], ["same ✓"]]
    assert rows[2][1].text == "running …"


def test_differences_are_printed_as_measured() -> None:
    rows = table_cells(read_html(shuffle_table(COLUMNS, ROWS)).all("table")[0])
    assert "token 3: “␣Lyon” instead of “␣Paris”" in rows[1][0].text
    assert "max |Δ logit| 5.23" in rows[1][0].text
    assert "max |Δ logit| 0.0, equal to the last bit" in rows[1][1].text
    assert "max |Δ logit| 3.2e-06" in rows[2][0].text and "last bit" not in rows[2][0].text
    assert "logit" not in rows[0][0].text
    assert [row[0].text.rpartition("log-probability ")[2].strip() for row in rows] == [
        "-1.50 nats", "-4.00 nats", "-1.50 nats"
    ]  # fmt: skip


def test_a_total_is_over_all_rows_that_were_tried() -> None:
    total = total_of("vanilla", ROWS)
    assert total is not None
    assert (total.orders, total.same, total.max_abs_logit_diff, total.bitwise_equal) == (3, 2, 5.2341, False)
    assert (total.lowest_logprob, total.highest_logprob, total.spread) == (-4.0, -1.5, "2.5 nats")
    pine = total_of("pine", ROWS)
    assert pine is not None and (pine.orders, pine.difference, pine.spread) == (2, "0.0", "0.0 nats")
    assert total_of("pcw", ROWS) is None


def test_the_foot_of_the_table_has_the_totals_of_several_rows() -> None:
    foot = read_html(shuffle_table(COLUMNS, ROWS)).all("tfoot")[0]
    vanilla, pine = (cell.text for cell in foot.all("td"))
    assert "2 of 3 the same" in vanilla and "5.23" in vanilla and "2.5 nats" in vanilla
    assert "2 of 2 the same" in pine and "0.0, equal to the last bit" in pine and "0.0 nats" in pine
    assert "last bit" not in vanilla
    assert not read_html(shuffle_table(COLUMNS, ROWS[:1])).all("tfoot")


SMALL = replace(CLOSE, max_abs_logit_diff=1e-9)


@pytest.mark.parametrize(
    ("vanilla", "pine", "said"),
    [
        (
            LYON,
            PARIS,
            ("Every logit equal to the last bit: PINE.", "The check can fail: the order changed log"),
        ),
        (
            SMALL,
            PARIS,
            ("Every logit equal to the last bit: PINE.", "The check can fail: the order changed log"),
        ),
        (PARIS, PARIS, ("The order has not changed Vanilla either: this proves nothing",)),
        (LYON, SMALL, ("Promised not to depend on the order, and did: PINE.",)),
        (None, PARIS, ("Every logit equal to the last bit: PINE.", "Tick “with controls”")),
    ],
)
def test_the_verdict_says_who_kept_the_promise_and_whether_the_check_can_fail(
    vanilla: ShuffleCell | None, pine: ShuffleCell, said: str | tuple[str, ...]
) -> None:
    columns = COLUMNS if vanilla else COLUMNS[1:]
    cells = {"pine": pine} | ({"vanilla": vanilla} if vanilla else {})
    first = ShuffleRow((0, 1), {"vanilla": PARIS, "pine": PARIS})
    verdict = verdict_line(columns, [first, ShuffleRow((1, 0), cells)])
    sentences = (said,) if isinstance(said, str) else said
    assert all(sentence in verdict for sentence in sentences), verdict
    assert ("equal to the last bit" in verdict) == pine.bitwise_equal
    assert verdict in read_html(shuffle_table(columns, [first, ShuffleRow((1, 0), cells)])).text


def test_one_row_proves_nothing() -> None:
    assert verdict_line(COLUMNS, ROWS[:1]) == ""
    assert "pine-verdict" not in shuffle_table(COLUMNS, ROWS[:1])


# The spread


def test_a_strip_has_a_value_for_every_order_tried() -> None:
    vanilla, pine = spread_strips(COLUMNS, ROWS)
    assert (vanilla.label, vanilla.values, vanilla.promise) == ("Vanilla", (-1.5, -4.0, -1.5000021), False)
    assert (pine.label, pine.values, pine.promise) == ("PINE", (-1.5, -1.5), True)
    assert vanilla.notes[1] == "Vanilla, order C A B: -4.00 nats, another answer, max |Δ logit| 5.23"
    assert pine.notes[1] == "PINE, order C A B: -1.50 nats, the same answer, max |Δ logit| 0.0"


def test_the_caption_and_the_numbers_are_as_measured() -> None:
    root = read_html(spread_picture(COLUMNS, ROWS, context="tiny, float32"))
    caption = root.all("figcaption")[0].text
    assert caption.startswith("3 orders of the documents (tiny, float32): ")
    assert "Vanilla 2.5 nats, max |Δ logit| 5.23; PINE 0.0 nats, max |Δ logit| 0.0." in caption
    numbers = json.loads(root.with_class("pine-numbers")[0].text)
    assert numbers["columns"][:2] == ["order", "method"]
    assert numbers["rows"] == [
        ["A B C", "Vanilla", -1.5, 0.0],
        ["A B C", "PINE", -1.5, 0.0],
        ["C A B", "Vanilla", -4.0, 5.2341],
        ["C A B", "PINE", -1.5, 0.0],
        ["B C A", "Vanilla", -1.5000021, 3.2e-6],
    ]
    assert len(root.all("circle")) == 5


def test_a_spread_is_zero_only_where_it_is_exactly_zero() -> None:
    rows = [ROWS[0], ShuffleRow((1, 0, 2), {"vanilla": CLOSE, "pine": PARIS})]
    caption = read_html(spread_picture(COLUMNS, rows)).all("figcaption")[0].text
    assert "Vanilla 2.1e-06 nats, max |Δ logit| 3.2e-06; PINE 0.0 nats" in caption


def test_an_empty_answer_has_no_likelihood_and_is_left_out() -> None:
    empty = ShuffleCell("", True, None, 0.0, True, 0.0)
    rows = [ShuffleRow((0, 1), {"vanilla": empty, "pine": PARIS}), ShuffleRow((1, 0), {"pine": PARIS})]
    assert [strip.label for strip in spread_strips(COLUMNS, rows)] == ["PINE"]
    caption = read_html(spread_picture(COLUMNS, rows)).all("figcaption")[0].text
    assert "Left out, because their first answer is empty: Vanilla." in caption


def test_nothing_is_drawn_before_the_first_order() -> None:
    assert spread_picture(COLUMNS, []) == ""


def test_an_answer_that_ended_earlier_says_so() -> None:
    cell = ShuffleCell("Par", False, FirstDifference(1, None, "is"), 1.0, False, -1.0)
    assert cell.first_token == "token 2: the end instead of “is”"


def test_long_answers_are_folded_and_kept_whole() -> None:
    text = "word " * 40
    rows = [ShuffleRow((0,), {"pine": ShuffleCell(text, True, None, 0.0, True, -1.0)})]
    root = read_html(shuffle_table(COLUMNS[1:], rows))
    details = root.all("details")[0]
    assert len(details.all("summary")[0].text) == 90 and details.all("summary")[0].text.endswith("…")
    assert details.with_class("pine-answer-text")[0].text == text
    assert not read_html(shuffle_table(COLUMNS, ROWS)).all("details")


def test_no_rows_and_empty_answers_are_said() -> None:
    assert "No order has been tried yet." in shuffle_table(COLUMNS, [])
    rows = [ShuffleRow((0,), {"pine": ShuffleCell("", True, None, 0.0, True, 0.0)})]
    assert "(empty answer)" in shuffle_table(COLUMNS[1:], rows)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_answers_come_out_as_text(text: str) -> None:
    cells = {"pine": ShuffleCell(text, False, FirstDifference(0, text, text), 1.0, False, -1.0)}
    html = shuffle_table(
        [ShuffleColumn("pine", text, True)], [ShuffleRow((0,), cells, text)] * 2, caption=text
    )
    assert_harmless(html)
    assert_harmless(
        spread_picture(
            [ShuffleColumn("pine", text, True)], [ShuffleRow((0,), {"pine": PARIS}, text)] * 2, context=text
        )
    )
    root = read_html(html)
    assert root.with_class("pine-answer-text")[0].text == text
    assert root.all("figcaption")[0].text == text
