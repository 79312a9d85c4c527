"""The shuffle table: orders, marks and differences as measured."""

import pytest

from tests.viz_reading import HOSTILE, assert_harmless, read_html, table_cells
from viz.shuffle import FirstDifference, ShuffleCell, ShuffleColumn, ShuffleRow, score_line, shuffle_table

COLUMNS = [ShuffleColumn("vanilla", "Vanilla", False), ShuffleColumn("pine", "PINE", True)]
PARIS = ShuffleCell("Paris.", True, None, 0.0, True)
LYON = ShuffleCell("Lyon.", False, FirstDifference(2, " Lyon", " Paris"), 5.2341, False)
CLOSE = ShuffleCell("Paris.", True, None, 3.2e-6, False)
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


def test_an_answer_that_ended_earlier_says_so() -> None:
    cell = ShuffleCell("Par", False, FirstDifference(1, None, "is"), 1.0, False)
    assert cell.first_token == "token 2: the end instead of “is”"


def test_long_answers_are_folded_and_kept_whole() -> None:
    text = "word " * 40
    rows = [ShuffleRow((0,), {"pine": ShuffleCell(text, True, None, 0.0, True)})]
    root = read_html(shuffle_table(COLUMNS[1:], rows))
    details = root.all("details")[0]
    assert len(details.all("summary")[0].text) == 90 and details.all("summary")[0].text.endswith("…")
    assert details.with_class("pine-answer-text")[0].text == text
    assert not read_html(shuffle_table(COLUMNS, ROWS)).all("details")


def test_no_rows_and_empty_answers_are_said() -> None:
    assert "No order has been tried yet." in shuffle_table(COLUMNS, [])
    rows = [ShuffleRow((0,), {"pine": ShuffleCell("", True, None, 0.0, True)})]
    assert "(empty answer)" in shuffle_table(COLUMNS[1:], rows)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_answers_come_out_as_text(text: str) -> None:
    cells = {"pine": ShuffleCell(text, False, FirstDifference(0, text, text), 1.0, False)}
    html = shuffle_table(
        [ShuffleColumn("pine", text, True)], [ShuffleRow((0,), cells, text)] * 2, caption=text
    )
    assert_harmless(html)
    root = read_html(html)
    assert root.with_class("pine-answer-text")[0].text == text
    assert root.all("figcaption")[0].text == text
