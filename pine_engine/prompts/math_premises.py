"""Split a math problem into prefix, exchangeable premises and suffix, by heuristics on the wording."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from pine_engine.errors import InputError
from pine_engine.prompts.prompt import Document
from pine_engine.prompts.request import DataRow
from pine_engine.prompts.tasks import TASKS

_CLOSING = r"""["'”’)\]]*"""
_END = re.compile(rf"(?<![.?!])[.?!]+{_CLOSING}(?:\s+|$)")
_QUESTION = re.compile(rf"\?{_CLOSING}\s*$")
_ABBREVIATION = re.compile(r"\b(?:(?i:mr|mrs|ms|dr|st|mt|prof|vs|e\.g|i\.e)|[A-HJ-Z])\.$")
"""A title or an initial, which rarely ends a sentence."""

_MAX_ABBREVIATION = 8  # characters, with the one before it

_QUANTITY = re.compile(
    r"\d|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|twenty|thirty|forty|fifty|"
    r"sixty|seventy|eighty|ninety|hundred|thousand|million|dozen|half|third|quarter|twice|double|triple)s?\b",
    re.IGNORECASE,
)

_GOES_ON = re.compile(
    r"\W*(?:and|but|so|then|next|after|afterwards?|later|finally|lastly|eventually|therefore|thus|however|"
    r"instead|this|that|these|those|both)\b",
    re.IGNORECASE,
)
"""The opening of a sentence that continues the one before it."""

_LEANS_BACK = re.compile(
    r"\b(?:then|however|remaining|the (?:rest|others?|next|following)|another|again|also|previous|same|"
    r"of (?:them|these|those))\b",
    re.IGNORECASE,
)
"""References to a remainder or an addition."""

# The last "as many" decides: an atomic group does not search the text again for each earlier one.
_INCOMPLETE = re.compile(
    r"(?>.*\bas (?:many|much)\b)(?!.*\bas\b)|(?>.*\b(?:more|less|fewer)\b)(?!.*\bthan\b)",
    re.IGNORECASE | re.DOTALL,
)
"""Comparisons without "than" or "as"."""

_PRONOUN = re.compile(
    r"\W*(?:(?:on|in|at|for|from|by|with|during|over|every|each|last)\b(?:\W+\w+){0,4}?\W+"
    r"(?=(?:he|she|it|they|we|i)\b))?(he|his|she|her|it|its|they|their|we|our|i|my)\b",
    re.IGNORECASE,
)
"""A pronoun as the subject of a sentence, or its owner, perhaps after a few words on time or place."""

_SUBJECT = {"his": "he", "her": "she", "its": "it", "their": "they", "our": "we", "my": "i"}


@dataclass(frozen=True)
class Premises:
    """A problem in three parts; each premise is a sentence with the blanks after it."""

    prefix: str
    premises: tuple[str, ...]
    suffix: str

    def row(self, identity: str) -> DataRow:
        """Return a row of the task math_reasoning. Raises InputError if there are no premises."""
        if not self.premises:
            message = "no premises of this problem can be exchanged; mark those that can"
            raise InputError(message, field="premises")
        instruction = TASKS["math_reasoning"].instruction
        return DataRow(
            id=identity,
            task="math_reasoning",
            prefix="\n\n".join(filter(None, (instruction, self.prefix.strip()))),
            question=self.suffix.strip(),
            documents=[Document(premise.strip()) for premise in self.premises],
        )


def split_problem(text: str) -> Premises:
    """Return the problem with the premises that the wording shows to be exchangeable.

    They are the longest run of at least two sentences before the question that contain a number, do not
    continue the previous sentence ("Then ...", "... 3 more"), and all begin with one pronoun, which refers to
    a person named before, or all with none. Without such a run, all text before the question is the prefix.
    """
    sentences = split_sentences(text)
    asking = [place for place, sentence in enumerate(sentences) if _QUESTION.search(sentence)]
    question = asking[-1] if asking else max(0, len(sentences) - 1)
    return cut_sentences(sentences, _longest_run([_subject(sentence) for sentence in sentences[:question]]))


def cut_sentences(sentences: Sequence[str], premises: range) -> Premises:
    """Return the problem with a range of its sentences as premises."""
    return Premises(
        "".join(sentences[: premises.start]),
        tuple(sentences[premises.start : premises.stop]),
        "".join(sentences[premises.stop :]),
    )


def split_sentences(text: str) -> tuple[str, ...]:
    """Return the sentences, each with the white space after it, so that they join to the text.

    No sentence ends after a title (Mr.) or an initial (J.), before a small letter, or within quotation marks.
    """
    sentences: list[str] = []
    has_pairs, has_curly_pairs = text.count('"') % 2 == 0, text.count("“") == text.count("”")
    start = place = straight = curly = 0
    for match in _END.finditer(text):
        straight += text.count('"', place, match.end())
        curly += text.count("“", place, match.end()) - text.count("”", place, match.end())
        is_quoted = (has_pairs and straight % 2 == 1) or (has_curly_pairs and curly > 0)
        end, place = match.start() + len(match.group().rstrip()), match.end()
        is_abbreviation = _ABBREVIATION.search(text[max(start, end - _MAX_ABBREVIATION) : end])
        if not (text[place : place + 1].islower() or is_abbreviation or is_quoted):
            sentences.append(text[start:place])
            start = place
    return (*sentences, text[start:]) if start < len(text) else tuple(sentences)


def _subject(sentence: str) -> str | None:
    """Return the first pronoun of a sentence, "" without one, None if the sentence cannot be moved."""
    is_complete = not (
        _GOES_ON.match(sentence) or _LEANS_BACK.search(sentence) or _INCOMPLETE.match(sentence)
    )
    if not (is_complete and _QUANTITY.search(sentence)):
        return None
    match = _PRONOUN.match(sentence)
    if match is None:
        return ""
    pronoun = match[1].lower()
    return _SUBJECT.get(pronoun, pronoun)


def _longest_run(subjects: Sequence[str | None]) -> range:
    """Return the first of the longest runs of one subject; an empty range at the end without one."""
    best, start = range(len(subjects), len(subjects)), 0
    for subject, group in groupby(subjects):
        stop = start + len(list(group))
        # A pronoun in the first sentence refers to nothing in the text.
        run = range(start + (start == 0 and bool(subject)), stop)
        if subject is not None and len(run) > max(1, len(best)):
            best = run
        start = stop
    return best
