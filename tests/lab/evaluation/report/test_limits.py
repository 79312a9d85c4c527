"""Limits: outcome by interval, exit status of `report`, number of examples that decide."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pine_engine import InputError
from pine_engine.lab.evaluation.estimates import estimate_tasks
from pine_engine.lab.evaluation.intervals import share
from pine_engine.lab.evaluation.report.limits import num_examples_to_decide, parse_limits
from tests.support.commands import Run
from tests.support.records import judged, run_info, swept, write_run


def write_judge(folder: Path, num_changed: int) -> None:
    """Write a run of one method that changes its answer for the first of 100 examples only."""
    write_run(
        folder,
        run_info(methods=("vanilla",)),
        [
            judged(f"p-{n:03}", "vanilla", order, "A" if n < num_changed or order == "as-is" else "B")
            for n in range(100)
            for order in ("as-is", "swapped")
        ],
    )


@pytest.mark.parametrize(
    ("limit", "status"),
    [
        ("--fail-above changed=0.05", 1),
        ("--fail-above changed=0.10", 3),
        ("--fail-above changed=0.30", 0),
        ("--fail-above flip_rate:vanilla=0.30", 0),
        ("--fail-above first_slot=0.5", 1),
        ("--fail-above first_slot=0.6", 3),
        ("--fail-below accuracy=0.95", 3),
        ("--fail-below accuracy=0.99", 1),
        ("--fail-below accuracy=0.8", 0),
        ("--fail-above changed=0.3 --fail-below accuracy=0.95", 3),
        ("--fail-above changed=0.05 --fail-below accuracy=0.95", 1),
        ("--fail-above changed:pine=0.9", 3),
    ],
)
def test_limit_is_tested_on_the_interval(limit: str, status: int, tmp_path: Path, pine: Run) -> None:
    """15 of 100 answers change: Wilson's interval is 9.3 to 23.3 %, computed by R's prop.test."""
    write_judge(tmp_path / "run", 15)
    outcome = pine("report", tmp_path / "run", "--output-dir", tmp_path / "report", *limit.split(), "--json")
    assert outcome.status == status
    found = outcome.json["limits"]
    assert found["outcome"] == {0: "passed", 1: "failed", 3: "inconclusive"}[status]
    assert outcome.stderr.splitlines()[-1] == found["line"]


def test_limit_of_a_method_concerns_runs_that_have_it(tmp_path: Path, pine: Run) -> None:
    write_judge(tmp_path / "run", 0)
    verdicts = tmp_path / "verdicts.csv"
    verdicts.write_text("pair,order,verdict\n1,AB,A\n1,BA,A\n", encoding="utf-8")
    report = ("report", tmp_path / "run", verdicts, "--output-dir", tmp_path / "report", "--json")
    assert pine(*report, "--fail-above", "changed:vanilla=0.05").json["limits"]["outcome"] == "passed"
    assert pine(*report, "--fail-above", "changed=0.05").status == 1


@pytest.mark.parametrize("text", ["changed", "changed=5", "=0.1", "changed=much", "changed=nan", "cost=0.1"])
def test_invalid_limit_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_limits([text], [])


@pytest.mark.parametrize(("mean", "limit"), [(0.0, 0.05), (0.02, 0.05), (0.3, 0.25), (0.9, 0.95)])
def test_examples_to_decide_are_the_fewest(mean: float, limit: float) -> None:
    needed = num_examples_to_decide(mean, limit)
    assert needed is not None
    for count, is_decided in ((needed // 50 * 50 + 50, True), (needed // 50 * 50, False)):
        ones = round(mean * count)
        estimate = share(np.array([1.0] * ones + [0.0] * (count - ones)))
        assert estimate and estimate.interval
        low, high = estimate.interval
        assert (limit < low or high < limit) == is_decided


def test_flip_rate_is_share_of_pairs() -> None:
    """Three orders, one different answer: the answer changes, in two of three pairs."""
    texts = ("Paris", "Rome", "Paris")
    (grid,) = estimate_tasks(
        [swept("q", "vanilla", slot, score=1.0, text=text) for slot, text in enumerate(texts)]
    )
    changed, flips = (grid.get("vanilla", "generated", group) for group in ("changed", "flip rate"))
    assert changed and changed.mean == 1.0
    assert flips and flips.mean == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ({"order_name": "again", "text": "Rome"}, 1.0),
        ({"order_name": "again"}, 0.0),
        ({"order_name": "gold-at:0", "is_repeatable": False}, 1.0),
        ({"order_name": "gold-at:0", "is_repeatable": True}, 0.0),
        ({"order_name": "gold-at:0"}, None),
    ],
)
def test_same_order_again_is_the_control(second: dict[str, Any], expected: float | None) -> None:
    """The order `again` counts in no other result."""
    (grid,) = estimate_tasks(
        [
            swept("q", "vanilla", 0, score=1.0, order_name="as-is"),
            swept("q", "vanilla", 0, score=1.0, **second),
            swept("q", "vanilla", 1, score=1.0),
        ]
    )
    again, changed = (grid.get("vanilla", "generated", group) for group in ("again changed", "changed"))
    assert (again and again.mean) == expected
    assert changed and (changed.mean, grid.distinct) == (0.0, [["as-is", "gold-at:1"]])


def test_answers_without_accepted_ones_have_a_limit() -> None:
    records = [
        swept(f"q-{n}", "vanilla", slot, score=1.0).model_copy(update={"score": None, "answers": ()})
        for n in range(90)
        for slot in range(3)
    ]
    (grid,) = estimate_tasks(records)
    changed = grid.get("vanilla", "generated", "changed")
    assert changed and (changed.mean, changed.num_examples) == (0.0, 90)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ("--fail-above changed=0.1 --orders as-is", "changed"),
        ("--fail-above changed:pcw=0.1 --methods vanilla --orders as-is,reversed", "method"),
        ("--fail-above first_slot=0.6 --orders as-is,reversed", "first_slot"),
    ],
)
def test_unmeasured_limit_is_refused_without_model(
    options: str, field: str, tmp_path: Path, pine: Run
) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text('{"question": "Who?", "documents": ["Ann.", "Ben."], "answers": ["Ann"]}\n')
    outcome = pine("evaluate", data, "--output-dir", tmp_path / "run", "--model", "absent", *options.split())
    assert outcome.status == 2 and field in outcome.stderr
