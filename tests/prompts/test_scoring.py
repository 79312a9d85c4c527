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
        ("theatre another banana", "theatre another banana"),
        ("U.S.A.", "usa"),
        ("the-cat", "thecat"),
        ("rock 'n' roll", "rock n roll"),
        ("I am the", "i am"),
        ("A.", ""),
        ("“The” café", "“ ” café"),
        ("state_of_the_art", "stateoftheart"),
        ("3.5 million", "35 million"),
        ("", ""),
    ],
)
def test_an_answer_is_normalised_as_published(text: str, normal: str) -> None:
    assert normalize_answer(text) == normal


@pytest.mark.parametrize(
    ("prediction", "answers", "score"),
    [
        ("It was Wilhelm Conrad Röntgen, of Germany.", ["Wilhelm Conrad Röntgen"], 1.0),
        ("It was Röntgen.", ["Wilhelm Conrad Röntgen"], 0.0),
        ("It was Röntgen.", ["Wilhelm Conrad Röntgen", "röntgen"], 1.0),
        ("They sang with a Beatles cover band.", ["The Beatles"], 1.0),
        ("In the U.S. of A.", ["US of A"], 1.0),
        ("the category", ["cat"], 1.0),
        ("February 14, 2018", ["14 February 2018"], 0.0),
        ("", ["anything"], 0.0),
        ("Whatever was asked.", ["The"], 1.0),
        ("Whatever was asked.", [], 0.0),
    ],
)
def test_an_answer_counts_where_it_is_part_of_the_prediction(
    prediction: str, answers: list[str], score: float
) -> None:
    assert best_subspan_em(prediction, answers) == score


def test_the_first_line_alone_counts_where_that_is_asked() -> None:
    assert best_subspan_em("Not known.\nPerhaps Oslo.", ["Oslo"]) == 1.0
    assert best_subspan_em("Not known.\nPerhaps Oslo.", ["Oslo"], first_line=True) == 0.0
    assert best_subspan_em("Oslo.\nOr not.", ["Oslo"], first_line=True) == 1.0
    assert best_subspan_em("\nOslo", ["Oslo"], first_line=True) == 0.0
    assert best_subspan_em("Os\nlo is north", ["os lo"]) == 1.0


@given(text=WORDS)
def test_normalising_leaves_words_between_single_blanks(text: str) -> None:
    normal = normalize_answer(text)
    assert normal.split(" ") == (normal.split() or [""])
    assert not {"a", "an", "the"} & set(normal.split())
    assert not set(string.punctuation) & set(normal)
    assert normalize_answer(normal) == normal


@given(before=WORDS, answer=WORDS, after=WORDS, others=st.lists(WORDS, max_size=3))
@example(before="the", answer="a cat", after="", others=[])
def test_what_was_said_word_for_word_counts_wherever_it_stands(
    before: str, answer: str, after: str, others: list[str]
) -> None:
    assert best_subspan_em(f"{before} {answer} {after}", [*others, answer]) == 1.0


@given(prediction=WORDS, answers=st.lists(WORDS, min_size=1, max_size=4))
def test_accepted_answers_are_alternatives(prediction: str, answers: list[str]) -> None:
    each = [best_subspan_em(prediction, [answer]) for answer in answers]
    assert best_subspan_em(prediction, answers) == max(each)
    assert best_subspan_em(prediction, answers[::-1]) == max(each)
    assert best_subspan_em(prediction.upper(), answers) == max(each)


# a judge's verdict


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("Both are short. [[A]]", "A"),
        ("My verdict: [[B]].", "B"),
        ('"[[B]]" it is, not [[A]]', "A"),
        ("[[C]]", None),
        ("Assistant A is better.", None),
        ("[A]", None),
        ("[[a]]", None),
        ("[[ A ]]", None),
        ("[[[A]]]", "A"),
        ("", None),
    ],
)
def test_a_verdict_is_read_where_it_follows_the_format(text: str, verdict: str | None) -> None:
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
def test_a_verdict_that_cannot_be_read_is_worth_half(text: str, answers: list[str], score: float) -> None:
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
        ("Answer: 7 of 12", "12"),
        ("Answer: 7\nThe Answer is 8, not 9. Answer:", None),
        ("Answer: 7\nAnswer: eight", None),
        ("The Answer is 5.5.", "5.5"),
        ("Answer: -12", "12"),
        ("Answers 3", "3"),
        ("answer: 7", None),
        ("ANSWER: 7", None),
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
        ("Answer: 100", ["100"], 1.0),
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
def test_a_number_is_right_however_it_is_written(number: int, zeros: int, before: str) -> None:
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
        ("it's", "it's"),
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
        ("9d8", ["9d8e"], 0.0),
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


def test_text_is_all_that_was_said() -> None:
    assert parse_text(" Oslo,\n in Norway.\n") == "Oslo,\n in Norway."
    assert parse_text(" \n") is None


@given(text=st.text(max_size=40), answers=st.lists(st.text(max_size=8), min_size=1, max_size=3))
def test_any_text_has_a_score(text: str, answers: list[str]) -> None:
    assert best_subspan_em(text, answers) in (0.0, 1.0)
    assert score_verdict(text, answers) in (0.0, 0.5, 1.0)
    assert score_number(text, answers) in (0.0, 1.0)
    assert contains_value(text, answers) in (0.0, 1.0)
    assert score_word(text, answers) in (0.0, 1.0)
    for parse in (parse_text, parse_verdict, parse_number, parse_value, parse_word):
        assert parse(text) != ""
