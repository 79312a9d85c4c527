"""Math problems cut into prefix, premises and suffix; the problems are ours, and cut by hand."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from pine_engine import TASKS, Document, InputError
from pine_engine.prompts.math_premises import Premises, cut_sentences, split_problem, split_sentences
from pine_engine.prompts.request import DataRow
from tests.support.errors import has_field

WORDS = ["Ann", "She", "3", "has", "Then", "Mr.", "J.", '"', "“", "”", ".", "?", "!", " ", "\n", "more"]
TEXTS = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(WORDS), max_size=40).map("".join))
"""Any text, and texts that are dense in what the rules look for."""


@pytest.mark.parametrize(
    "sentences",
    [
        ["Mr. and Mrs. Lind pay $5.50 for 2.5 kg. ", "Dr. Ek pays 7."], ["J. Lind has 3. ", "I have 4."],
        ["The shop opens at 8 a.m. and closes at 5 p.m. ", "It sells 3 pens, etc. ", "Why?"],
        ["It weighs 12 oz. in all. ", "It costs $3.\n\n", "How much is 1 oz.?"],
        ["Wait... ", "Is it 3? ", "Is it 4?! ", "She has as many as I. ", "Yes!"],
        ["He said: “I have 3. You have 4.” ", "She has 5."],
        ['"Do you have 3?" asks Ann. ', "Bob has (at last.) ", "He has 4."],
        ['A 5" nail is long. ', "A 3 cm one is not."], ["“I have 3. ", "You have 4."],
        ["  Ann has 3.\t", "4 are red.  "], ["e.g. 3 of them. ", "No end"],
        ["www.three.org has 3 pages. ", "Ok."], ["He met Prof. Ek. ", "Then xprof. ", "Ek left."], [" "], [],
    ],
)  # fmt: skip
def test_sentences_end_as_cut_by_hand(sentences: list[str]) -> None:
    assert list(split_sentences("".join(sentences))) == sentences


SUBJECTS = Premises(
    "Some friends pick berries. ",
    ("Ada picks 12 cups. ", "Bo picks twice as many cups as Ada. ", "Cy picks half a cup less than Bo. "),
    "How many cups do they pick? Round down.",
)
ONE_PERSON = Premises(
    "Nora starts the week with 12 eggs. ",
    ("Her hens lay 5 eggs a day.  ", "She bakes 3 cakes of 4 eggs. ", "On Sunday she gives away 10 eggs. "),
    "How many eggs does Nora have?",
)
PRICES = Premises(
    "",
    ("A pen costs $1.50.\n", "Mr. Ek buys 4 pens. ", "A third of the pens are blue. "),
    "He then buys 2 more. How much does he pay?",
)
FIND = Premises("", ("Ida has 3 cats. ", "Ola has 4 cats. "), "Find the number of cats.")
NO_NAME = Premises("She has 3 cats. ", ("She has 4 dogs. ", "She has 5 birds. "), "How many pets are they?")
TWO_RUNS = Premises(
    "Ida has 3 cats. Ola has 4 cats. Both pay $5 a week. ",
    ("A bag of food costs $9. ", "A toy costs $3. ", "A brush costs $6. "),
    "How much is left?",
)
EQUAL_RUNS = Premises(
    "",
    ("Ida has 3 cats. ", "Ola has 4 cats. "),
    "They have 5 dogs. A toy costs $3. A brush costs $6. How much is left?",
)


def text_of(problem: Premises) -> str:
    return "".join((problem.prefix, *problem.premises, problem.suffix))


@pytest.mark.parametrize("problem", [SUBJECTS, ONE_PERSON, PRICES, FIND, NO_NAME, TWO_RUNS, EQUAL_RUNS])
def test_problem_is_cut_as_by_hand(problem: Premises) -> None:
    assert split_problem(text_of(problem)) == problem


@pytest.mark.parametrize(
    "sentence",
    ["Then Bo picks 3.", "Bo then picks 3.", "These 3 cups are red.", "Bo picks 3 of the remaining cups.",
     "Bo eats 3 of them.", "Bo picks another 3.", "Bo picks 3 the next day.", "Bo picks 3 more.",
     "Bo picks twice as many.", "He picks 3.", "On Monday he picks 3.", "Bo likes berries.",
     "After lunch Bo picks 3."],
)  # fmt: skip
def test_incomplete_sentence_is_no_premise(sentence: str) -> None:
    before, after = ("Ada picks 2. ", "Cy picks 4. "), ("Di picks 5. ", "Ed picks 6. ", "Flo picks 7. ")
    cut = split_problem("".join((*before, f"{sentence} ", *after, "How many?")))
    assert cut == Premises("".join((*before, f"{sentence} ")), after, "How many?")


@pytest.mark.parametrize(
    "sentence",
    ["Bo picks twice as many as Ada.", "Bo picks 3 more cups than Ada.", "In her garden Bo picks 3.",
     "Half of the cups are red.", "Bo says he picks 3.", "A dozen cups fit in a basket.", "Theo picks 3.",
     "Sotherby picks 3."],
)  # fmt: skip
def test_complete_sentence_is_a_premise(sentence: str) -> None:
    premises = ("Ada picks 2. ", f"{sentence} ", "Cy picks 4. ")
    assert split_problem("".join((*premises, "How many?"))) == Premises("", premises, "How many?")


@pytest.mark.parametrize(
    ("prefix", "suffix"),
    [
        ("", ""),
        ("", "How many?"),
        ("Ada picks 2. ", "How many?"),
        ("Ada picks 2. Then Bo picks 3. He eats 1. ", "How many?"),
        ("How many? Ada picks 2. ", "Is that all? So ends it."),
        ("", "Ada picks 2 cups and Bo picks 3"),
    ],
)
def test_without_two_premises_there_are_none(prefix: str, suffix: str) -> None:
    assert split_problem(prefix + suffix) == Premises(prefix, (), suffix)


@given(text=TEXTS, places=st.tuples(st.integers(0, 12), st.integers(0, 12)).map(sorted))
def test_parts_of_any_cut_together_are_the_problem(text: str, places: list[int]) -> None:
    sentences = split_sentences(text)
    assert "".join(sentences) == text
    assert "" not in sentences and all(sentence.strip() for sentence in sentences[1:])
    cut = split_problem(text)
    assert text_of(cut) == text
    assert len(cut.premises) != 1
    assert bool(cut.suffix) == bool(text)
    other = cut_sentences(sentences, range(*places))
    assert text_of(other) == text
    assert other.premises == sentences[places[0] : places[1]]


def test_problem_becomes_a_row_of_its_task() -> None:
    instruction = TASKS["math_reasoning"].instruction
    prefix = f"{instruction}\n\nNora starts the week with 12 eggs."
    documents = [Document(premise.strip()) for premise in ONE_PERSON.premises]
    parts: dict[str, Any] = {"question": "How many eggs does Nora have?", "documents": documents}
    assert ONE_PERSON.row("p-1") == DataRow(id="p-1", task="math_reasoning", prefix=prefix, **parts)
    assert split_problem(f"{text_of(ONE_PERSON)}\n").row("p-1") == ONE_PERSON.row("p-1")
    assert PRICES.row("p-2").prefix == instruction
    with pytest.raises(InputError, check=has_field("premises")):
        split_problem("Ada picks 2. How many?").row("p-3")
