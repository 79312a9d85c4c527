"""Parsers and scores of generated text: cases worked by hand, and properties that hold for any text."""

import string

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

# question answering


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The Beatles", "beatles"),
        ("  A   cat,\n\tan owl & the dog. ", "cat owl dog"),
        ("U.S.A.", "usa"),
        ("the-cat", "thecat"),
        ("I am the", "i am"),
        ("A.", ""),
        ("“The” café", "“ ” café"),
        ("state_of_the_art", "stateoftheart"),
        ("", ""),
    ],
)
def test_answer_is_normalized_as_published(text: str, normal: str) -> None:
    assert normalize_answer(text) == normal


@pytest.mark.parametrize(
    ("prediction", "answers", "score"),
    [
        ("It was Wilhelm Conrad Röntgen, of Germany.", ["Wilhelm Conrad Röntgen"], 1.0),
        ("It was Röntgen.", ["Wilhelm Conrad Röntgen", "röntgen"], 1.0),
        ("They sang with a Beatles cover band.", ["The Beatles"], 1.0),
        ("In the U.S. of A.", ["US of A"], 1.0),
        ("", ["anything"], 0.0),
        ("Whatever was asked.", ["The"], 1.0),
        ("Whatever was asked.", [], 0.0),
    ],
)
def test_answer_counts_within_the_prediction(prediction: str, answers: list[str], score: float) -> None:
    assert best_subspan_em(prediction, answers) == score


def test_first_line_option_ignores_later_lines() -> None:
    assert best_subspan_em("Not known.\nPerhaps Oslo.", ["Oslo"]) == 1.0
    assert best_subspan_em("Not known.\nPerhaps Oslo.", ["Oslo"], first_line=True) == 0.0
    assert best_subspan_em("Oslo.\nOr not.", ["Oslo"], first_line=True) == 1.0
    assert best_subspan_em("\nOslo", ["Oslo"], first_line=True) == 0.0
    assert best_subspan_em("Os\nlo is north", ["os lo"]) == 1.0


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


# a judge's verdict


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("Both are short. [[A]]", "A"),
        ('"[[B]]" it is, not [[A]]', "A"),
        ("[[C]]", None),
        ("Assistant A is better.", None),
        ("[[a]]", None),
        ("[[ A ]]", None),
        ("[[[A]]]", "A"),
        ("", None),
    ],
)
def test_verdict_needs_the_format(text: str, verdict: str | None) -> None:
    assert parse_verdict(text) == verdict


@pytest.mark.parametrize(
    ("text", "answers", "score"),
    [
        ("[[A]]", ["A"], 1.0),
        ("[[A]]", ["B"], 0.0),
        ("[[B]]", ["B"], 1.0),
        ("[[B]]", ["A"], 0.0),
        ("[[A]] [[B]]", ["B"], 0.0),
        ("A", ["A"], 0.5),
        ("I cannot say.", ["A"], 0.5),
    ],
)
def test_missing_verdict_scores_half(text: str, answers: list[str], score: float) -> None:
    assert score_verdict(text, answers) == score


@given(text=st.text(alphabet="[]AB ", max_size=20))
def test_a_verdict_scores_as_much_as_its_opposite_loses(text: str) -> None:
    assert score_verdict(text, ["A"]) + score_verdict(text, ["B"]) == 1.0


# the number of a math problem


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("3 + 4 = 7\nAnswer: 7", "7"),
        ("Answer: 7.", "7"),
        ("Answer: $1,234.50", "1234.50"),
        ("Answer: 7\nThe Answer is 8, not 9. Answer:", None),
        ("Answer: 7\nAnswer: eight", None),
        ("The Answer is 5.5.", "5.5"),
        ("Answer: -12", "12"),
        ("answer: 7", None),
        ("7", None),
        ("Answer: .5", "5"),
        ("Answer: 1.2.3", "3"),
        ("Answer: 3..", "3"),
        ("7 Answer", None),
        ("", None),
    ],
)
def test_the_last_number_after_the_last_answer_is_read(text: str, number: str | None) -> None:
    assert parse_number(text) == number


