"""Attribution of the words of an answer to documents, from the answers without each document."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Literal

import regex

from pine_engine.prompts.answer_words import UNSPACED, contains_words, fold

Finding = Literal["sources", "no single source", "in no document", "unknown", "no content"]
"""Result of an attribution; unknown: an answer without a document that has a word is missing."""

_PARTS = regex.compile(
    rf"(?P<unspaced>(?:{UNSPACED}\p{{M}}*)+)|(?:(?!{UNSPACED})[\p{{L}}\p{{M}}\p{{N}}])+(?:[-.,:/](?=\p{{N}})\p{{N}}+)*"
)
"""A run of characters without spaces between words, or else a word or a number."""

_MIN_RUN = 2  # characters of a script without spaces: one of them is rarely a word
_MIN_STEM = 4  # characters of a word whose other forms are recognized by their beginning
_MIN_HANGUL_STEM = 2
_STEM_SHARE = 0.6
_SIMILAR_SHARE = 0.7  # of the stop words of the most likely language

_NAME = regex.compile(
    r"(?P<begin>(?<=(?:^|[.!?:;\n])[^\p{L}\p{N}]*))?"
    r"\b(?P<first>\p{Lu}\p{Ll}+)\p{Zs}+(?P<second>[\p{Lu}\p{N}][\p{L}\p{M}\p{N}]*)"
)
"""Two words of a name; the first one may begin a sentence."""

_CONTENT = {
    "en": """ai area areas big bill billion bottom cm computer eight eighty eleven fifteen fifty fire five
        forty four free gb great group groups high home hundred information interest interests invention
        keys kg km man member members men mg microsoft mill million ml mm mug net new nine ninety novel old
        page pages parts research ring room rooms second section seven seventy shed shell side sides site
        six sixty system ten test text thick thin third thirty thousand three top trillion tv twelve twenty
        two uk web website wells words world year years young zero""",
    "de": """acht drei elf fünf gott groß große großen jahr jahre jahren mann mensch menschen neue neuen
        neun ordnung sechs sieben tag tage tagen uhr vier zehn zeit zwanzig zwei zwölf""",
    "es": """buen buena buenas bueno buenos cinco cuatro dia dias dos día días gran grandes horas nueva
        nuevas nuevo nuevos ocho pais seis siete tiempo tres verdad""",
    "fr": """beau cent cinq cinquante deux dix douze huit mille nouveau nouveaux onze pièce quarante
        quatorze quatre quinze seize sept soixante treize trente trois vingt""",
    "it": """anni anno cento cinque citta città due gente giorni giorno grande gruppo mesi miliardi milioni
        mondo novanta nove nuovi nuovo ottanta otto paese persone quattro sette tre trenta uomo vita""",
    "nl": "dertig drie duizend honderd negen tien twee veertig vier vijf vijftig zes zeven",
    "pt": """ano anos catorze cinco dez dezoito dia dois doze grande grandes grupo noite nova novas nove
        novo novos obra oito onze povo quatro quinze seis sete sistema treze três viagem vinte""",
    "ru": """вода война восемь город два двадцать две двенадцать дверь девять деньги десять дом дорога
        женщина книга комната мать машина москва ночь отец пять ребенок россия семь стол три улица утро
        четыре шесть""",
    "sv": "dagar dagen fem fyra hundra nio sju tio tjugo tre två åtta",
}
"""Nouns, adjectives and numbers in the stop words of a language, all of which can be an answer."""


@dataclass(frozen=True)
class WordSource:
    """Words of an answer that one document is needed for.

    Attributes:
        start: First character (code point) in the answer.
        stop: Character after the last one.
        document: Index of the document.
    """

    start: int
    stop: int
    document: int


@dataclass(frozen=True)
class Attribution:
    """Sources of the words of an answer.

    Attributes:
        finding: Result in words.
        sources: Words with one source in the order of the answer; empty unless the finding is "sources".
    """

    finding: Finding
    sources: tuple[WordSource, ...] = ()


def attribute_words(
    text: str, *, question: str, documents: Sequence[str], texts_without: Sequence[str | None] = ()
) -> Attribution:
    """Attribute the words of an answer to documents by leave-one-out.

    A document is the source of a word if the document contains the word, the answer without this document
    lacks the word, and no other document is such a source. Stop words and words of the question have no
    source. Stop words are those of stopwordsiso, without _CONTENT and names in documents, for the language
    of the texts, which is the one with the most stop words in them. Leave-one-out: context-cite (Cohen-Wang
    et al. 2024), here on texts. An answer without a document is None if it is unknown; by default, all are.
    """
    without = texts_without or [None] * len(documents)
    states: list[Finding] = []
    sources: list[WordSource] = []
    for start, stop in content_words(text, question, documents):
        word = text[start:stop]
        holders = [place for place, one in enumerate(documents) if contains_word(one, word)]
        answers = {place: without[place] for place in holders}
        needed = [place for place, one in answers.items() if one is not None and not contains_word(one, word)]
        if None in answers.values():
            states.append("unknown")
        elif len(needed) == 1:
            states.append("sources")
            _append(sources, WordSource(start, stop, needed[0]), text)
        elif holders or any(_contains_form(one, word) for one in documents):
            states.append("no single source")
        else:
            states.append("in no document")
    order: tuple[Finding, ...] = ("sources", "unknown", "no single source", "in no document")
    return Attribution(next((one for one in order if one in states), "no content"), tuple(sources))


def _append(sources: list[WordSource], source: WordSource, text: str) -> None:
    """Add a source, joined with the last one if only white space is between two words of one document."""
    last = sources[-1] if sources else None
    if last and last.document == source.document and not text[last.stop : source.start].strip():
        sources[-1] = WordSource(last.start, source.stop, last.document)
    else:
        sources.append(source)


def content_words(text: str, question: str, documents: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield start and end of each word that is no stop word, no single letter and not in the question."""
    stop_words = stop_words_of("\n".join((question, *documents, text)))
    names = _names(tuple(documents), stop_words)
    matches = list(_PARTS.finditer(text))
    words = [fold(match[0]) for match in matches]
    named = {place + side for place, pair in enumerate(pairwise(words)) if pair in names for side in (0, 1)}
    for place, match in enumerate(matches):
        if match["unspaced"]:
            spans = _known_runs(match, [question, *documents])
        else:
            spans = [match.span()] if len(match[0]) > 1 or match[0].isnumeric() else []
        for start, stop in spans:
            word = text[start:stop]
            if (place in named or fold(word) not in stop_words) and not contains_word(question, word):
                yield start, stop


