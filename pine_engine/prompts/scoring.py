"""What a generated answer says, and how far it is right: parsers and scores of text, one pair per task.

Every score goes from 0 to 1 and takes the whole generated text and all accepted answers, of which there is
at least one. docs/specification.md section 9 has the rules.
"""

import re
import string
from collections.abc import Sequence

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def parse_text(text: str) -> str | None:
    """The text without white space around it, None if nothing is left."""
    return text.strip() or None


def normalize_answer(text: str) -> str:
    """Lower case, without ASCII punctuation, without the words a, an and the, white space collapsed.

    An article becomes a blank, as in the published code; between blanks that is the same as deleting it.
    Source: normalize_answer of lost-in-the-middle, which is that of the SQuAD evaluation script.
    """
    bare = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


def best_subspan_em(prediction: str, answers: Sequence[str], *, first_line: bool = False) -> float:
    """1 if any answer, normalised, occurs in the normalised prediction, else 0.

    first_line: only the text before the first newline counts, as lost-in-the-middle does. An answer of which
    normalising leaves nothing, such as "The", occurs in every text; so it does in the published metric.
    Source: best_subspan_em of lost-in-the-middle.
    """
    read = normalize_answer(prediction.split("\n")[0] if first_line else prediction)
    return float(any(normalize_answer(answer) in read for answer in answers))


def parse_verdict(text: str) -> str | None:
    """A if [[A]] occurs, else B if [[B]] occurs, else None. Where both occur, A wins, as in RewardBench."""
    return next((letter for letter in "AB" if f"[[{letter}]]" in text), None)


def score_verdict(text: str, answers: Sequence[str]) -> float:
    """1 if the verdict is accepted, 0 if it is the other one, 0.5 if there is none.

    Source: RewardBench, which gives half a point to a verdict that cannot be read.
    """
    verdict = parse_verdict(text)
    return 0.5 if verdict is None else float(verdict in answers)


def parse_number(text: str) -> str | None:
    """The last number after the last "Answer", as it is written, without commas; None if there is none.

    Signs are not read. Source: parse_answer of simple-evals' MGSM, which gives "" in place of None.
    """
    if "Answer" not in text:
        return None
    numbers: list[str] = re.findall(r"\d+\.?\d*", text.split("Answer")[-1].replace(",", ""))
    return numbers[-1].rstrip(".") if numbers else None


def normalize_number(number: str) -> str:
    """A number without zeros at the end of its decimals: 72.50 is 72.5."""
    return number.rstrip("0").rstrip(".") if "." in number else number


def score_number(text: str, answers: Sequence[str]) -> float:
    """1 if the number read from the text is accepted, else 0: 72.50 is 72.5 and 1,000 is 1000.

    Zeros at the end go from the prediction alone, and no sign is read, so that no negative answer is ever
    right. Source: score_mgsm of simple-evals.
    """
    number = parse_number(text)
    if number is None:
        return 0.0
    return float(normalize_number(number) in [answer.replace(",", "") for answer in answers])


def parse_value(text: str) -> str | None:
    """The first line with something on it, without quotation marks and commas around it; None if none has."""
    lines = (line.strip(" \t\r\"',") for line in text.split("\n"))
    return next(filter(None, lines), None)


def contains_value(text: str, answers: Sequence[str]) -> float:
    """1 if any answer occurs in the text, in upper or lower case, else 0.

    Source: evaluate_kv_responses.py of lost-in-the-middle.
    """
    return float(any(answer.lower() in text.lower() for answer in answers))


def parse_word(text: str) -> str | None:
    """The first word, such as a SMILES string, which has no blanks; None if there is no word."""
    return next(iter(text.split()), None)


def score_word(text: str, answers: Sequence[str]) -> float:
    """1 if the first word is one of the answers, letter by letter, else 0."""
    return float(parse_word(text) in answers)
