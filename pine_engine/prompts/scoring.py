"""Parsers and scores (0 to 1) of generated text, one pair per task; see docs/specification.md section 9."""

import re
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args
from unicodedata import normalize

TIE = "tie"  # verdict for no answer

Verdict = Literal["last", "first", "alphabetical"]
"""Verdict that counts in a text with several; alphabetical: A before B, as in FastChat and RewardBench."""

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

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


def normalize_answer(text: str) -> str:
    """Return lower case without punctuation, articles and extra blanks (lost-in-the-middle, SQuAD).

    Articles, or else punctuation, stay in a text of nothing else, which the published code empties.
    """
    lower = lower_case(text)
    return _content(text) or " ".join(lower.translate(_NO_PUNCTUATION).split() or lower.split())


def _content(text: str) -> str:
    bare = lower_case(text).translate(_NO_PUNCTUATION)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


def best_subspan_em(prediction: str, answers: Sequence[str], *, first_line: bool = False) -> float:
    """Return 1 if a normalized answer occurs in the normalized prediction, else 0.

    An answer of articles or punctuation alone, such as "A", has to occur as written, as whole words.
    Source: best_subspan_em of lost-in-the-middle, which uses `first_line`, the text before a newline.
    """
    return float(_contains_any(prediction.split("\n")[0] if first_line else prediction, answers))


def contains_words(text: str, phrases: Sequence[str]) -> bool:
    """Return True if the normalized words of a phrase occur in the normalized text."""
    return _contains_any(text, phrases, edge=" ")


def _contains_any(text: str, phrases: Sequence[str], *, edge: str = "") -> bool:
    """Return True if the content of a phrase, with the edge on both sides, occurs in that of the text."""
    content, plain = f"{edge}{_content(text)}{edge}", plain_text(text)
    for phrase in map(plain_text, phrases):
        words = r"\W+".join(re.findall(r"\w+", phrase))
        if found := _content(phrase):
            is_found = f"{edge}{found}{edge}" in content
        elif words:
            is_found = re.search(rf"\b{words}\b", plain) is not None
        else:
            is_found = bool(phrase.strip()) and phrase.strip() in plain
        if is_found:
            return True
    return False


def named_verdicts(text: str, num_answers: int = 2) -> list[str]:
    """Return the letters of all verdicts such as [[A]], in the order of the text; [[C]] of two is TIE."""
    letters = string.ascii_uppercase[: max(num_answers, 3)]
    found: list[str] = re.findall(rf"\[\[([{letters}])\]\]", text)
    return [TIE if num_answers == 2 and letter == "C" else letter for letter in found]


def parse_verdict(text: str, *, num_answers: int = 2, verdict: Verdict = "last") -> str | None:
    """Return the letter of the verdict, TIE for [[C]] of two answers as in MT-Bench, None without one."""
    found = named_verdicts(text, num_answers)
    return _VERDICTS[verdict](found) if found else None


def score_verdict(
    text: str, answers: Sequence[str], *, num_answers: int = 2, verdict: Verdict = "last"
) -> float:
    """Return 1 if the verdict is accepted, else 0; chance, 1 / num_answers, for a tie or without a verdict.

    RewardBench scores a text without a verdict so.
    """
    named = parse_verdict(text, num_answers=num_answers, verdict=verdict)
    if named in answers or named not in (None, TIE):
        return float(named in answers)
    return 1 / num_answers


def parse_number(text: str) -> str | None:
    """Return the last number after the last "Answer", without commas and sign (simple-evals)."""
    if "Answer" not in text:
        return None
    numbers: list[str] = re.findall(r"\d+\.?\d*", text.split("Answer")[-1].replace(",", ""))
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
    return float(normalize_number(number) in [answer.replace(",", "") for answer in answers])


def parse_value(text: str) -> str | None:
    """Return the first line that is not empty without its surrounding quotation marks and commas, or None."""
    lines = (line.strip(" \t\r\"',") for line in text.split("\n"))
    return next(filter(None, lines), None)


def contains_value(text: str, answers: Sequence[str]) -> float:
    """Return 1 if an answer occurs in the text, ignoring case, else 0 (lost-in-the-middle)."""
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
    """Return 1 if the parsed label is an accepted one, else 0."""
    label = parse_label(text)
    return float(label is not None and label in map(parse_label, answers))
