"""An answer in a text as whole words, by language, and the rule of rejected answers."""

from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from pine_engine import TASKS, InputError
from pine_engine.prompts.answer_words import contains_words, normalize_words
from pine_engine.prompts.examples import Example
from pine_engine.prompts.scoring import SCORES
from tests.support.errors import has_field

FOUND = {
    "English": [
        ("No.", "no"), ("Ian's key", "Ian"), ("**Ian** has it", "Ian"), ("_Ian_", "Ian"),
        ("Paris-based", "Paris"), ("with a Beatles cover band.", "The Beatles"),
        ("In the U.S. of A.", "US of A"), ("by e-mail", "email"), ("ice-cream", "ice cream"),
        ("It is O’Brien’s.", "O'Brien's"), ("I use C++.", "C++"), ("costs $5", "$"), ("The  The", "The The"),
        ("a cat", "A cat"), ("Take vitamin A daily", "Vitamin A"), ("5kg", "5 kg"),
    ],
    "numbers": [
        ("It is 1.", "1"), ("$1", "1"), ("1,000 lamps", "1000"), ("1000", "1,000"), ("1\u202f000", "1000"),
        ("1914–1918", "1918"), ("It is −5 °C", "-5"), ("½", "1/2"), ("3,14", "3.14"),
        ("on 12.05.2024", "2024"), ("1.234,5", "1234.5"), ("٣ مصابيح", "3"), ("[1]", "1"), ("0.5", ".5"),
        ("१२", "12"),
    ],
    "letters": [
        ("A", "a"), ("A is better", "A"), ("The answer is A.", "A"), ("**A**", "A"), ("(a) is", "A"),
        ("Answer: A", "A"), ("B wins", "B"), ("option b is best", "B"), ("B's answer", "B"),
        ("It is I.", "I"), ("Группа В", "В"),
    ],
    "German": [("in der STRASSE", "Straße"), ("Berlin-Mitte", "Berlin-Mitte"), ("18-jährig", "18")],
    "French": [("C’est l’Italie.", "Italie"), ("Est-ce Cafe\u0301 ?", "café"), ("d'Artagnan", "Artagnan")],
    "Turkish": [
        ("İstanbul", "istanbul"), ("ISTANBUL", "İstanbul"), ("İstanbul'da", "istanbul"),
        ("ISPARTA", "Isparta"), ("ısparta", "ISPARTA"),
    ],
    "Chinese": [
        ("他去了北京。", "北京"), ("１２个", "12"), ("3月", "3"), ("一个", "一"),
        ("使用 Python 语言", "使用Python语言"), ("二十一岁", "二十一"), ("南京市长", "南京"),
    ],
    "Japanese": [
        ("答えは東京です", "東京"), ("ｶﾅﾀﾞです", "カナダ"), ("カナダ", "ｶﾅﾀﾞ"), ("答えはア", "ア"),
        ("３人", "3"),
    ],
    "Thai": [("คำตอบคือกรุงเทพ", "กรุงเทพ"), ("คือ ก ครับ", "ก"), ("๑๒ คน", "12")],
    "Korean": [
        ("서울은 수도이다.", "서울"), ("서울입니다.", "서울"), ("서울에서는", "서울"), ("Ian이 왔다", "Ian"),
        ("3은", "3"), ("12개", "12"),
    ],
    "Arabic": [
        ("والقاهرة جميلة", "القاهرة"), ("بالقاهرة", "القاهرة"), ("البيت", "بيت"), ("القَاهِرَة", "القاهرة"),
        ("مـــصر", "مصر"),
    ],
    "Hebrew": [("היא בירושלים.", "ירושלים"), ("שָׁלוֹם", "שלום")],
    "Greek": [("ΑΘΗΝΑ", "Αθήνα"), ("Οδυσσεύς", "ΟΔΥΣΣΕΥΣ")],
    "Russian": [("Это Москва.", "москва"), ("МОСКВА", "Москва")],
    "Hindi": [("यह दिल्ली में है", "दिल्ली")],
}  # fmt: skip
"""Texts and answers in them, by language."""

ABSENT = {
    "English": [
        ("I do not know", "no"), ("It has been lost", "B"), ("guardian", "Ian"), ("Anne-Ian", "Ian"),
        ("don't", "don"), ("O'Brien", "Brien"), ("Vitamin C", "Vitamin A"), ("C++", "C"), ("C", "C++"),
        ("Maria", "Mari"), ("therapist", "the rapist"), ("", "x"), ("x", ""), ("x", " \n"),
    ],
    "numbers": [
        ("12 lamps", "1"), ("12 lamps", "2"), ("1.5", "5"), ("1.5", "1"), ("1,000", "1"), ("-1", "1"),
        ("x-5", "-5"), ("1st", "1"), ("10²", "10"), ("10²", "102"), ("1½", "1"), ("1/2", "1"),
        ("1.2.3", "1.2"), ("12:30", "12"), ("42nd", "42"), ("A4", "4"), ("F-16", "16"),
    ],
    "letters": [
        ("A dog barks.", "A"), ("It is a pity.", "A"), ("An A4 page", "A"), ("ABBA", "A"),
        ("I think so", "I"), ("X-ray", "X"), ("I'm here", "I"), ("В Москве дождь", "В"),
        ("Y entonces salió", "Y"), ("Ja. A dog.", "A"),
    ],
    "German": [("Straßenbahn", "Straße"), ("Berlin-Mitte", "Mitte")],
    "French": [("C'est l'Italie", "l"), ("Zürich", "Zurich")],
    "Turkish": [("Ankara'da", "Anka"), ("İstanbullu", "İstanbul")],
    "Chinese": [("十一", "一"), ("3万人", "3"), ("１２个", "1"), ("北，京", "北京")],
    "Japanese": [("アメリカ", "ア"), ("はい", "は"), ("三十", "三")],
    "Thai": [("กา", "ก"), ("๑๒ คน", "1")],
    "Korean": [("서울역", "서울"), ("고양", "고"), ("2만 명", "2"), ("아니요", "니요")],
    "Arabic": [("مصرف", "مصر"), ("كتاب", "تاب")],
    "Hebrew": [("שלומי", "שלום")],
    "Greek": [("Αθήναι", "Αθήνα")],
    "Russian": [("Подмосковье", "Москва"), ("не в Москве", "в"), ("московский", "Моск")],
    "Hindi": [("दिल्लीवाला", "दिल्ली")],
}  # fmt: skip
"""Texts, and answers that they do not give, by language."""


