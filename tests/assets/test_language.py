"""Translation of the texts of the page, as assets/language.js computes it."""

import json
from collections.abc import Callable

import pytest

from tests.support.javascript import scripts

PAIRS = [
    ("Undo", "Zurück"),
    ("same", "gleich"),
    ("order", "Reihenfolge"),
    ("and", "und"),
    ("Stopped.", "Angehalten."),
    ("{n} of {m} correct", "{m} davon {n} richtig"),
    ("{n} {n:answer|answers}", "{n} {n:Antwort|Antworten}"),
    ("Loaded from {file}.", "Geladen aus {file}."),
    ("You guessed “{guess}”.", "Geraten: „{guess}“."),
    ("Changed: {@@what}.", "Geändert: {@@what}."),
    ("Without {@what}.", "Ohne {@what}."),
    ("Each <1>token</1> has a <2>mask</2>.", "Eine <2>Maske</2> hat jedes <1>Token</1>."),
]

Translate = Callable[[str], str]


def translator(pairs: list[tuple[str, str]], language: str) -> Translate:
    call, stated = scripts("language"), f"{json.dumps(pairs)}, {json.dumps(language)}"
    return lambda text: call(f"language.translator({stated})", text)


@pytest.fixture(scope="module")
def translate() -> Translate:
    return translator(PAIRS, "de")


@pytest.mark.parametrize(
    ("english", "german"),
    [
        ("Undo", "Zurück"),
        (" Undo\n", " Zurück\n"),
        ("Undone", "Undone"),
        ("2 of 6 correct", "6 davon 2 richtig"),
        ("1,234 answers", "1,234 Antworten"),
        ("+8.3 answers", "+8.3 Antworten"),
        ("1.2e-05 answers", "1.2e-05 Antworten"),
        ("1 answer", "1 Antwort"),
        ("Stopped. Loaded from a.b.json. Undo", "Angehalten. Geladen aus a.b.json. Zurück"),
        ("Loaded from x. Unknown sentence.", "Geladen aus x. Unknown sentence."),
        ("You guessed “Why? Undo. Stopped.”.", "Geraten: „Why? Undo. Stopped.“."),
        ("Undo. Loaded from a; b.", "Undo. Geladen aus a; b."),
        ("Stopped.; Undo; x", "Angehalten.; Zurück; x"),
        ("Stopped.\nUndo", "Angehalten.\nZurück"),
    ],
)
def test_text_of_a_pair_is_translated(translate: Translate, english: str, german: str) -> None:
    assert translate(english) == german


def test_marked_hole_is_translated_and_others_are_kept(translate: Translate) -> None:
    assert translate("Changed: order and same.") == "Geändert: Reihenfolge und gleich."
    assert translate("Without same.") == "Ohne gleich."
    assert translate("Without order and same.") == "Ohne order and same."
    assert translate("You guessed “same”.") == "Geraten: „same“."


def test_elements_of_a_sentence_change_places(translate: Translate) -> None:
    assert translate("Each <1>token</1> has a <2>mask</2>.") == "Eine <2>Maske</2> hat jedes <1>Token</1>."


def test_longest_pair_that_fits_is_taken() -> None:
    pairs = [("{n} orders", "{n} kurz"), ("Run {n} orders", "{n} lang"), ("{text} orders", "{text} Text")]
    for text, translated in (("Run 6 orders", "6 lang"), ("6 orders", "6 kurz"), ("No orders", "No Text")):
        assert translator(pairs, "de")(text) == translated


@pytest.mark.parametrize(
    ("language", "number", "word"),
    [("pl", 1, "odpowiedź"), ("pl", 3, "odpowiedzi"), ("pl", 5, "odpowiedzi!"), ("es", 1, "respuesta"),
     ("es", 3, "respuestas"), ("es", 1_000_000, "respuestas"), ("ja", 1, "回答"), ("ja", 2, "回答")],
)  # fmt: skip
def test_word_by_number_follows_the_language(language: str, number: int, word: str) -> None:
    words = {"pl": "odpowiedź|odpowiedzi|odpowiedzi!", "es": "respuesta|respuestas", "ja": "回答"}
    pairs = [("{n} {n:answer|answers}", f"{{n}} {{n:{words[language]}}}")]
    assert translator(pairs, language)(f"{number} answers") == f"{number} {word}"
