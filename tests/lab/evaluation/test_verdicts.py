"""Files of verdicts: what they name, Cohen's kappa by exact fractions, and the report without a model."""

import json
import random
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from pine_engine import InputError
from pine_engine.lab.evaluation import bootstrap
from pine_engine.lab.evaluation.verdicts import cohens_kappa, read_verdicts
from tests.support.commands import Run, write


def expected_kappa(pairs: list[tuple[int, int]]) -> Fraction | None:
    """Return kappa from the counts of both raters, in fractions; None if it is not defined."""
    n = len(pairs)
    agreed = Fraction(sum(one == other for one, other in pairs), n)
    ours, theirs = (Counter(pair[rater] for pair in pairs) for rater in (0, 1))
    chance = sum(Fraction(ours[name] * theirs[name], n * n) for name in range(3))
    return None if chance == 1 else (agreed - chance) / (1 - chance)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=40))
def test_kappa_is_that_of_the_definition(pairs: list[tuple[int, int]]) -> None:
    counts = np.zeros(9)
    for one, other in pairs:
        counts[3 * one + other] += 1
    expected, found = expected_kappa(pairs), float(cohens_kappa(counts))
    assert np.isnan(found) if expected is None else found == pytest.approx(float(expected), abs=1e-12)


def test_known_kappa() -> None:
    """The example of Cohen 1960, table 1: kappa = 0.492 for 200 judgments."""
    counts = np.array([88, 14, 18, 10, 40, 10, 2, 6, 12], dtype=np.float64)
    assert float(cohens_kappa(counts)) == pytest.approx(0.492, abs=5e-4)


VALUES = {
    "letters": (("AB", "BA"), {("AB", 0): "A", ("AB", 1): "B", ("BA", 0): "B", ("BA", 1): "A"}),
    "brackets": (
        ("as-is", "swapped"),
        {("as-is", 0): "[[A]]", ("as-is", 1): "[[B]]", ("swapped", 0): "[[B]]", ("swapped", 1): "[[A]]"},
    ),
    "numbers": (("0", "1"), {("0", 0): "1", ("0", 1): "2", ("1", 0): "2", ("1", 1): "1"}),
    "models": (
        ("false", "true"),
        {(order, answer): f"model_{'ab'[answer]}" for order in ("false", "true") for answer in (0, 1)},
    ),
}
"""Names of both orders, and the text that names a stored answer in each."""


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_verdicts_name_stored_answers(kind: str, ending: str, tmp_path: Path) -> None:
    """Of 40 pairs, the judge is right in 30 and names the first slot in 10; every notation says the same."""
    (stored, swapped), texts = VALUES[kind]
    rows = []
    for n in range(40):
        better = n % 2
        for order in (stored, swapped):
            named = better if n < 30 else int(order == swapped)
            label = "AB"[better]
            rows.append({"pair": n, "order": order, "verdict": texts[order, named], "label": label})
    random.Random(0).shuffle(rows)
    text = "\n".join(map(json.dumps, rows))
    if ending == "csv":
        text = "\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)])
    file = read_verdicts(write(tmp_path / f"verdicts.{ending}", text))

    def mean(group: str) -> float:
        estimate = file.grid.get("judge", "generated", group)
        assert estimate and estimate.interval
        return estimate.mean

    assert mean("first slot") == pytest.approx((30 * 0.5 + 10) / 40)
    assert mean("consistent") == pytest.approx(0.75)
    assert mean("mean") == pytest.approx((30 + 10 * 0.5) / 40)
    assert mean("kappa") == pytest.approx(2 * (30 + 10 * 0.5) / 40 - 1)  # both classes are equally frequent


@pytest.mark.parametrize("text", ["tie", "Tie (bothbad)", "[[C]]", "draw"])
def test_ties_of_other_files_are_ties(text: str, tmp_path: Path) -> None:
    rows = "".join(f"{n},{order},{text},tie\n" for n in range(12) for order in ("AB", "BA"))
    file = read_verdicts(write(tmp_path / "v.csv", f"pair,order,verdict,label\n{rows}"))
    agreed = file.grid.get("judge", "generated", "mean")
    assert agreed and agreed.mean == 1.0 and not file.unreadable


@given(st.integers(30, 60), st.integers(0, 1000))
def test_interval_of_a_statistic_is_that_of_the_ratio(count: int, seed: int) -> None:
    """The ratio computes the effect of each example by another formula: a tenth of the width at most."""
    above, below = np.random.default_rng(seed).uniform(0.1, 1, (2, count))
    resamples = bootstrap.draw(count)
    values = np.stack([above, below], axis=1)
    found = bootstrap.statistic(values, lambda sums: sums[..., 0] / sums[..., 1], resamples)
    expected = bootstrap.ratio(above, below, resamples)
    assert found and expected and expected.interval and found.mean == pytest.approx(expected.mean)
    width = expected.interval[1] - expected.interval[0]
    assert found.interval == pytest.approx(expected.interval, abs=width / 10)


def test_report_audits_ties_without_labels(tmp_path: Path, pine: Run) -> None:
    """Two judges: one always names the first answer, one says tie; a pair in one order is left out."""
    rows = [
        {"question_id": str(n), "swapped": swapped, "winner": verdict, "judge": judge}
        for judge, verdict in (("always-first", "A"), ("tied", "tie"))
        for n in range(20)
        for swapped in ((False, True) if n else (False,))
    ]
    data = write(tmp_path / "v.jsonl", "\n".join(map(json.dumps, rows)))
    limit = "--fail-above first_slot:always-first=0.6"
    outcome = pine("report", data, "--output-dir", tmp_path / "report", "--json", *limit.split())
    assert outcome.status == 1
    found = outcome.json["verdicts"]["v.jsonl"]
    assert (found["pairs"], found["left_out"]) == (19, 1)
    first, tied = found["judges"]
    assert (first["first_slot"]["mean"], first["consistent"]["mean"], first["kappa"]) == (1.0, 0.0, None)
    assert (tied["first_slot"], tied["consistent"]["mean"]) == (None, 1.0)
    assert "always-first" in (tmp_path / "report" / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "pair,order,verdict\n",
        "pair,verdict\n1,A\n",
        "pair,order,verdict\n1,AB,A\n1,AB,B\n",
        "pair,order,verdict\n1,sideways,A\n",
        "pair,order,verdict\n1,AB,unclear\n",
        "pair,order,verdict,label\n1,AB,A,A\n1,BA,A,B\n",
        "pair,order,verdict,label\n1,AB,A,good\n",
        "pair,order,verdict\n1,AB\n",
    ],
)
def test_unusable_verdicts_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        read_verdicts(write(tmp_path / "verdicts.csv", text))
