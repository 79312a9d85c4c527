"""The strip of letters: a letter for each answer, right or wrong, and what each method gave in all orders."""

import pytest

from tests.support.viz_reading import HOSTILE, assert_harmless, read_html, table_cells
from viz.cards.letter_strip import InOrders, letter_strip

LABELS = {"vanilla": "Vanilla", "pine": "PINE"}
TRIED = InOrders(
    ((0, 1, 2), (2, 0, 1), (1, 2, 0)),
    {"vanilla": ("Paris.", "Lyon.", "Paris."), "pine": ("Paris.", "Paris.", "Paris.")},
    "Recorded.",
)


def test_the_same_answer_has_the_same_letter_in_every_method_and_order() -> None:
    table = read_html(letter_strip(TRIED, labels=LABELS)).all("table")[0]
    letters = [[one.text.strip() for one in row] for row in table_cells(table)]
    assert letters == [["a", "b", "a", "2 answers"], ["a", "a", "a", "1 answer"]]
    heads = [head.with_class("pine-badge") for head in table.all("thead")[0].all("th")[1:]]
    assert [[badge.text for badge in head] for head in heads] == [
        ["A", "B", "C"],
        ["C", "A", "B"],
        ["B", "C", "A"],
    ]


def test_right_and_wrong_are_a_sign_and_a_word_and_are_counted() -> None:
    root = read_html(letter_strip(TRIED, labels=LABELS, is_right=lambda text: text == "Paris."))
    rows = [[one.text for one in row] for row in table_cells(root.all("table")[0])]
    assert [row[-1] for row in rows] == ["2 answers, right in 2", "1 answer, right in 3"]
    assert "✓" in rows[0][0] and "right" in rows[0][0] and "✗" in rows[0][1] and "wrong" in rows[0][1]
    assert [item.text.split()[-1] for item in root.all("li")] == ["Paris.", "Lyon."]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_answers_come_out_as_text(text: str) -> None:
    html = letter_strip(InOrders(((0,),), {"pine": (text,)}, text), labels={"pine": text})
    assert_harmless(html)
    root = read_html(html)
    assert " ".join(text.split()) in root.all("li")[0].text and root.all("figcaption")[0].text == text
