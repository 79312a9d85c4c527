"""Rankings of documents: their notation, the parser of generated ones, nDCG and Kendall's tau.

A ranking is a text such as "B > A = C": letters of documents, the most relevant first, "=" between equal
ranks. Documents that it does not name share the last rank.

Sources: Järvelin and Kekäläinen 2002, nDCG, with the relevance as gain, as in trec_eval; McSherry and Najork
2008, its mean over all orders of equal ranks; Kendall 1945, tau-b.
"""

import math
import re
import string
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any
from unicodedata import normalize

CUTOFF = 10
"""Number of ranks that count in nDCG."""

_BETTER, _EQUAL = " > ", " = "

_NAME = r"(?<![^\W_])(?:[A-Z]|\d{1,2})(?![^\W_])"
_GAP = r"[\s\[\]()*]{0,10}"  # limited, so that the time of a scan grows linearly with the text
_CHAIN = re.compile(rf"{_NAME}(?:{_GAP}[>≻=]{_GAP}{_NAME})+")
_LIST = re.compile(rf"{_GAP}{_NAME}(?:{_GAP}[,;]{_GAP}{_NAME}){{0,99}}{_GAP}\.?\s*")
_LINES = re.compile(r"(?m)^[ *\[(]{0,4}(?:\d{1,2}[.)][ *\[(]{0,4})?([A-Z])(?=[.:)\]*]|\s*$)")
_PARTS = re.compile(rf"{_NAME}|=")


def format_ranking(scores: Mapping[str, float]) -> str:
    """Return the ranking of letters by their scores, the largest first."""
    levels = sorted(set(scores.values()), reverse=True)
    return _BETTER.join(
        _EQUAL.join(letter for letter, score in scores.items() if score == level) for level in levels
    )


def ranking_scores(ranking: str, letters: Sequence[str]) -> list[float]:
    """Return a score for each letter, the larger the better its rank."""
    ranks = {name: rank for rank, names in enumerate(ranking.split(_BETTER)) for name in names.split(_EQUAL)}
    return [-float(ranks.get(letter, len(letters))) for letter in letters]


def first_name(answer: str | None) -> str | None:
    """Return the letter on the first rank, the whole text if several share it, another answer as it is."""
    return answer and answer.partition(_BETTER)[0]


def parse_ranking(text: str, *, num_answers: int = 26, verdict: str = "last", **_: Any) -> str | None:
    """Return the ranking of a generated text, None without one.

    Letters, or numbers from 1 as in RankGPT, with or without brackets: "B > A", "[2] > [1]"; else a text that
    is a list of them, "B, A" or "B"; else the letters with which lines begin, "1. B" or "B. Some passage".
    Only the first mention of a document counts. Of several rankings, `verdict` counts: "first", or another
    word for the last one.
    """
    text = normalize("NFKC", text)
    listed = text if _LIST.fullmatch(text) else ", ".join(_LINES.findall(text))
    chains = _CHAIN.findall(text) or [listed]
    ranks: dict[str, float] = {}
    is_equal = False
    for part in _PARTS.findall(chains[0 if verdict == "first" else -1]):
        index = int(part) - 1 if part.isdigit() else string.ascii_uppercase.find(part)
        if part != "=" and 0 <= index < num_answers:
            letter = string.ascii_uppercase[index]
            ranks.setdefault(letter, min(ranks.values(), default=0.0) - (not is_equal))
        is_equal = part == "="
    return format_ranking(ranks) or None


def score_ranking(
    text: str,
    answers: Sequence[str],
    *,
    relevance: Sequence[float] = (),
    num_answers: int = 26,
    **options: Any,
) -> float:
    """Return nDCG of the ranking that a text has, 0 without a ranking.

    Relevance is by letter, by default 1 for the letters of `answers`, 0 for others. Further options are those
    of `parse_ranking`.
    """
    ranking = parse_ranking(text, num_answers=num_answers, **options)
    letters = string.ascii_uppercase[:num_answers]
    gains = relevance or [float(letter in answers) for letter in letters]
    return ndcg(gains, ranking_scores(ranking, letters)) if ranking else 0.0


def ndcg(relevance: Sequence[float], scores: Sequence[float]) -> float:
    """Return the normalized discounted cumulative gain of the first `CUTOFF` ranks, 0 to 1.

    The ideal order is that of the given documents. Negative relevance counts as 0. The larger the score of a
    document, the better its rank; equal scores share their ranks.
    """
    gains = [max(0.0, one) for one in relevance]
    ranked: list[float] = []
    for level in sorted(set(scores), reverse=True):
        equal = [gain for gain, score in zip(gains, scores, strict=True) if score == level]
        ranked += [math.fsum(equal) / len(equal)] * len(equal)
    ideal = _dcg(sorted(gains, reverse=True))
    return min(1.0, _dcg(ranked) / ideal) if ideal else 0.0


def _dcg(gains: Sequence[float]) -> float:
    return math.fsum(gain / math.log2(rank + 2) for rank, gain in enumerate(gains[:CUTOFF]))


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Kendall's tau-b of two lists of scores, -1 to 1; None if one has no two different scores."""
    pairs = list(combinations(range(len(first)), 2))
    signs = [[(one[a] > one[b]) - (one[a] < one[b]) for a, b in pairs] for one in (first, second)]
    counts = [sum(map(abs, one)) for one in signs]
    agreement = sum(a * b for a, b in zip(*signs, strict=True))
    return agreement / math.sqrt(counts[0] * counts[1]) if all(counts) else None