@lru_cache(maxsize=8)
def _names(documents: tuple[str, ...], stop_words: frozenset[str]) -> set[tuple[str, str]]:
    """Return names of a stop word and another word, such as "Los Angeles" and "May 1920"."""
    names: set[tuple[str, str]] = set()
    for document in documents:
        for match in _NAME.finditer(document, overlapped=True):
            is_stop = [fold(word) in stop_words for word in match.group("first", "second")]
            if is_stop == [False, True] or (is_stop == [True, False] and match["begin"] is None):
                names.add((fold(match["first"]), fold(match["second"])))
    return names


def _known_runs(match: "regex.Match[str]", texts: Sequence[str]) -> list[tuple[int, int]]:
    """Split a run of a script without spaces into its longest parts that a text has, and the rest."""
    run, begin = match[0], match.start()
    spans: list[tuple[int, int]] = []
    start = left = 0
    while start <= len(run):
        found = next(
            (
                stop
                for stop in range(len(run), start + _MIN_RUN - 1, -1)
                if any(run[start:stop] in text for text in texts)
            ),
            None,
        )
        if found is None and start < len(run):
            start += 1
            continue
        spans += [(left, start)] if start - left >= _MIN_RUN else []
        if found is None:
            break
        spans.append((start, found))
        start = left = found
    return [(begin + start, begin + stop) for start, stop in spans]


def contains_word(text: str, word: str) -> bool:
    """Check whether a text contains a word, or a part of a script without spaces."""
    return word in text if regex.match(UNSPACED, word) else contains_words(text, [word])


def _contains_form(text: str, word: str) -> bool:
    """Check whether a text contains the beginning of a word, such as that of another grammatical form."""
    least = _MIN_HANGUL_STEM if regex.match(r"\p{Hangul}", word) else _MIN_STEM
    return fold(word)[: max(least, round(_STEM_SHARE * len(word)))] in fold(text)


@lru_cache(maxsize=64)
def stop_words_of(text: str) -> frozenset[str]:
    """Return the stop words of the language of a text, and of those with about as many of its words."""
    words = {fold(match[0]) for match in _PARTS.finditer(text)}
    counts = {name: len(words & stop_words) for name, stop_words in _all_stop_words().items()}
    least = max(1, _SIMILAR_SHARE * max(counts.values()))
    return frozenset().union(*(_all_stop_words()[name] for name, count in counts.items() if count >= least))


@lru_cache(maxsize=1)
def _all_stop_words() -> dict[str, frozenset[str]]:
    """Return the stop words by language."""
    import stopwordsiso  # reads a file of 200 kB

    return {
        name: frozenset(
            fold(word) for word in stopwordsiso.stopwords(name) if not any(map(str.isdigit, word))
        )
        - set(map(fold, _CONTENT.get(name, "").split()))
        for name in stopwordsiso.langs()
    }
