"""What a shuffle has shown, in sentences."""

from dataclasses import replace

import pytest

from tests.support.viz_reading import HOSTILE, assert_harmless, read_html
from viz.figures.shuffle import (
    FirstDifference,
    ShuffleCell,
    ShuffleColumn,
    ShuffleRow,
    answers_line,
    verdict_html,
    verdict_line,
)

COLUMNS = [ShuffleColumn("vanilla", "Vanilla", False), ShuffleColumn("pine", "PINE", True)]
PARIS = ShuffleCell("Paris.", True, None, 0.0, True, -1.5)
LYON = ShuffleCell("Lyon.", False, FirstDifference(2, " Lyon", " Paris"), 5.2341, False, -4.0)
CLOSE = ShuffleCell("Paris.", True, None, 3.2e-6, False, -1.5000021)
ROWS = [
    ShuffleRow((0, 1, 2), {"vanilla": PARIS, "pine": PARIS}, "as entered"),
    ShuffleRow((2, 0, 1), {"vanilla": LYON, "pine": PARIS}),
    ShuffleRow((1, 2, 0), {"vanilla": CLOSE}),
]


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
    assert ("equal to the last bit" in verdict) == pine.bitwise_identical


def test_one_row_proves_nothing() -> None:
    assert verdict_line(COLUMNS, ROWS[:1]) == ""
    assert "pine-verdict" not in verdict_html(COLUMNS, ROWS[:1], caption="")


# In a sentence


def test_the_sentence_counts_different_answers_and_right_ones() -> None:
    assert answers_line(COLUMNS, ROWS) == "In 2 orders PINE gives 1 answer; Vanilla 2."
    right = answers_line(COLUMNS, ROWS, lambda text: text == "Paris.")
    assert right == "In 2 orders PINE gives 1 answer, right in 2; Vanilla 2, right in 2."
    assert answers_line(COLUMNS, []) == ""


def test_the_verdict_is_on_the_page_with_what_was_run() -> None:
    html = verdict_html(COLUMNS, ROWS, caption="tiny, float32")
    for said in (answers_line(COLUMNS, ROWS), verdict_line(COLUMNS, ROWS), "tiny, float32"):
        assert said and said in read_html(html).text


def test_an_answer_that_ended_earlier_says_so() -> None:
    cell = ShuffleCell("Par", False, FirstDifference(1, None, "is"), 1.0, False, -1.0)
    assert cell.first_token == "token 2: the end instead of “is”"


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_answers_come_out_as_text(text: str) -> None:
    cells = {"pine": ShuffleCell(text, False, FirstDifference(0, text, text), 1.0, False, -1.0)}
    columns, rows = [ShuffleColumn("pine", text, True)], [ShuffleRow((0,), cells, text)] * 2
    html = verdict_html(columns, rows, caption=text)
    assert_harmless(html)
    assert text in read_html(html).text
