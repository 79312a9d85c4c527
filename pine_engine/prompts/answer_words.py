"""Words of a text in any script, and the search for an answer among them, as whole words.

Both texts are compared without case, compatibility forms, optional marks, thousands separators and English
articles. A found answer begins and ends at an edge: between words; between any two characters of scripts
without spaces; before a Korean particle; behind an attached Arabic or Hebrew preposition. Parts of numbers
("1" in "12", "1.5", "-1", "1/2"), of compound names ("Ian" in "Anne-Ian") and single letters in words or as
words ("A" in "A dog") are no answers.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple
from unicodedata import decimal, normalize

import regex

UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}ー]"
"""Pattern of a character of a script without spaces between words."""

_LETTER = rf"(?:(?!{UNSPACED}|\p{{Hangul}})\p{{L}}\p{{M}}*)"

_TOKEN = regex.compile(
    rf"""
    (?P<number>
        (?:(?<![\p{{L}}\p{{M}}\p{{N}}\])])-(?=\.?\d))?  # a minus, not a hyphen
        (?:(?<![\p{{L}}\p{{N}}.])\.)?
        \d+ (?:[.,]\d+)*
    )
    | (?P<character> {UNSPACED}\p{{M}}* )
    | (?P<hangul> \p{{Hangul}}+ )
    | (?P<acronym> (?:{_LETTER}\.){{2,}} (?:{_LETTER}(?!{_LETTER}))? )
    | (?P<letters> {_LETTER}+ (?:[+#]+(?![\p{{L}}\p{{N}}]))? )
    | (?P<other> [\p{{N}}]+ )
    """,
    regex.VERBOSE,
)
_SIGNS = str.maketrans("‘’‚‛ʼ′‐−٬٫⁄", "''''''--,./", "\u0640")  # without the Arabic tatweel
_NUMBER_SIGNS = str.maketrans("，．٬٫", ",.,.")
_GROUP_BLANK = regex.compile(r"(?<=\d)[\u00a0\u2009\u202f'’](?=\d{3}(?!\d))")
_IGNORED = regex.compile(r"[\p{Cf}\u034f\ufe0e\ufe0f]")
_OPTIONAL_MARKS = regex.compile(r"(?<=[\p{Greek}\p{Arabic}\p{Hebrew}])\p{M}+")
_GROUPED = regex.compile(r"-?(\d{1,3}(,\d{2,3})*,\d{3}(\.\d+)?|\d{1,3}(\.\d{3}){2,}|\d{1,3}(\.\d{3})+,\d+)")
_DATE = regex.compile(r"\d{1,2}\.\d{1,2}\.(\d{4}|\d{2})")
_VERSION = regex.compile(r"\d+(\.\d+){2,}")

_NUMERALS = frozenset("〇零一二三四五六七八九十百千万萬亿億兆两십백천만억조")
_ELISION = regex.compile(r"[ldjmnstc]|(jus|lors|puis|quoi)?qu|un|all|dell|nell|dall|sull|quell")
"""Words of French and Italian before an apostrophe."""

_PARTICLE = regex.compile(
    r"(들)?(은|는|이|가|을|를|의|에|에서|에게|에게서|한테|께|께서|으로|로|으로서|로서|으로써|로써|와|과|랑|이랑|하고)?"
    r"(은|는|도|만|의|까지|부터|마저|조차|밖에|뿐|처럼|보다|라도|이라도)?"
    r"(이다|다|이고|고|이며|며|이나|나|요|이요|예요|이에요|입니다|였다|이었다|였습니다|이었습니다|"
    r"라고|이라고|라는|이라는|인|이란|란)?"
)
_PREFIXES = (
    (regex.compile(r"[وف]?([بك]?ال|لل)"), regex.compile(r"\p{Arabic}{2,}")),
    (regex.compile(r"[وف]?[بكل]?"), regex.compile(r"\p{Arabic}{4,}")),
    (regex.compile(r"[והבכלמש]{1,2}"), regex.compile(r"\p{Hebrew}{4,}")),
)
"""Attached articles, prepositions and conjunctions, and the words behind which they are read as such."""

_MAX_FRACTION_DIGITS = 3  # of both numbers of a fraction, unlike years

_LONE_SCRIPTS = regex.compile(
    r"(?:(?P<hiragana>\p{Hiragana})|(?P<katakana>[\p{Katakana}ー])|(?P<thai>\p{Thai})|(?P<lao>\p{Lao})|"
    r"(?P<khmer>\p{Khmer})|(?P<myanmar>\p{Myanmar}))\p{M}*"
)
"""A character of a script in which one character is rarely a word."""

_WORD_LETTERS = frozenset("aeiouywzvskàéèåöæ" + "авикосуяйєзіе" + "ηο")
"""Letters that are words, such as articles and conjunctions, in a language written with them."""

_COPULA = regex.compile(
    r"is|was|has|are|and|or|vs|because|wins|ist|war|est|es|fue|é|foi|è|jest|är|er|og|och|y"
)
"""Words after a letter that names an answer: "A is better"."""

_SENTENCE_START = regex.compile(r"(^|[.!?:;\n])[\s*_\"'`(\[>#-]*$")
_MAX_MARKUP = 20  # characters between the end of a sentence and the next one
_ARTICLES = frozenset(("a", "an", "the"))

Kind = Literal["number", "character", "hangul", "acronym", "letters", "other"]


class Word(NamedTuple):
    """A word, a number, or a character of a script without spaces."""

    kind: Kind
    start: int
    stop: int
    text: str  # as it is compared
    is_capitalized: bool
    is_letter: bool  # single letter that names something, such as an answer


class Words(NamedTuple):
    """Text of words, and the places in it at which an answer can begin and end."""

    text: str
    starts: frozenset[int]
    ends: frozenset[int]
    breaks: frozenset[int]  # edges that are seen without knowledge of words
    bounds: tuple[int, ...]  # edges of all words
    word_letters: frozenset[int]  # starts of single letters that are words of the language
    kinds: tuple[Kind, ...]


class Span(NamedTuple):
    """Place of a found answer in the text of the words."""

    start: int
    stop: int


def fold(text: str) -> str:
    """Return text without case and compatibility forms (NFKC), with ASCII digits and one letter i."""
    folded = normalize("NFKC", normalize("NFKC", text).casefold())
    return ascii_digits(folded.replace("i\u0307", "i").replace("ı", "i"))


def ascii_digits(text: str) -> str:
    """Return text with the decimal digits of all scripts, and the signs in numbers, in ASCII."""
    return "".join(str(decimal(character, character)) for character in text.translate(_NUMBER_SIGNS))


def contains_words(text: str, phrases: Sequence[str], *, besides: Sequence[str] = ()) -> bool:
    """Check whether a phrase occurs in a text as whole words.

    besides: other phrases. A place inside one of them does not count, such as "York" in "New York".
    """
    for hyphen in ("", " "):  # "email" is "e-mail", and "ice cream" is "ice-cream"
        others = [list(_find(text, phrase, hyphen)) for phrase in besides]
        found = (span for phrase in phrases for span in _find(text, phrase, hyphen))
        if any(not any(_is_inside(span, spans) for spans in others) for span in found):
            return True
    return False


def normalize_words(text: str) -> str:
    """Return the words of a text as they are compared, or else the text itself."""
    return _words(text, " ").text or fold(text).strip()


def _is_inside(span: Span, others: Sequence[Span]) -> bool:
    """Check whether a place is a part of one of the places of another phrase, in ascending order."""
    index = bisect_right(others, span.start, key=lambda other: other.start) - 1
    return index >= 0 and span.stop <= others[index].stop and span != others[index]


def _find(text: str, phrase: str, hyphen: str) -> Iterator[Span]:
    """Yield the places of a phrase in a text."""
    searched, found = _words(text, hyphen), _words(phrase, hyphen)
    if not found.text:  # symbols alone
        symbols, plain = fold(phrase).strip(), fold(text)
        if symbols and symbols in plain:
            yield Span(-1, -1)
        return
    start = searched.text.find(found.text)
    while start >= 0:
        stop = start + len(found.text)
        is_whole = _begins(searched, found, start) and _ends(searched, found, stop)
        if is_whole and _is_alone(searched, found, start):
            yield Span(start, stop)
        start = searched.text.find(found.text, start + 1)


def _begins(searched: Words, found: Words, start: int) -> bool:
    """Check whether an answer can begin here, also behind an attached preposition."""
    if start in searched.starts:
        return True
    before = searched.text[searched.bounds[bisect_right(searched.bounds, start) - 1] : start]
    return bool(before) and any(
        prefix.fullmatch(before) and word.match(found.text) for prefix, word in _PREFIXES
    )


def _ends(searched: Words, found: Words, stop: int) -> bool:
    """Check whether an answer can end here, also before a Korean particle."""
    if stop in searched.ends:
        return True
    after = searched.text[stop : searched.bounds[bisect_left(searched.bounds, stop)]]
    is_hangul = found.kinds[-1] == "hangul" and bool(after)
    return is_hangul and _PARTICLE.fullmatch(after) is not None


def _is_alone(searched: Words, found: Words, start: int) -> bool:
    """Check whether a single letter or character is no part or word of the sentence."""
    if len(found.kinds) > 1:
        return True
    if found.kinds[0] == "character" and _script(found.text):
        return start in searched.breaks and start + len(found.text) in searched.breaks
    return len(found.text) > 1 or start not in searched.word_letters


@lru_cache(maxsize=4096)
def _script(text: str) -> str | None:
    """Return the script of a character, None if one character of it can be a word."""
    match = _LONE_SCRIPTS.fullmatch(text)
    return match.lastgroup if match else None


@lru_cache(maxsize=512)
def _words(text: str, hyphen: str) -> Words:
    """Return the words of a text, with `hyphen` in place of hyphens between words."""
    plain = _plain(text)
    words = _without_articles(list(_read(plain)), plain)
    parts: list[str] = []
    starts, ends, breaks, bounds, letters = {0}, set[int](), {0}, [0], set[int]()
    length = 0
    for index, word in enumerate(words):
        if index:
            former, gap = words[index - 1], plain[words[index - 1].stop : word.start]
            between, is_end, is_start = _boundary(former, gap, word, hyphen)
            is_break = bool(gap) or former.kind != word.kind or _script(former.text) != _script(word.text)
            if is_end:
                ends.add(length)
            breaks |= {length} if is_break else set()
            bounds.append(length)
            parts.append(between)
            length += len(between)
            if is_start:
                starts.add(length)
            breaks |= {length} if is_break else set()
            bounds.append(length)
        if word.kind == "letters" and len(word.text) == 1 and not word.is_letter:
            letters.add(length)
        parts.append(word.text)
        length += len(word.text)
    return Words(
        "".join(parts),
        frozenset(starts),
        frozenset(ends | {length}),
        frozenset(breaks | {length}),
        (*bounds, length),
        frozenset(letters),
        tuple(word.kind for word in words),
    )


def _plain(text: str) -> str:
    """Return text in one form of its characters, but with its case."""
    text = _GROUP_BLANK.sub("", _IGNORED.sub("", text))
    text = regex.sub(r"(?<=\p{Nd})(?=\p{No})", "^", text)  # 10² is not 102, and 1½ not 11/2
    text = normalize("NFKC", text).translate(_SIGNS)
    return normalize("NFC", _OPTIONAL_MARKS.sub("", normalize("NFD", text)))


def _read(plain: str) -> Iterator[Word]:
    """Yield the words of a text."""
    found = list(_TOKEN.finditer(plain))
    for index, match in enumerate(found):
        kind, text, is_letter = match.lastgroup, match.group(), False
        if kind == "number":
            yield from _numbers(match.start(), text)
            continue
        if kind == "letters" and len(text) == 1:
            following = found[index + 1] if index + 1 < len(found) else None
            is_letter = _is_letter(plain, match.start(), text, following)
        folded = fold(text).replace(".", "") if kind == "acronym" else fold(text)
        yield Word(kind, match.start(), match.end(), folded, text[0].isupper(), is_letter)


def _numbers(start: int, text: str) -> Iterator[Word]:
    """Yield a number, or the numbers of a date or a list, with a point before decimals and no other sign."""
    sign, digits = text.startswith("-") * "-", fold(text.removeprefix("-"))
    if digits.startswith("."):
        digits = f"0{digits}"
    if _GROUPED.fullmatch(digits):
        decimals = max(digits.rfind("."), digits.rfind(","))
        is_grouped = digits.count(digits[decimals]) > 1 or ("." not in digits and digits[decimals] == ",")
        whole, rest = (digits, "") if is_grouped else (digits[:decimals], f".{digits[decimals + 1 :]}")
        digits = whole.replace(",", "").replace(".", "") + rest
    elif regex.fullmatch(r"\d+,\d+", digits):
        digits = digits.replace(",", ".")
    elif regex.search(r"[.,].*[.,]", digits) and (_DATE.fullmatch(digits) or not _VERSION.fullmatch(digits)):
        for match in regex.finditer(r"\d+", text):
            first, last = match.span()
            yield Word("number", start + first, start + last, fold(match.group()), False, False)
        return
    yield Word("number", start, start + len(text), sign + digits, False, False)


def _is_letter(plain: str, start: int, text: str, following: "regex.Match[str] | None") -> bool:
    """Check whether a single letter names something, and is no article, pronoun or conjunction."""
    if fold(text) not in _WORD_LETTERS or following is None:
        return True
    gap = plain[start + 1 : following.start()]
    if not gap.isspace() or "\n" in gap or _COPULA.fullmatch(fold(following.group())):
        return True
    begins = _SENTENCE_START.search(plain[max(0, start - _MAX_MARKUP) : start]) is not None
    return text.isupper() and text != "I" and not begins and not following.group()[0].isupper()


def _without_articles(words: list[Word], plain: str) -> list[Word]:
    """Return the words without English articles before other words."""

    def is_article(index: int) -> bool:
        word = words[index]
        if word.text not in _ARTICLES or word.is_letter or index + 1 == len(words):
            return False
        return plain[word.stop : words[index + 1].start].isspace()

    return [word for index, word in enumerate(words) if not is_article(index)]


def _boundary(former: Word, gap: str, word: Word, hyphen: str) -> tuple[str, bool, bool]:
    """Return the text between two words, and whether an answer can end before it and begin after it."""
    kinds = {former.kind, word.kind}
    numbers = kinds == {"number"}
    if not gap:
        return "", *_adjacent(former, word)
    if gap == "'" and kinds <= {"letters", "acronym", "hangul", "number"} and former.kind != "character":
        is_long = len(former.text) > 1 or former.kind == "number" or word.text == "s"
        return "", is_long and word.text != "t", _ELISION.fullmatch(former.text) is not None
    if gap in ("/", ":", "^") and numbers:
        is_part = gap != "/" or max(len(former.text), len(word.text)) <= _MAX_FRACTION_DIGITS
        return gap, not is_part, not is_part
    if gap == "-":
        return hyphen, *_hyphenated(former, word)
    if gap.isspace() and ("character" in kinds or kinds == {"number", "letters"}):  # "5 kg" is "5kg"
        return "", True, True
    return " ", True, True


def _adjacent(former: Word, word: Word) -> tuple[bool, bool]:
    """Return whether an answer can end and begin between words without a character between them."""
    if {former.kind, word.kind} <= {"number", "letters", "acronym", "other"}:
        return False, False
    is_numeral = former.kind == "number" or former.text in _NUMERALS
    is_edge = not (is_numeral and word.text[0] in _NUMERALS) and not (
        former.text in _NUMERALS and word.kind == "number"
    )
    return is_edge, is_edge


def _hyphenated(former: Word, word: Word) -> tuple[bool, bool]:
    """Return whether an answer can end before a hyphen, and begin after it.

    It cannot in compound names, before a hyphen after a single letter ("X-ray"), and in "F-16".
    """
    is_name = former.is_capitalized and word.is_capitalized and len(former.text) > 1 and len(word.text) > 1
    is_single = former.kind == "letters" and len(former.text) == 1
    is_type = former.kind == "letters" and word.kind == "number"
    return not is_name and not is_single, not is_name and not is_type
