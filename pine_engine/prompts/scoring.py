"""Parsers and scores (0 to 1) of generated text, one pair per task; see docs/specification.md section 9."""

import re
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal
from unicodedata import normalize

from pine_engine.prompts.answer_words import (
    ascii_digits,
    contains_words,
    fold,
    normalize_words as normalize_words,
)
from pine_engine.prompts.ranking import parse_ranking as parse_ranking, score_ranking

TIE = "tie"  # verdict for no answer

Verdict = Literal["last", "first", "alphabetical"]
"""Verdict that counts in a text with several; alphabetical: A before B, as in FastChat and RewardBench."""

_VERDICTS: Mapping[Verdict, Callable[[list[str]], str]] = {
    "last": lambda found: found[-1],
    "first": lambda found: found[0],
    "alphabetical": min,  # capital letters before TIE
}

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_TO_ASCII = str.maketrans("‘’‚‛ʼ′´“”„‟″‐‑‒–—−", "'" * 7 + '"' * 5 + "-" * 6)
"""Typographic apostrophes, quotation marks and dashes, and those of ASCII."""


def parse_text(text: str) -> str | None:
    """Return the text without surrounding white space, None for an empty one."""
    return text.strip() or None


def plain_text(text: str) -> str:
    """Return composed characters (NFC), with apostrophes, quotation marks and dashes of ASCII."""
    return normalize("NFC", text).translate(_TO_ASCII)


def lower_case(text: str) -> str:
    """Return plain text in lower case."""
    return plain_text(text.lower())


def best_subspan_em(prediction: str, answers: Sequence[str], *, first_line: bool = False) -> float:
    """Return 1 if a normalized answer occurs in the normalized prediction, else 0.

    An answer of articles or punctuation alone, such as "A", has to occur as written, as whole words.
    Source: best_subspan_em of lost-in-the-middle, which uses `first_line`, the text before a newline. Other
    sets use `score_words`: here "1" occurs in "12".
    """
    text = prediction.split("\n")[0] if first_line else prediction
    return float(any(_occurs(text, answer) for answer in answers))


def _occurs(text: str, answer: str) -> bool:
    phrase = plain_text(answer)
    if found := _content(phrase):
        return found in _content(text)
    if words := r"\W+".join(re.findall(r"\w+", phrase)):
        return re.search(rf"\b{words}\b", plain_text(text)) is not None
    return bool(phrase.strip()) and phrase.strip() in plain_text(text)


def _content(text: str) -> str:
    """Return lower case without punctuation, articles and extra blanks (lost-in-the-middle, SQuAD)."""
    bare = lower_case(text).translate(_NO_PUNCTUATION)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


def score_words(text: str, answers: Sequence[str]) -> float:
    """Return 1 if an answer occurs in the text as whole words, in any script, else 0."""
    return float(contains_words(text, answers))


def named_verdicts(text: str, num_answers: int = 2, *, has_tie: bool = False) -> list[str]:
    """Return the letters of all verdicts such as [[A]], in the order of the text.

    The letter behind the last answer is TIE, if a tie is a verdict of the task, and always for two answers.
    """
    letters = string.ascii_uppercase[: num_answers + (has_tie or num_answers == 2)]
    found: list[str] = re.findall(rf"\[\[([{letters}])\]\]", normalize("NFKC", text))
    return [TIE if letters.index(letter) == num_answers else letter for letter in found]


def parse_verdict(
    text: str, *, num_answers: int = 2, verdict: Verdict = "last", has_tie: bool = False
) -> str | None:
    """Return the letter of the verdict, TIE for [[C]] of two answers as in MT-Bench, None without one."""
    found = named_verdicts(text, num_answers, has_tie=has_tie)
    return _VERDICTS[verdict](found) if found else None


def score_verdict(
    text: str,
    answers: Sequence[str],
    *,
    num_answers: int = 2,
    verdict: Verdict = "last",
    has_tie: bool = False,
) -> float:
    """Return 1 if the verdict is accepted, else 0; chance without a verdict, as in RewardBench.

    Chance is 1 over the number of verdicts that the prompt offers. A tie that it does not offer counts as
    chance, too.
    """
    named = parse_verdict(text, num_answers=num_answers, verdict=verdict, has_tie=has_tie)
    if named in answers or (named is not None and (named != TIE or has_tie)):
        return float(named in answers)
    return 1 / (num_answers + has_tie)


_GAP = r"\W{1,10}"  # limited, so that the time of a scan grows linearly with the text
_ANSWER = (
    r"(?i:answer|antwort|réponse|respuesta|risposta)"
    rf"(?i:{_GAP}(?:is|ist|est|es|è|option|letter))*{_GAP}"
)
"""Words before the letter of an option, in several languages."""


