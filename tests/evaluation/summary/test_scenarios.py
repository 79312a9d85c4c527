"""A judge's scenarios: what the paper's tables say, computed anew from the specification for comparison."""

import random
from collections.abc import Iterator, Sequence

import pytest

from pine_engine.evaluation.records import Record
from pine_engine.evaluation.report.judge_tables import scenario_results, subset_results
from pine_engine.evaluation.report.runs import MeasuredRun
from pine_engine.evaluation.rewardbench import SUBSETS
from pine_engine.evaluation.summary.results import Measure, Scenario
from pine_engine.evaluation.summary.scenarios import BOTH, CHANGED, FIRST, SECOND, SHUFFLED
from pine_engine.evaluation.summary.slots import by_gold_slot
from pine_engine.evaluation.summary.summarize import summarize
from pine_engine.evaluation.summary.verdicts import Kind
from tests.support.records import SWAPS, judged, run_info, sweep

METHODS = ("vanilla", "pine")


def rewardbench(pairs_each: int = 3) -> Iterator[Record]:
    """Pairs of every subset; what a method says of one in one order is drawn, sometimes nothing.

    gold-first is the stored order of the pairs of which the first answer is the better one.
    """
    for subset in SUBSETS:
        for index in range(pairs_each):
            example, better = f"{subset.name}-{index}", index % 2
            drawn = random.Random(example)
            orders = {"gold-first": ("as-is", "swapped")[better], "gold-last": ("swapped", "as-is")[better]}
            orders["shuffled:0"] = drawn.choice(["as-is", "swapped"])
            for method in METHODS:
                said = {order: drawn.choice(["A", "B", "A", None]) for order in ("as-is", "swapped")}
                for name, order in orders.items():
                    record = judged(
                        example,
                        method,
                        order,
                        said[order],
                        better=better,
                        logprobs=(-1.0, -2.0),
                        section=subset.section,
                        subset=subset.name,
                        weight=subset.weight,
                    )
                    yield record.model_copy(update={"order_name": name})


def measure_of(records: Sequence[Record], method: str, kind: Kind = "generated") -> Measure:
    (task,) = summarize(records, resamples=20).tasks
    (measure,) = [one.measure(kind) for one in task.methods if one.method == method]
    assert measure is not None
    return measure


def scenario(measure: Measure, name: str) -> Scenario:
    (found,) = [one for one in measure.scenarios if one.name == name]
    return found


def by_specification(records: Sequence[Record], method: str, name: str) -> dict[str, float]:
    """By subset: a score of 1, 0 or 1/2 for each verdict, or whether the answer that it names changes."""
    of_subset: dict[str, list[float]] = {}
    for example in sorted({record.example for record in records}):
        first, last, shuffled = (
            next(r for r in records if (r.example, r.method, r.order_name) == (example, method, order))
            for order in ("gold-first", "gold-last", "shuffled:0")
        )

        def score(record: Record) -> float:
            return 0.5 if record.parsed is None else float((record.parsed,) == record.answers)

        def named(record: Record) -> int | None:
            return None if record.parsed is None else record.entered["AB".index(record.parsed)]

        assert (first.answers, last.answers) == (("A",), ("B",))
        value = {
            FIRST: score(first),
            SECOND: score(last),
            BOTH: (score(first) + score(last)) / 2,
            SHUFFLED: score(shuffled),
            CHANGED: float(named(first) != named(last)),
        }[name]
        if name != CHANGED or None not in (named(first), named(last)):
            of_subset.setdefault(str(first.subset), []).append(value)
    return {subset: sum(values) / len(values) for subset, values in of_subset.items()}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", [FIRST, SECOND, BOTH, SHUFFLED, CHANGED])
def test_every_scenario_is_that_of_the_specification_by_subset_section_and_total(
    method: str, name: str
) -> None:
    records = [*rewardbench()]
    expected = by_specification(records, method, name)
    found = scenario(measure_of(records, method), name)
    assert {
        part.name: part.value.mean for section in found.sections for part in section.subsets
    } == pytest.approx(expected)
    for sections, total, is_old in (
        (found.sections, found.total, False),
        (found.sections_v0_1_1, found.total_v0_1_1, True),
    ):
        means = {}
        for section in dict.fromkeys(subset.section for subset in SUBSETS):
            weighed = [
                ((one.weight_v0_1_1 if is_old and one.weight_v0_1_1 else one.weight), expected[one.name])
                for one in SUBSETS
                if one.section == section and one.name in expected
            ]
            means[section] = sum(w * v for w, v in weighed) / sum(w for w, _ in weighed)
        assert {one.name: one.value.mean for one in sections} == pytest.approx(means)
        assert total is not None and total.mean == pytest.approx(sum(means.values()) / 4)


