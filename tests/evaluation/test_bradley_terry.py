"""Bradley-Terry ratings: closed forms, maximum likelihood, and records of judges."""

import numpy as np
import pytest

from pine_engine.evaluation.bradley_terry import ratings
from pine_engine.evaluation.estimates import estimate_tasks
from pine_engine.evaluation.report.runs import MeasuredRun
from pine_engine.evaluation.report.task_tables import rating_results
from pine_engine.evaluation.task_estimates import method_rows
from tests.support.records import judged, run_info


def test_rating_of_two_systems_is_the_logarithm_of_their_wins() -> None:
    (found,) = ratings(np.array([[[0.0, 8.5], [2.5, 0.0]]]))  # 9 to 3 with the additional tie
    assert found[0] - found[1] == pytest.approx(400 * np.log10(3)) and found.sum() == pytest.approx(0)
    (always,) = ratings(np.array([[[0.0, 9.5], [0.0, 0.0]]]))
    assert always[0] - always[1] == pytest.approx(400 * np.log10(20))


def test_ratings_have_the_largest_likelihood() -> None:
    wins = np.random.default_rng(0).integers(0, 9, size=(4, 4)).astype(float) * (1 - np.eye(4))
    (found,) = ratings(wins[None])
    added = wins + (wins + wins.T > 0) / 2

    def likelihood(points: np.ndarray) -> float:
        strengths = 10 ** (points / 400)
        return float((added * np.log(strengths[:, None] / (strengths[:, None] + strengths))).sum())

    for moved in np.eye(4):
        assert likelihood(found) > max(likelihood(found + moved), likelihood(found - moved))


def test_judge_that_prefers_one_system_rates_it_higher() -> None:
    """The better stored answer is of a and wins; a judge that says A in both orders gives equal ratings."""
    records = [
        judged(f"p-{number}", method, name, verdict, models=("a", "b"))
        for number in range(12)
        for name, best in (("as-is", "A"), ("swapped", "B"))
        for method, verdict in (("vanilla", "A"), ("pine", best))
    ]
    tasks = estimate_tasks(records)
    found = {row.method: row.ratings_json() for row in method_rows(tasks[0], ["generated"])}
    assert [one["model"] for one in found["pine"]] == ["a", "b"]
    assert found["pine"][0]["value"]["mean"] == pytest.approx(200 * np.log10(25))
    assert {one["value"]["mean"] for one in found["vanilla"]} == {0.0}
    (table,) = rating_results("judge", [MeasuredRun("run", run_info(), tasks)])
    assert [row[2] for row in table.rows] == ["a", "b"] * 2
    assert table.rows[2][-1].startswith("+280 (")
    nameless = estimate_tasks([record.model_copy(update={"models": ()}) for record in records])
    assert list(rating_results("judge", [MeasuredRun("run", run_info(), nameless)])) == []