def parse_option(
    text: str,
    *,
    num_answers: int = 26,
    verdict: Verdict = "last",
    has_tie: bool = False,
    options: Sequence[str] = (),
) -> str | None:
    """Return the letter of the option that a text names, None if it names none or several.

    In this order: the letter in a box (`[[B]]`, `\\boxed{B}`), the option whose text the answer is, the
    letter behind "answer", the letter at the beginning, the only letter in the text, the only option whose
    text occurs in it. Letters are those of `contains_words`: "A" in "A dog" is none. `verdict` counts of
    several letters in boxes or behind "answer". `options` are in the order of their letters. `has_tie` is not
    used: a question has a right option.
    """
    text = normalize("NFKC", text)
    letters = string.ascii_uppercase[:num_answers]
    boxed = re.findall(rf"(?:\[\[|\\boxed\{{)(?:{_GAP})?([{letters}])\b", text)
    if boxed:
        return _VERDICTS[verdict](boxed)
    stated = {normalize_words(one) for one in (text, re.split(_ANSWER, text)[-1])}
    stated -= {"", *letters.lower()}
    equal = [letter for letter, one in zip(letters, options, strict=False) if normalize_words(one) in stated]
    if len(equal) == 1:
        return equal[0]
    named = [letter for letter in letters if contains_words(text, [letter])]
    if behind := [letter for letter in re.findall(rf"{_ANSWER}([{letters}])\b", text) if letter in named]:
        return _VERDICTS[verdict](behind)
    if first := re.match(rf"\W*([{letters}])(?:[.:)\]*_]|\s*$|\s*\n)", text):
        return first[1]
    if len(named) != 1:
        pairs = zip(letters, options, strict=False)
        named = [letter for letter, one in pairs if contains_words(text, [one], besides=options)]
    return named[0] if len(named) == 1 else None


def score_option(text: str, answers: Sequence[str], **options: Any) -> float:
    """Return 1 if the option that a text names is accepted, else 0; options as of `parse_option`."""
    return float(parse_option(text, **options) in answers)


def parse_number(text: str) -> str | None:
    """Return the last number after the last "Answer", without commas and sign (simple-evals)."""
    if "Answer" not in text:
        return None
    numbers: list[str] = re.findall(r"\d+\.?\d*", ascii_digits(text).split("Answer")[-1].replace(",", ""))
    return numbers[-1].rstrip(".") if numbers else None


def normalize_number(number: str) -> str:
    """Return a number without trailing zeros of its decimals: 72.50 becomes 72.5."""
    return number.rstrip("0").rstrip(".") if "." in number else number


def score_number(text: str, answers: Sequence[str]) -> float:
    """Return 1 if the parsed number is accepted, else 0: 72.50 equals 72.5, and 1,000 equals 1000.

    Only the prediction loses trailing zeros; no negative answer is correct (score_mgsm of simple-evals).
    """
    number = parse_number(text)
    if number is None:
        return 0.0
    return float(normalize_number(number) in [ascii_digits(answer).replace(",", "") for answer in answers])


def parse_value(text: str) -> str | None:
    """Return the first line that is not empty without its surrounding quotation marks and commas, or None."""
    lines = (line.strip(" \t\r\"',") for line in text.split("\n"))
    return next(filter(None, lines), None)


def contains_value(text: str, answers: Sequence[str]) -> float:
    """Return 1 if an answer occurs in the text, ignoring case, else 0 (lost-in-the-middle, its own set)."""
    return float(any(lower_case(answer) in lower_case(text) for answer in answers if answer.strip()))


def parse_word(text: str) -> str | None:
    """Return the first word, such as a SMILES string; None without a word."""
    return next(iter(text.split()), None)


def score_word(text: str, answers: Sequence[str]) -> float:
    """Return 1 if the first word equals an answer, else 0."""
    return float(parse_word(text) in answers)


def parse_label(text: str) -> str | None:
    """Return the first line that is not empty, in lower case without punctuation; None without a line.

    Punctuation stays in a line of nothing else, such as the label "+".
    """
    lines = filter(None, (lower_case(line).strip() for line in text.split("\n")))
    line = next(lines, None)
    return line and (line.translate(_NO_PUNCTUATION).strip() or line)


def score_label(text: str, answers: Sequence[str]) -> float:
    """Return 1 if the parsed label is an accepted one, in any case and form of its characters, else 0."""
    label = parse_label(text)
    accepted = filter(None, map(parse_label, answers))
    return float(label is not None and fold(label) in map(fold, accepted))


Score = Callable[..., float]
"""Score, 0 to 1, of a generated text and all accepted answers."""

SCORES: Mapping[str, tuple[Score, str]] = {
    "words": (score_words, "an accepted answer occurs as whole words"),
    "best_subspan_em": (best_subspan_em, "an accepted answer occurs at any place, also inside a word"),
    "contains_value": (contains_value, "an accepted value occurs at any place, also inside a word"),
    "verdict": (score_verdict, "the verdict is accepted; chance without a verdict"),
    "option": (score_option, "the letter or the text of an accepted option is named"),
    "ranking": (score_ranking, "nDCG@10 of the order of the documents; 0 without an order"),
    "number": (score_number, "the last number behind “Answer” is accepted"),
    "first_word": (score_word, "the first word is accepted, as written"),
    "label": (score_label, "the first line is an accepted label"),
}
"""Scoring rules by name, with the condition under which an answer is correct."""

SubstringRule = Literal["best_subspan_em", "contains_value"]
"""Rules that a data row can name in place of "words": those of the published code of lost-in-the-middle."""
