"""Two runs of the same examples: the exact test against scipy, changed answers, the number of examples."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import binom, binomtest

from pine_engine.lab.evaluation.estimates import estimate_tasks
from pine_engine.lab.evaluation.grid import Grid
from pine_engine.lab.evaluation.paired import compare_runs, num_examples_to_see, sign_test
from pine_engine.lab.evaluation.record import Record
from tests.support.commands import Run
from tests.support.records import judged, run_info, write_run


def records(verdicts: str, start: int = 0) -> list[Record]:
    return [judged(f"p-{n + start:02}", "vanilla", "as-is", one) for n, one in enumerate(verdicts)]


def grid_of(found: list[Record]) -> Grid:
    (grid,) = estimate_tasks(found)
    return grid


@given(st.integers(0, 60), st.integers(0, 60))
def test_p_value_is_that_of_scipy(num_better: int, num_worse: int) -> None:
    """McNemar's exact test is the binomial test of the discordant pairs, as in statsmodels."""
    total = num_better + num_worse
    expected = binomtest(num_better, total).pvalue if total else 1.0
    assert sign_test(num_better, num_worse) == pytest.approx(expected, rel=1e-9)


@given(st.lists(st.sampled_from(["AA", "AB", "BA", "BB"]), min_size=1, max_size=40))
def test_comparison_counts_the_discordant_pairs(pairs: list[str]) -> None:
    first, second = (grid_of(records("".join(pair[run] for pair in pairs))) for run in (0, 1))
    (one,) = compare_runs(first, second)
    assert (one.num_better, one.num_worse) == (pairs.count("BA"), pairs.count("AB"))
    assert one.difference and one.difference.mean == pytest.approx(
        (pairs.count("BA") - pairs.count("AB")) / len(pairs)
    )
    assert [answer.example for answer in one.changed] == [
        f"p-{n:02}" for n, pair in enumerate(pairs) if pair in ("AB", "BA")
    ]
    assert all((answer.before, answer.after) in {("A", "B"), ("B", "A")} for answer in one.changed)


def test_several_orders_of_an_example_count_once() -> None:
    """Both orders of each pair become right: two examples, not four outcomes, are better."""
    orders = ("as-is", "swapped")
    wrong = [
        judged(f"p-{n}", "vanilla", order, "BA"[order == "swapped"]) for n in range(2) for order in orders
    ]
    right = [
        judged(f"p-{n}", "vanilla", order, "AB"[order == "swapped"]) for n in range(2) for order in orders
    ]
    (one,) = compare_runs(grid_of(wrong), grid_of(right))
    assert (one.num_better, one.num_worse, one.p_value, len(one.changed)) == (2, 0, 0.5, 4)


def test_other_examples_are_not_compared() -> None:
    assert [*compare_runs(grid_of(records("AB")), grid_of(records("AB", start=2)))] == []
    other_answer = [judged(f"p-{n:02}", "vanilla", "as-is", "A", better=1) for n in range(2)]
    assert [*compare_runs(grid_of(records("AB")), grid_of(other_answer))] == []


def test_report_compares_runs_with_the_first(tmp_path: Path, pine: Run) -> None:
    info = run_info(methods=("vanilla",), order_names=("as-is",))
    later = info.model_copy(update={"started": "2026-02-03T04:05:06+00:00"})
    write_run(tmp_path / "one", info, records("A" * 20))
    write_run(tmp_path / "two", later, records("B" * 8 + "A" * 12))
    report = tmp_path / "report"
    outcome = pine("report", tmp_path / "one", tmp_path / "two", "--output-dir", report, "--json")
    (found,) = outcome.json["comparisons"]
    assert (found["num_better"], found["num_worse"], len(found["changed"])) == (0, 8, 8)
    assert found["p_value"] == pytest.approx(binomtest(8, 8).pvalue)
    assert "lower" in found["sentence"] and found["sentence"] in outcome.stderr
    text = (report / "report.md").read_text(encoding="utf-8")
    assert text.count("| as-is | A | B | 1 to 0 |") == 8


def test_examples_to_see_have_the_power_of_the_test() -> None:
    """The conditional exact test has a power of 75 to 85 % for that number of examples, summed exactly."""
    difference, discordant = 0.05, 0.2
    count = num_examples_to_see(difference, discordant)
    power = 0.0
    for total in range(1, count + 1):
        largest = np.flatnonzero(2 * binom.cdf(np.arange(total), total, 0.5) < 0.05)[-1:]
        if largest.size:
            chance = (discordant + difference) / 2 / discordant
            found = binom.cdf(largest[0], total, chance) + binom.sf(total - largest[0] - 1, total, chance)
            power += binom.pmf(total, count, discordant) * found
    assert 0.75 < power < 0.85