def test_pairs_that_were_judged_in_one_order_alone_count_in_no_scenario() -> None:
    """Stored with the better answer at A or at B: those are other pairs, which must not be compared."""
    alone = [judged(f"p-{index}", "vanilla", "as-is", "A", better=index % 2) for index in range(4)]
    assert measure_of(alone, "vanilla").scenarios == ()
    swaps = [
        judged(f"p-{index}", "vanilla", name, "A", better=index % 2) for index in range(4) for name in SWAPS
    ]
    found = {one.name: (one.value.mean, one.value.n) for one in measure_of(swaps, "vanilla").scenarios}
    assert found == {FIRST: (1.0, 4), SECOND: (0.0, 4), BOTH: (0.5, 4), CHANGED: (1.0, 4)}
    assert {record.order_name for record in by_gold_slot(
        {record.order_name: record for record in swaps if record.example == "p-1"}
    ).values()} == {"as-is", "swapped"}, "letters go with the places"  # fmt: skip


def test_other_tasks_have_no_scenarios() -> None:
    assert measure_of([*sweep(3, ["pine"], lambda *_: -1.0, k=2)], "pine").scenarios == ()


def test_the_tables_have_a_row_for_each_scenario_and_a_table_for_each_section() -> None:
    run = MeasuredRun("run", run_info(), summarize([*rewardbench()], resamples=20))
    table = scenario_results("judge_pair", [run])
    assert table is not None
    generated = [row for row in table.rows if row[1] == "generated answer, %"]
    assert [row[2:4] for row in generated] == [
        (label, name) for label in ("Vanilla", "PINE") for name in (FIRST, SECOND, BOTH, SHUFFLED, CHANGED)
    ]
    assert table.columns[4:] == (
        *("Chat", "Chat Hard", "Safety", "Reasoning", "total"),
        *("Safety, weights of v0.1.1", "total, weights of v0.1.1"),
    )
    measure = measure_of([*rewardbench()], "vanilla")
    cells = dict(zip(table.columns, generated[2], strict=True))
    assert cells["Chat"].startswith(f"{100 * scenario(measure, BOTH).sections[0].value.mean:.1f} (")
    assert cells["Chat"].endswith(", n = 15")
    tables = subset_results("judge_pair", [run])
    assert [one.title for one in tables] == [
        f"{name}: its subsets" for name in ("Chat", "Chat Hard", "Safety", "Reasoning")
    ]
    assert tables[3].columns[4:] == tuple(one.name for one in SUBSETS if one.section == "Reasoning")
    assert "math-prm 984, hep-cpp 164" in tables[3].note
    assert {row[1] for one in tables for row in one.rows} == {"generated answer, %", "most likely choice, %"}


def test_pairs_without_sections_have_their_scenarios_in_one_column() -> None:
    records = [record.model_copy(update={"section": None, "subset": None}) for record in rewardbench()]
    run = MeasuredRun("run", run_info(), summarize(records, resamples=20))
    table = scenario_results("judge_pair", [run])
    assert table is not None and table.columns[4:] == ("all pairs",)
    assert subset_results("judge_pair", [run]) == ()
    assert [row[3] for row in table.rows[:5]] == [FIRST, SECOND, BOTH, SHUFFLED, CHANGED]
    (first,) = [one for one in measure_of(records, "vanilla").scenarios if one.name == FIRST]
    assert table.rows[0][4].startswith(f"{100 * first.value.mean:.1f} (") and first.value.n == 69


def test_orders_beyond_the_two_have_a_mean_of_their_own() -> None:
    says = {"as-is": "A", "swapped": "B", "segments-swapped": "B", "labels-swapped": None}
    for names in (["as-is", "swapped"], [*SWAPS]):
        pairs = [judged(f"p-{index}", "vanilla", name, says[name]) for index in range(4) for name in names]
        table = scenario_results(
            "judge_pair", [MeasuredRun("run", run_info(), summarize(pairs, resamples=20))]
        )
        assert table is not None
        more = ["mean over orders"] if len(names) > 2 else []
        assert [row[3] for row in table.rows] == [*more, FIRST, SECOND, BOTH, CHANGED]
        assert [row[4].split(" ")[0] for row in table.rows] == [
            *(["62.5"] if more else []), "100.0", "100.0", "100.0", "0.0"
        ]  # fmt: skip
