"""Position bias of judges: hand-made judges, and Cramér's V of a table of counts."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest

from pine_engine.lab.evaluation.estimates import estimate_tasks
from pine_engine.lab.evaluation.record import Record
from pine_engine.lab.evaluation.report.key_findings import key_findings
from pine_engine.lab.evaluation.report.runs import MeasuredRun
from pine_engine.lab.evaluation.report.task_tables import bias_results
from pine_engine.lab.evaluation.task_estimates import method_rows
from pine_engine.prompts.orders import Order
from pine_engine.prompts.tasks import document_letter
from tests.support.records import run_info

Judge = Callable[[Order, int], int | None]
"""Slot that is named for the documents in the slots and the number of the example, None for a tie."""


def always_first(slots: Order, number: int) -> int:
    return 0


def best(slots: Order, number: int) -> int:
    return slots.index(1)


def sometimes_tied(slots: Order, number: int) -> int | None:
    return None if number % 2 else slots.index(1)


def sometimes_first(slots: Order, number: int) -> int:
    return slots.index(1) if number % 3 else 0


def record(number: int, slots: Order, judge: Judge) -> Record:
    """Return the record of a judge that decides by content and slots; document 1 is the best."""
    named = judge(slots, number)
    verdict = "tie" if named is None else document_letter(named)
    name = "order:" + "-".join(map(str, slots))
    return Record(
        example=f"p-{number}", task="judge", method="vanilla", order_name=name, input_order=slots,
        permutation=tuple(range(len(slots))), gold_slot=slots.index(1), num_documents=len(slots),
        answers=(document_letter(slots.index(1)),), text=f"[[{verdict}]]", parsed=verdict,
        score=1 / len(slots) if named is None else float(slots[named] == 1),
    )  # fmt: skip


def bias(judge: Judge, size: int = 2, count: int = 12, orders: list[Order] | None = None) -> dict[str, Any]:
    slots = orders or list(itertools.permutations(range(size)))
    records = [record(number, order, judge) for number in range(count) for order in slots]
    (grid,) = estimate_tasks(records)
    (row,) = method_rows(grid, ["generated"])
    found = row.bias_json()
    means = {key: value["mean"] for key, value in found.items() if isinstance(value, dict)}
    return means | {"cramers_v": [one["value"]["mean"] for one in found.get("cramers_v", [])]}


@pytest.mark.parametrize(
    ("judge", "size", "first", "consistent", "gap", "v"),
    [
        (always_first, 2, 1, 0, 1, 1),
        (always_first, 3, 1, 0, 1, 1),
        (best, 2, 1 / 2, 1, 0, 0),
        (best, 4, 1 / 4, 1, 0, 0),
        (sometimes_tied, 2, 1 / 2, 1, 0, 0),
        (sometimes_first, 3, 5 / 9, 2 / 3, 1 / 3, 1 / 3),
    ],
)
def test_bias_of_hand_made_judge(
    judge: Judge, size: int, first: float, consistent: float, gap: float, v: float
) -> None:
    found = bias(judge, size)
    expected = {"first_slot": first, "first_slot_excess": first - 1 / size, "consistent": consistent}
    assert {key: found[key] for key in expected} == pytest.approx(expected)
    assert found["order_gap"] == pytest.approx(gap)
    assert found["cramers_v"] == [pytest.approx(v, abs=1e-12)]


def test_cramers_v_is_that_of_counted_slots() -> None:
    slots = list(itertools.permutations(range(3)))
    named = [0 if (number + slots.index(one)) % 4 else 2 for number in range(10) for one in slots]
    counts = [named.count(slot) for slot in range(3)]
    chi_squared = sum((count - 20) ** 2 / 20 for count in counts)  # 60 verdicts, 3 slots
    expected = math.sqrt(chi_squared / (60 * (3 - 1)))

    def judge(one: Order, number: int) -> int:
        return named[number * 6 + slots.index(one)]

    assert bias(judge, 3, 10)["cramers_v"] == [pytest.approx(expected)]


def test_slots_are_counted_only_in_balanced_orders() -> None:
    assert bias(always_first, 2, orders=[(0, 1)]).get("first_slot") is None
    cyclic = bias(always_first, 3, orders=[(0, 1, 2), (1, 2, 0), (2, 0, 1)])
    assert cyclic["first_slot"] == 1 and cyclic["cramers_v"] == [], "V needs all orders"


def test_report_has_one_line_per_judge_and_names_accuracy_beyond_range() -> None:
    records = [record(number, slots, always_first) for number in range(12) for slots in ((0, 1), (1, 0))]
    run = MeasuredRun("run", run_info(), estimate_tasks(records))
    (table,) = bias_results("judge", [run])
    cells = dict(zip(table.columns, table.rows[0], strict=True))
    assert cells["names the first slot, %"].startswith("100 (") and cells["more than chance"].startswith(
        "+50 ("
    )
    assert cells["Cramér’s V, 2 answers"].startswith("1 (0.5")
    assert not method_rows(run.tasks[0], ["generated"])[0].is_bias_detectable
    assert any("2607.20864" in sentence for sentence in key_findings("judge", run))
