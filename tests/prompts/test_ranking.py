"""Rankings: the parser, and nDCG and Kendall's tau against scikit-learn and scipy."""

import math

import pytest
from hypothesis import given, strategies as st
from scipy.stats import kendalltau
from sklearn.metrics import ndcg_score

from pine_engine.prompts.ranking import format_ranking, kendall_tau, ndcg, parse_ranking, ranking_scores
from pine_engine.prompts.tasks import TASKS

ROUNDING = 1e-12
PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), min_size=2, max_size=14)
"""Relevance and score of documents, with ties."""


@given(PAIRS)
def test_ndcg_and_tau_equal_independent_ones(pairs: list[tuple[int, int]]) -> None:
    relevance, scores = ([float(pair[one]) for pair in pairs] for one in (0, 1))
    expected = ndcg_score([relevance], [scores], k=10) if any(relevance) else 0.0
    assert ndcg(relevance, scores) == pytest.approx(expected, abs=ROUNDING)
    tau, expected = kendall_tau(relevance, scores), kendalltau(relevance, scores).statistic
    assert tau is None if math.isnan(expected) else tau == pytest.approx(expected, abs=ROUNDING)


@given(st.dictionaries(st.sampled_from("ABCDEF"), st.integers(0, 3), min_size=1))
def test_formatted_ranking_is_parsed(scores: dict[str, int]) -> None:
    text = format_ranking(dict(scores))
    assert parse_ranking(text, num_answers=6) == text
    found = ranking_scores(text, list(scores))
    levels = sorted(set(scores.values()), reverse=True)
    assert found == [-float(levels.index(score)) for score in scores.values()]


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("B > A > C", "B > A > C"), ("[2] > [1] > [3]", "B > A > C"), ("2>1", "B > A"),
        ("The ranking is: [B] > [A].", "B > A"), ("**B** > **A** = C", "B > A = C"), ("B", "B"),
        ("B, A", "B > A"), ("1. B\n2. A", "B > A"), ("B. The key.\nA. The map.", "B > A"),
        ("B > B > D > 4 > A > B", "B > A"), ("A > B, or C > A", "C > A"), ("Ｂ ＞ Ａ", "B > A"),
        ("", None), ("A dog > cat", None), ("A dog\nB is", None), ("No passage.", None), ("[7]", None),
    ],
)  # fmt: skip
def test_ranking_is_parsed_from_text(text: str, parsed: str | None) -> None:
    task = TASKS["ranking"].sized(3)
    assert task.parse(text) == parsed
    assert (task.score(text, ["B"]) == 1.0) == (parsed in ("B", "B > A", "B > A > C", "B > A = C"))
    assert TASKS["ranking"].sized(3, "first").parse("A > B, or C > A") == "A > B"


def test_unnamed_documents_share_the_last_rank() -> None:
    task = TASKS["ranking"].sized(4).with_documents(["a", "b", "c", "d"], [0.0, 2.0, 1.0, 0.0])
    expected = ndcg_score([[0, 2, 1, 0]], [[0, 3, 0, 0]])
    assert task.score("B", ["B", "C"]) == pytest.approx(expected, abs=ROUNDING) and expected < 1
    assert task.score("B > C", ["B", "C"]) == 1.0 and task.score("none", ["B", "C"]) == 0.0
