"""Parsers and scores of generated text: cases worked by hand, and properties that hold for any text."""

import string
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pine_engine.prompts.scoring import (
    best_subspan_em,
    contains_value,
    normalize_answer,
    parse_number,
    parse_text,
    parse_value,
    parse_verdict,
    parse_word,
    score_number,
    score_verdict,
    score_word,
)

WORDS = st.text(alphabet="abtheAn.,-'$“é \n\t09", max_size=30)
"""Text that is dense in what the rules look for: articles, punctuation, white space."""


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The Beatles", "beatles"), ("  A   cat,\n\tan owl & the dog. ", "cat owl dog"), ("U.S.A.", "usa"),
        ("the-cat", "thecat"), ("I am the", "i am"), ("A.", ""), ("“The” café", "“ ” café"),
        ("state_of_the_art", "stateoftheart"), ("", ""),
    ],
)  # fmt: skip
def test_answer_is_normalized_as_published(text: str, normal: str) -> None:
    assert normalize_answer(text) == normal


@pytest.mark.parametrize(
    ("score", "text", "answers", "expected"),
    [
        (best_subspan_em, "It was Röntgen.", ["Wilhelm Conrad Röntgen", "röntgen"], 1.0),
        (best_subspan_em, "They sang with a Beatles cover band.", ["The Beatles"], 1.0),
        (best_subspan_em, "In the U.S. of A.", ["US of A"], 1.0), (best_subspan_em, "", ["anything"], 0.0),
        (best_subspan_em, "Not known.", ["The"], 1.0), (best_subspan_em, "Not known.", [], 0.0),
        (score_verdict, "[[A]]", ["A"], 1.0), (score_verdict, "[[A]] [[B]]", ["B"], 0.0),
        (score_verdict, "A", ["A"], 0.5), (score_number, "Answer: 72", ["72"], 1.0),
        (score_number, "Answer: 72.50", ["72.5"], 1.0), (score_number, "Answer: 72.5", ["72.50"], 0.0),
        (score_number, "Answer: 1000", ["1,000"], 1.0), (score_number, "Answer: 072", ["72"], 0.0),
        (score_number, "Answer: -3", ["-3"], 0.0), (score_number, "Answer: 72", ["71", "72"], 1.0),
        (score_number, "It is 72.", [""], 0.0), (contains_value, "It is 9D8E, I think.", ["9d8e"], 1.0),
        (contains_value, "It is 9d8e.", ["9D8E"], 1.0), (contains_value, "9d-8e", ["9d8e"], 0.0),
        (contains_value, "b", ["a", "b"], 1.0), (contains_value, "", ["a"], 0.0),
        (score_word, "\n CC(=O)C is acetone", ["CCC", "CC(=O)C"], 1.0),
        (score_word, "cc(=o)c", ["CC(=O)C"], 0.0), (score_word, " \n", ["CC(=O)C"], 0.0),
    ],
)  # fmt: skip
def test_score_equals_hand_worked_case(
    score: Callable[[str, list[str]], float], text: str, answers: list[str], expected: float
) -> None:
    assert score(text, answers) == expected


@pytest.mark.parametrize(
    ("text", "in_all", "in_first"),
    [("Not known.\nOslo.", 1.0, 0.0), ("Oslo.\nOr not.", 1.0, 1.0), ("\nOslo", 1.0, 0.0)],
)
def test_first_line_option_ignores_later_lines(text: str, in_all: float, in_first: float) -> None:
    assert best_subspan_em(text, ["Oslo"]) == in_all
    assert best_subspan_em(text, ["Oslo"], first_line=True) == in_first


@given(text=WORDS)
def test_normalized_words_have_single_blanks(text: str) -> None:
    normal = normalize_answer(text)
    assert normal.split(" ") == (normal.split() or [""])
    assert not {"a", "an", "the"} & set(normal.split())
    assert not set(string.punctuation) & set(normal)
    assert normalize_answer(normal) == normal


@given(before=WORDS, answer=WORDS, after=WORDS, others=st.lists(WORDS, max_size=3))
@example(before="the", answer="a cat", after="", others=[])
def test_literal_answer_counts_at_any_place(before: str, answer: str, after: str, others: list[str]) -> None:
    assert best_subspan_em(f"{before} {answer} {after}", [*others, answer]) == 1.0


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (parse_verdict, '"[[B]]" it is, not [[A]]', "A"), (parse_verdict, "[[C]]", None),
        (parse_verdict, "Assistant A is better.", None), (parse_verdict, "[[a]]", None),
        (parse_verdict, "[[ A ]]", None), (parse_verdict, "[[[A]]]", "A"),
        (parse_number, "3 + 4 = 7\nAnswer: 7.", "7"), (parse_number, "Answer: $1,234.50", "1234.50"),
        (parse_number, "Answer: 7\nThe Answer is 8, not 9. Answer:", None),
        (parse_number, "Answer: 7\nAnswer: eight", None), (parse_number, "Answer: -12", "12"),
        (parse_number, "answer: 7", None), (parse_number, "Answer: .5", "5"),
        (parse_number, "Answer: 1.2.3", "3"), (parse_number, "Answer: 3..", "3"),
        (parse_number, "7 Answer", None), (parse_value, ' "9d8e-77",\n', "9d8e-77"),
        (parse_value, "\n\n  9d8e\nand more", "9d8e"), (parse_value, ' "" ,\n"b"', "b"),
        (parse_value, "\r\nb\r\n", "b"), (parse_word, "\n CC(=O)C is acetone", "CC(=O)C"),
        (parse_word, " \n", None),
        *((parse, "", None) for parse in (parse_verdict, parse_number, parse_value, parse_word)),
    ],
)  # fmt: skip
def test_parser_returns_value(parse: Callable[[str], str | None], text: str, expected: str | None) -> None:
    assert parse(text) == expected


@given(number=st.integers(min_value=0, max_value=10**12), zeros=st.integers(0, 4), before=WORDS)
@example(number=100, zeros=0, before="")
@example(number=0, zeros=1, before="")
def test_number_counts_in_any_notation(number: int, zeros: int, before: str) -> None:
    ending = "." + "0" * zeros if zeros else ""
    for written in (str(number), f"{number:,}"):
        assert score_number(f"{before}Answer: ${written}{ending}.", [str(number)]) == 1.0
        assert score_number(f"{before}Answer: {written}{ending}", [f"{number:,}"]) == 1.0
        assert score_number(f"{before}Answer: {written}{ending}", [str(number + 1)]) == 0.0


@given(text=st.text(max_size=40), answers=st.lists(st.text(max_size=8), min_size=1, max_size=3))
def test_any_text_has_a_score(text: str, answers: list[str]) -> None:
    assert best_subspan_em(text, answers) in (0.0, 1.0)
    assert score_verdict(text, ["A"]) + score_verdict(text, ["B"]) == 1.0
    assert score_number(text, answers) in (0.0, 1.0)
    assert contains_value(text, answers) in (0.0, 1.0)
    assert score_word(text, answers) in (0.0, 1.0)
    assert parse_text(text) == (text.strip() or None)
    for parse in (parse_text, parse_verdict, parse_number, parse_value, parse_word):
        assert parse(text) != ""