def cases(by_language: dict[str, list[tuple[str, str]]]) -> list[Any]:
    return [
        pytest.param(text, answer, id=f"{language}-{answer}-{text}")
        for language, pairs in by_language.items()
        for text, answer in pairs
    ]


@pytest.mark.parametrize(("text", "answer"), cases(FOUND))
def test_answer_counts_as_whole_words(text: str, answer: str) -> None:
    assert contains_words(text, ["~", answer])
    assert TASKS["retrieval_qa"].score(text, [answer]) == TASKS["kv_retrieval"].score(text, [answer]) == 1.0


@pytest.mark.parametrize(("text", "answer"), cases(ABSENT))
def test_part_of_a_word_is_no_answer(text: str, answer: str) -> None:
    assert not contains_words(text, [answer])
    assert TASKS["retrieval_qa"].score(text, [answer]) == TASKS["kv_retrieval"].score(text, [answer]) == 0.0


@pytest.mark.parametrize(
    ("text", "accepted", "rejected", "score"),
    [
        ("不是东京，是北京。", "北京", "东京", 0.0), ("是北京。", "北京", "东京", 1.0),
        ("南京市", "南京市", "南京", 1.0), ("東京ではなく京都です", "京都", "東京", 0.0),
        ("東京都", "京都", "東京都", 0.0),
        ("ไม่ใช่เชียงใหม่ แต่เป็นกรุงเทพ", "กรุงเทพ", "เชียงใหม่", 0.0),
        ("กรุงเทพ", "กรุงเทพ", "เชียงใหม่", 1.0), ("부산이 아니라 서울이다", "서울", "부산", 0.0),
        ("Anna, not Berta", "Anna", "Berta", 0.0),
        ("لا الإسكندرية بل القاهرة", "القاهرة", "الاسكندرية", 0.0),
        ("Not İzmir but Ankara", "Ankara", "IZMIR", 0.0), ("New York", "New York", "York", 1.0),
        ("New York, not York", "New York", "York", 0.0), ("room 112", "112", "12", 1.0),
        ("Annabel and Berta's", "Annabel", "Anna", 1.0),
    ],
)  # fmt: skip
def test_rejected_answer_counts_in_every_language(
    text: str, accepted: str, rejected: str, score: float
) -> None:
    row = {"question": "?", "documents": ["x"], "answers": [accepted], "rejected_answers": [rejected]}
    assert Example.model_validate(row).score(text, [accepted]) == score


@pytest.mark.parametrize(
    ("task", "rule", "text", "answer"),
    [
        ("retrieval_qa", "best_subspan_em", "12 lamps", "1"),
        ("retrieval_qa_numbered", "best_subspan_em", "guardian", "Ian"),
        ("kv_retrieval", "contains_value", "x9d8e", "9D8E"),
    ],
)
def test_row_keeps_rule_of_published_code(task: str, rule: str, text: str, answer: str) -> None:
    row = {"task": task, "question": "?", "documents": ["x"], "answers": [answer]}
    plain, published = (Example.model_validate(row | extra) for extra in ({}, {"scoring": rule}))
    assert [one.sized_task().rule for one in (plain, published)] == ["words", rule]
    assert [one.score(text, [answer]) for one in (plain, published)] == [0.0, 1.0]


@pytest.mark.parametrize("fields", [{"scoring": "words"}, {"task": "few_shot", "scoring": "contains_value"}])
def test_unknown_or_unfit_rule_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises((InputError, ValueError)):
        Example.model_validate({"question": "?", "documents": ["x"], "answers": ["y"]} | fields).check()


def test_every_task_names_a_rule() -> None:
    assert {task.rule for task in TASKS.values()} <= SCORES.keys()


WORD = st.text(alphabet="abtheAn.,-'$“é \n\t09北京가は", max_size=20)
PLAIN = st.text(alphabet="abcdXYZ北京서울", min_size=2, max_size=8)


@given(before=WORD, answer=PLAIN, after=WORD)
@example(before="the", answer="cat", after="")
def test_separate_answer_counts_at_any_place(before: str, answer: str, after: str) -> None:
    assert contains_words(f"{before} | {answer} | {after}", [answer])


@given(text=WORD)
def test_words_are_normalized_once(text: str) -> None:
    assert normalize_words(text) == normalize_words(f" {text}\n")
    assert bool(normalize_words(text)) == bool(text.strip())


@pytest.mark.parametrize("answer", ["tie", "C", "a"])
def test_answer_that_no_verdict_can_name_is_refused(answer: str) -> None:
    row = {"task": "judge", "question": "?", "documents": ["x", "y"], "answers": [answer]}
    with pytest.raises(InputError, check=has_field("answers")):
        Example.model_validate(row).check()
    if answer == "tie":
        Example.model_validate(row | {"task": "judge_tie"}).check()
