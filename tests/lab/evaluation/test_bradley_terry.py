"""Bradley-Terry ratings: closed forms, maximum likelihood, and records of judges."""

import time

import numpy as np
import pytest
from scipy.optimize import minimize

from pine_engine.lab.evaluation.bradley_terry import ratings
from pine_engine.lab.evaluation.estimates import estimate_tasks
from pine_engine.lab.evaluation.report.runs import MeasuredRun
from pine_engine.lab.evaluation.report.task_tables import rating_results
from pine_engine.lab.evaluation.task_estimates import method_rows
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


@pytest.mark.parametrize(("num_systems", "won", "lost"), [(20, 9, 1), (40, 6, 4), (40, 900, 1), (30, 7, 0)])
def test_ladder_has_its_closed_form(num_systems: int, won: int, lost: int) -> None:
    """Each system is compared with the next one alone, so that each difference is that of a single pair."""
    wins = np.zeros((num_systems, num_systems))
    for system in range(num_systems - 1):
        wins[system, system + 1], wins[system + 1, system] = won, lost
    (found,) = ratings(wins[None])
    expected = 400 * np.log10((won + 0.5) / (lost + 0.5))
    assert found[:-1] - found[1:] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("num_systems", "share_compared", "most"), [(5, 1.0, 9), (20, 0.3, 50), (40, 0.15, 4000)]
)
def test_ratings_equal_an_independent_optimum(num_systems: int, share_compared: float, most: int) -> None:
    generator = np.random.default_rng(num_systems)
    strengths = generator.normal(scale=2, size=num_systems)
    played = np.triu(generator.integers(most, size=(num_systems,) * 2), 1)
    played = played * (generator.random(played.shape) < share_compared)
    played[np.arange(num_systems - 1), np.arange(1, num_systems)] += 1  # connects all
    won = generator.binomial(played, 1 / (1 + np.exp(strengths - strengths[:, None])))
    wins = won + (played - won).T
    added = wins + (wins + wins.T > 0) / 2

    def loss(logits: np.ndarray) -> tuple[float, np.ndarray]:
        odds = logits[:, None] - logits
        rates = 1 / (1 + np.exp(-odds))
        gradient = ((added + added.T) * rates).sum(axis=1) - added.sum(axis=1)
        return float((added * np.logaddexp(0, -odds)).sum()), gradient

    options = {"gtol": 1e-9, "maxiter": 100_000}
    optimum = minimize(loss, np.zeros(num_systems), jac=True, method="BFGS", options=options).x
    (found,) = ratings(wins[None].astype(np.float64))
    assert found == pytest.approx(400 / np.log(10) * (optimum - optimum.mean()), abs=0.01)


def test_groups_without_comparison_have_mean_zero() -> None:
    wins = np.zeros((1, 5, 5))
    wins[0, 0, 1], wins[0, 3, 2] = 3, 2
    (found,) = ratings(wins)
    assert found[[0, 2, 4]] == pytest.approx([-found[1], -found[3], 0])
    assert found[0] == pytest.approx(200 * np.log10(3.5 / 0.5))


def test_ratings_of_resamples_take_seconds() -> None:
    generator = np.random.default_rng(0)
    wins = generator.integers(9, size=(200, 40, 40)) * (1 - np.eye(40))
    began = time.process_time()
    ratings(wins)
    assert time.process_time() - began < 10


def notes_of(*winners: str) -> list[str]:
    """Return the notes of the table for pairs of systems, of which the first wins."""
    records = [
        judged(f"p-{number}", "vanilla", "as-is", "A", models=tuple(pair))
        for number, pair in enumerate(winners)
    ]
    tasks = estimate_tasks(records)
    (table,) = rating_results("judge", [MeasuredRun("run", run_info(), tasks)])
    (row,) = method_rows(tasks[0], ["generated"])
    assert all(note in table.note for note in row.rating_notes)
    assert row.json().get("rating_notes", []) == row.rating_notes
    return row.rating_notes


def test_separated_and_unconnected_systems_are_named() -> None:
    assert notes_of("ab", "bc", "ca") == []
    (separated,) = notes_of("ab", "bc", "cb")
    assert separated.startswith("a | b, c: no system has a win")
    groups, first, second = notes_of("ab", "dc")
    assert groups.startswith("a, b | c, d: no verdict compares")
    assert first.startswith("a | b: ") and second.startswith("d | c: ")
    (ladder,) = notes_of(*("abcdefghij"[place : place + 2] for place in range(9)))
    assert ladder.startswith("a | b | c | d | e | f | 4 more: ")


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