@pytest.mark.parametrize(
    ("text", "answers", "score"),
    [
        ("Answer: 72", ["72"], 1.0),
        ("Answer: 72.00", ["72"], 1.0),
        ("Answer: 72.50", ["72.5"], 1.0),
        ("Answer: 72.5", ["72.50"], 0.0),
        ("Answer: 720", ["72"], 0.0),
        ("Answer: 1,000", ["1000"], 1.0),
        ("Answer: 1000", ["1,000"], 1.0),
        ("Answer: 072", ["72"], 0.0),
        ("Answer: 0.0", ["0"], 1.0),
        ("Answer: -3", ["3"], 1.0),
        ("Answer: -3", ["-3"], 0.0),
        ("Answer: 72", ["71", "72"], 1.0),
        ("It is 72.", ["72"], 0.0),
        ("It is 72.", [""], 0.0),
    ],
)
def test_a_number_is_right_or_wrong_as_text(text: str, answers: list[str], score: float) -> None:
    assert score_number(text, answers) == score


@given(number=st.integers(min_value=0, max_value=10**12), zeros=st.integers(0, 4), before=WORDS)
@example(number=100, zeros=0, before="")
@example(number=0, zeros=1, before="")
def test_number_counts_in_any_notation(number: int, zeros: int, before: str) -> None:
    ending = "." + "0" * zeros if zeros else ""
    for written in (str(number), f"{number:,}"):
        assert score_number(f"{before}Answer: ${written}{ending}.", [str(number)]) == 1.0
        assert score_number(f"{before}Answer: {written}{ending}", [f"{number:,}"]) == 1.0
        assert score_number(f"{before}Answer: {written}{ending}", [str(number + 1)]) == 0.0


# the value of a key


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (' "9d8e-77",\n', "9d8e-77"),
        ("\n\n  9d8e\nand more", "9d8e"),
        ("The value is 9d8e.", "The value is 9d8e."),
        (' "" ,\n"b"', "b"),
        ("\r\nb\r\n", "b"),
        (" \n", None),
    ],
)
def test_a_value_is_read_without_the_marks_around_it(text: str, value: str | None) -> None:
    assert parse_value(text) == value


@pytest.mark.parametrize(
    ("text", "answers", "score"),
    [
        ('"9d8e"', ["9d8e"], 1.0),
        ("It is 9D8E, I think.", ["9d8e"], 1.0),
        ("It is 9d8e.", ["9D8E"], 1.0),
        ("9d-8e", ["9d8e"], 0.0),
        ("b", ["a", "b"], 1.0),
        ("", ["a"], 0.0),
    ],
)
def test_a_value_counts_wherever_it_occurs(text: str, answers: list[str], score: float) -> None:
    assert contains_value(text, answers) == score


# the first word, and any text


@pytest.mark.parametrize(
    ("text", "word", "score"),
    [
        ("CC(=O)C", "CC(=O)C", 1.0),
        ("\n CC(=O)C is acetone", "CC(=O)C", 1.0),
        ("CC(C)=O", "CC(C)=O", 0.0),
        ("cc(=o)c", "cc(=o)c", 0.0),
        ("Acetone: CC(=O)C", "Acetone:", 0.0),
        (" \n", None, 0.0),
    ],
)
def test_the_first_word_is_the_molecule(text: str, word: str | None, score: float) -> None:
    assert parse_word(text) == word
    assert score_word(text, ["CCC", "CC(=O)C"]) == score


@given(text=st.text(max_size=40), answers=st.lists(st.text(max_size=8), min_size=1, max_size=3))
def test_any_text_has_a_score(text: str, answers: list[str]) -> None:
    assert best_subspan_em(text, answers) in (0.0, 1.0)
    assert score_verdict(text, answers) in (0.0, 0.5, 1.0)
    assert score_number(text, answers) in (0.0, 1.0)
    assert contains_value(text, answers) in (0.0, 1.0)
    assert score_word(text, answers) in (0.0, 1.0)
    assert parse_text(text) == (text.strip() or None)
    for parse in (parse_text, parse_verdict, parse_number, parse_value, parse_word):
        assert parse(text) != ""
