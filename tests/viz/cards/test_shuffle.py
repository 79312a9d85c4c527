"""Cards of a shuffle: who changed, the letters, and the answer of a cell."""

from dataclasses import replace

import pytest

from pine_engine import METHODS, OrderComparison
from tests.support.figure_records import cell, order_row
from tests.support.viz_reading import read_html
from viz.cards import shuffle

METHODS_SHOWN = [METHODS["vanilla"], METHODS["pine"]]
PARIS, LYON, CLOSE = cell("Paris."), cell("Lyon.", 5.2341), cell("Paris.", 1e-9)
ROWS = [
    order_row([0, 1, 2], {"vanilla": PARIS, "pine": PARIS}),
    order_row([2, 0, 1], {"vanilla": LYON, "pine": PARIS}),
    order_row([1, 2, 0], {"vanilla": CLOSE}),
]


@pytest.mark.parametrize(
    ("cells", "parts"),
    [
        ({"vanilla": LYON, "pine": PARIS}, ("every order: PINE.", "changed as expected: Vanilla.")),
        ({"vanilla": CLOSE, "pine": PARIS}, ("every order: PINE.", "changed as expected: Vanilla.")),
        ({"vanilla": PARIS, "pine": PARIS}, ("every order: PINE.", "Inconclusive", "Vanilla")),
        ({"vanilla": LYON, "pine": CLOSE}, ("violated: PINE.", "changed as expected: Vanilla.")),
        ({"pine": PARIS}, ("every order: PINE.", "“Include control methods”")),
    ],
)
def test_verdict_names_methods_and_control(cells: dict[str, OrderComparison], parts: tuple[str, ...]) -> None:
    verdict = shuffle.verdict_sentence(METHODS_SHOWN, [ROWS[0], order_row([1, 0], cells)])
    assert all(part in verdict for part in parts), verdict
    assert ("Bitwise identical" in verdict) == cells["pine"].bitwise_identical


def test_invariance_is_broken_by_one_order() -> None:
    rows = [order_row([0, 1], {"pine": one}) for one in (PARIS, CLOSE, PARIS)]
    assert "violated: PINE." in shuffle.verdict_sentence(METHODS_SHOWN, rows)


def test_one_row_has_no_verdict() -> None:
    assert shuffle.verdict_sentence(METHODS_SHOWN, ROWS[:1]) == ""
    assert "pine-verdict" not in shuffle.verdict_html(METHODS_SHOWN, ROWS[:1], caption="")
    assert "tiny, float32" in shuffle.verdict_html(METHODS_SHOWN, ROWS, caption="tiny, float32")


def test_score_counts_distinct_and_right_answers() -> None:
    assert shuffle.score_sentence(METHODS_SHOWN, ROWS) == "In 2 orders PINE gives 1 answer; Vanilla 2."
    right = shuffle.score_sentence(METHODS_SHOWN, ROWS, lambda text: text == "Paris.")
    assert right == "In 2 orders PINE gives 1 answer (2 correct); Vanilla 2 (2 correct)."
    assert shuffle.score_sentence(METHODS_SHOWN, []) == ""


def test_answer_of_a_cell_is_beside_the_reference() -> None:
    different = replace(cell("Par", 5.2341), first_difference=1, reference_token_text="is")
    row = order_row([1, 0], {"vanilla": different, "pine": PARIS})
    vanilla, pine = METHODS_SHOWN
    root = read_html(shuffle.shuffle_answer(vanilla, row, ROWS[0]))
    assert [text.text for text in root.with_class("pine-answer-text")] == ["Paris.", "Par"]
    assert "token 2: end of answer (reference: “is”)" in root.text and "5.23" in root.text
    same = read_html(shuffle.shuffle_answer(pine, row, ROWS[0]))
    assert "same answer" in same.text and "bitwise identical" in same.text
    alone = read_html(shuffle.shuffle_answer(vanilla, ROWS[0], ROWS[0]))
    assert len(alone.with_class("pine-answer-text")) == 1 and not alone.with_class("pine-evidence")
