"""A math problem in one text, cut into what comes before its exchangeable premises, these, and the rest.

Which premises can be exchanged is guessed from a few signs in the wording. The guess is a preview for a
reader to correct: cut_sentences makes any other cut.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pine_engine.errors import InputError
from pine_engine.prompts.inputs import DataRow, DocumentInput
from pine_engine.prompts.tasks import get_task

_CLOSING = r"""["'”’)\]]*"""
_END = re.compile(rf"(?<![.?!])[.?!]+{_CLOSING}(?:\s+|$)")
_QUESTION = re.compile(rf"\?{_CLOSING}\s*$")
_ABBREVIATION = re.compile(r"\b(?:(?i:mr|mrs|ms|dr|st|mt|prof|vs|e\.g|i\.e)|[A-HJ-Z])\.$")
"""What hardly ever ends a sentence: a title, or an initial."""

_LONGEST_ABBREVIATION = 8
"""Characters at the end of a sentence that show one, and what stands before it."""

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
    r"of (?:them|these|those))\b"
    r"|\bas (?:many|much)\b(?!.*\bas\b)|\b(?:more|less|fewer)\b(?!.*\bthan\b)",
    re.IGNORECASE | re.DOTALL,
)
"""What is left of something or comes on top of it, and a comparison that does not say with what."""

_PRONOUN = re.compile(
    r"\W*(?:(?:on|in|at|for|from|by|with|during|over|every|each|last)\b(?:\W+\w+){0,4}?\W+"
    r"(?=(?:he|she|it|they|we|i)\b))?(he|his|she|her|it|its|they|their|we|our|i|my)\b",
    re.IGNORECASE,
)
"""A pronoun as the subject of a sentence, or its owner; a few words on when or where may stand before."""

_SUBJECT = {"his": "he", "her": "she", "its": "it", "their": "they", "our": "we", "my": "i"}


@dataclass(frozen=True)
class Premises:
    """A problem in three parts. premises: sentences, each with the blanks after it; there may be none."""

    prefix: str
    premises: tuple[str, ...]
    suffix: str

    def reassemble(self) -> str:
        """The whole problem, as it was given."""
        return "".join((self.prefix, *self.premises, self.suffix))

    def row(self, identity: str) -> DataRow:
        """The problem as a row of the task math_reasoning; the prefix stands under the task's instruction.

        Raises InputError if there are no premises.
        """
        if not self.premises:
            raise InputError("no premises of this problem can be exchanged; mark those that can")
        instruction = get_task("math_reasoning").instruction
        return DataRow(
            id=identity,
            task="math_reasoning",
            prefix="\n\n".join(filter(None, (instruction, self.prefix.strip()))),
            question=self.suffix.strip(),
            documents=[DocumentInput(text=premise.strip()) for premise in self.premises],
        )


def split_problem(text: str) -> Premises:
    """The problem with its exchangeable premises, as far as the wording shows them.

    They are the longest run of at least two sentences before the question (the last sentence with a
    question mark, or else the last) of which each
    - has a number in it, as an introduction has not,
    - does not go on from the one before: "Then ...", "... the remaining ...", "... 3 more",
    - and has the same kind of subject as the others: none opens with a pronoun, or all do with one and the
      same, "She ...", "Her ...", "On Monday she ...", which then means somebody named before the run.
    Where there is no such run there are no premises, and all before the question is the prefix.
    """
    sentences = split_sentences(text)
    asking = [place for place, sentence in enumerate(sentences) if _QUESTION.search(sentence)]
    question = asking[-1] if asking else max(0, len(sentences) - 1)
    return cut_sentences(sentences, _longest_run([_subject(sentence) for sentence in sentences[:question]]))


def cut_sentences(sentences: Sequence[str], premises: range) -> Premises:
    """The problem with some of its sentences as premises; premises: their places, one after the other."""
    return Premises(
        "".join(sentences[: premises.start]),
        tuple(sentences[premises.start : premises.stop]),
        "".join(sentences[premises.stop :]),
    )


def split_sentences(text: str) -> tuple[str, ...]:
    """The sentences, each with the white space that follows it, so that together they are the text.

    A full stop, question or exclamation mark ends one before white space, but not after a title (Mr.) or an
    initial (J.), nor before a small letter, nor within double quotation marks, if those come in pairs.
    """
    sentences: list[str] = []
    start = 0
    for end in _END.finditer(text):
        before, after = text[start : end.end()], text[end.end() : end.end() + 1]
        if (
            after.islower()
            or _ABBREVIATION.search(before.rstrip()[-_LONGEST_ABBREVIATION:])
            or _quote_is_open(text, end.end())
        ):
            continue
        sentences.append(before)
        start = end.end()
    return (*sentences, text[start:]) if start < len(text) else tuple(sentences)


def _quote_is_open(text: str, place: int) -> bool:
    straight = text.count('"') % 2 == 0 and text.count('"', 0, place) % 2 == 1
    curly = text.count("“") == text.count("”") and text.count("“", 0, place) > text.count("”", 0, place)
    return straight or curly


def _subject(sentence: str) -> str | None:
    """The pronoun that a sentence opens with, "" if it opens with none; None if it has to stay in place."""
    if not _QUANTITY.search(sentence) or _GOES_ON.match(sentence) or _LEANS_BACK.search(sentence):
        return None
    match = _PRONOUN.match(sentence)
    if match is None:
        return ""
    pronoun = match[1].lower()
    return _SUBJECT.get(pronoun, pronoun)


def _longest_run(subjects: Sequence[str | None]) -> range:
    """The places of the longest run of one subject, the first of several; an empty one at the end if none."""
    best = range(len(subjects), len(subjects))
    for start, subject in enumerate(subjects):
        # A pronoun at the very beginning means nobody who was named.
        if subject is None or (subject and start == 0):
            continue
        stop = start
        while stop < len(subjects) and subjects[stop] == subject:
            stop += 1
        if stop - start > max(1, len(best)):
            best = range(start, stop)
    return best
