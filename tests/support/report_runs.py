"""Runs for tests of estimates and reports; `python -m tests.support.report_runs` writes the golden report."""

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from pine_engine.lab.evaluation.estimates import estimate_tasks
from pine_engine.lab.evaluation.grid import Grid
from pine_engine.lab.evaluation.intervals import Estimate
from pine_engine.lab.evaluation.record import Record
from pine_engine.lab.evaluation.report.molecule_tables import read_molecule_report
from pine_engine.lab.evaluation.report.parts import report_parts
from pine_engine.lab.evaluation.report.runs import MeasuredRun
from pine_engine.lab.evaluation.report.tables import Curve, Part, task_label
from pine_engine.lab.evaluation.rewardbench import WEIGHTS
from pine_engine.lab.evaluation.settings import RunInfo
from tests.support.records import SWAPS, judged, run_info, sweep, swept
from viz.lab.report import report_markdown

GOLDEN = Path(__file__).parents[1] / "golden" / "report.md"

QA_METHODS = ("vanilla", "nia", "pine")
QA = run_info(task="retrieval_qa", data="questions.jsonl", methods=QA_METHODS, order_names=("gold-all",))
JUDGE = run_info(order_names=tuple(SWAPS))
LLAMA_3 = "meta-llama/Meta-Llama-3-8B-Instruct"
ON_LLAMA = JUDGE.platform.model_copy(update={"model": LLAMA_3})
LLAMA = JUDGE.model_copy(update={"address": LLAMA_3, "platform": ON_LLAMA})
MATH = run_info(task="math_reasoning", data="math.jsonl", order_names=("as-is", "reversed"))


def task_of(records: Sequence[Record]) -> Grid:
    (task,) = estimate_tasks(records)
    return task


def mean_of(estimate: Estimate | None) -> float:
    """Return the mean of an estimate that was measured; its interval contains the mean."""
    assert estimate is not None
    if estimate.interval is not None:
        assert estimate.interval[0] <= estimate.mean <= estimate.interval[1]
    return estimate.mean


def qa_records() -> Iterator[Record]:
    """Yield twenty questions: vanilla is best at the ends, NIA better, PINE equal in all slots and worse."""

    def logprob(index: int, method: str, slot: int) -> float:
        by_slot = {"vanilla": (0.0, -1.0, -0.5), "nia": (0.5, 0.0, 0.0), "pine": (-0.75, -0.75, -0.75)}
        return -1.0 - index % 5 / 4 + by_slot[method][slot]

    for record in sweep(20, QA_METHODS, logprob):
        is_taken = record.method == "pine" and record.gold_slot != 0
        seconds = 0.0 if is_taken else {"vanilla": 2.0, "nia": 1.5, "pine": 3.0}[record.method]
        times = {"was_computed": not is_taken, "seconds": seconds, "prefill_s": seconds / 2}
        yield record.model_copy(update=times)


def shuffled(records: Sequence[Record], slot: int = 2) -> list[Record]:
    """Return a shuffled record for each record with the gold document in that slot."""
    return [
        one.model_copy(update={"order_name": "shuffled:1", "permutation": (2, 0, 1), "gold_slot": 1})
        for one in records
        if one.gold_slot == slot
    ]


def judge_records() -> Iterator[Record]:
    """Yield twelve pairs of two sections: vanilla says A, PINE the better one except in pairs 0, 3, 6, 8."""
    natural = ("Chat Hard", "llmbar-natural", 100.0)
    safe = [("Safety", "xstest-should-refuse", 154.0), ("Safety", "xstest-should-respond", 250.0)]
    for index, method, name in product(range(12), ("vanilla", "pine"), SWAPS):
        better = index % 2
        right, wrong = ("AB", "BA")[SWAPS[name][0].index(better)]
        verdict = "A" if method == "vanilla" else (wrong if index in (0, 3, 6, 8) else right)
        section, subset, weight = natural if index < 6 else safe[better]
        yield judged(
            f"p-{index:02}", method, name, verdict, better=better, section=section, subset=subset,
            logprobs=(-1.0, -2.0) if right == "A" else (-2.0, -1.0), weight=weight,
            seconds=2.1 if method == "pine" else 1.0,
        )  # fmt: skip


def math_records(methods: Sequence[str]) -> Iterator[Record]:
    """Yield eight problems without gold slot; PINE solves half of them, and no answer of NIA is parsed."""
    for index, method in product(range(8), methods):
        solved = float(index % 4 < (2 if method == "pine" else 1))
        record = swept(f"m-{index}", method, 0, score=solved, text="7")
        for name, order in (("as-is", (0, 1, 2)), ("reversed", (2, 1, 0))):
            changes = {"task": "math_reasoning", "gold_slot": None, "order_name": name, "permutation": order}
            yield record.model_copy(update={**changes, "parsed": None if method == "nia" else "7"})


def rewardbench(pairs_each: int = 3) -> Iterator[Record]:
    """Yield pairs of all subsets with random verdicts, of which some cannot be parsed.

    gold-first is the stored order of the pairs whose first answer is the better one.
    """
    for ((section, subset), weight), index in product(WEIGHTS.items(), range(pairs_each)):
        example, better = f"{subset}-{index}", index % 2
        generator = random.Random(example)
        orders = {"gold-first": ("as-is", "swapped")[better], "gold-last": ("swapped", "as-is")[better]}
        orders["shuffled:0"] = generator.choice(["as-is", "swapped"])
        for method in ("vanilla", "pine"):
            verdicts = {order: generator.choice(["A", "B", "A", None]) for order in ("as-is", "swapped")}
            for name, order in orders.items():
                record = judged(
                    example, method, order, verdicts[order], better=better, logprobs=(-1.0, -2.0),
                    section=section, subset=subset, weight=weight,
                )  # fmt: skip
                yield record.model_copy(update={"order_name": name})


def molecule_json(**changes: object) -> str:
    """Return the output of `molecules --json`: PINE is better in all properties but mu."""

    def errors(mean: float, mu: float, n: int = 90) -> dict[str, Any]:
        names = ("alpha", "homo", "lumo", "gap", "mu", "cv")
        values = {name: mu if name == "mu" else mean for name in names}
        return {name: {"mean": x, "low": x - 0.1, "high": x + 0.1, "n": n} for name, x in values.items()}

    shares = {"written": 100, "valid": 0.9, "unique": 0.5, "novel": None}
    printed = {
        "model": "tiny", "data": "dev.jsonl", "predictor_data": "train.jsonl", "requests": 50, "orders": 2,
        "seed": 0, "dtype": "float32",
        "methods": [
            {"method": "vanilla", **shares, "changed": 0.75, "errors": errors(2.0, 1.0), "more_error": None},
            {"method": "pine", **shares, "changed": 0.0, "errors": errors(1.5, 1.05),
             "more_error": errors(-0.5, 0.05, 80)},
        ],
        "references": {"predictor": errors(0.5, 0.5), "mismatched_baseline": errors(9.0, 9.0)},
        **changes,
    }  # fmt: skip
    return json.dumps(printed)


def some_parsed(num_parsed: int) -> list[Record]:
    """Return twelve pairs with some parsed verdicts, all of them right."""
    return [
        judged(f"p-{index:02}", method, name, "AB"[SWAPS[name][0].index(0)] if index < num_parsed else None)
        for index, method, name in product(range(12), ("vanilla", "pine"), ("as-is", "swapped"))
    ]


def within_chance(num_pairs: int) -> list[Record]:
    return [
        judged(f"p-{index}", method, "as-is", "AB"[(index + (method == "pine")) % 2])
        for index in range(num_pairs)
        for method in ("vanilla", "pine")
    ]


def half_parsed_order() -> list[Record]:
    """Return pairs of which almost no verdict can be parsed after the swap, and none of subset b."""
    return [
        judged(f"p-{index:02}", "vanilla", name, verdict, section="Chat", subset="ab"[index // 6],
               weight=float(index < 6))
        for index in range(12)
        for name, verdict in (("as-is", "A"), ("swapped", None))
    ]  # fmt: skip


def unknown_methods() -> list[Record]:
    """Return two questions under methods that are in no table, one slot without a parsed answer."""
    names = {"nia": "voted:vanilla", "pine": "debated:pine"}
    found = []
    for one in (record for record in qa_records() if record.example in ("q-1", "q-2")):
        unparsed = {"parsed": None} if one.gold_slot == 2 else {}
        found.append(one.model_copy(update={"method": names.get(one.method, one.method), **unparsed}))
    return found


def runs_of(records: dict[str, tuple[RunInfo, Iterable[Record]]]) -> list[MeasuredRun]:
    return [MeasuredRun(label, info, estimate_tasks([*found])) for label, (info, found) in records.items()]


def golden_runs() -> list[MeasuredRun]:
    questions = [*qa_records()]
    pairs = {"pairs": (JUDGE, judge_records()), "Llama": (LLAMA, judge_records())}
    math = (MATH, math_records(QA_METHODS))
    return runs_of({"questions": (QA, [*questions, *shuffled(questions)]), **pairs, "math": math})


def edge_runs() -> list[MeasuredRun]:
    """Return runs with unparsed answers, few examples, no sections, all sections and unknown methods."""
    methods = {"vanilla": "B", "nia": None, "pine": "A"}
    uncompared = [judged(f"p-{n}", name, "as-is", methods[name]) for n in range(12) for name in methods]
    change: dict[str, Any] = {"vanilla": {"parsed": None}}
    unparsed = [one.model_copy(update=change.get(one.method, {})) for one in qa_records()]
    return runs_of(
        {
            **{f"{count} of 12 parsed": (JUDGE, some_parsed(count)) for count in (0, 3, 8, 12)},
            **{f"{count} within chance": (JUDGE, within_chance(count)) for count in (5, 25)},
            "unparsed after the swap": (JUDGE, half_parsed_order()), "NIA unparsed": (JUDGE, uncompared),
            "RewardBench": (LLAMA, rewardbench()), "unknown methods": (QA, unknown_methods()),
            "math": (MATH, math_records(QA_METHODS)),
            "math without NIA": (MATH, math_records(("vanilla", "pine"))),
            "vanilla unparsed": (QA, [*unparsed, *shuffled(unparsed)]),
        }
    )  # fmt: skip


def golden_parts(folder: Path) -> list[Part]:
    file = folder / "molecules.json"
    file.write_text(molecule_json(), encoding="utf-8")
    return report_parts(golden_runs(), molecules=[read_molecule_report(file)])


def edge_parts() -> list[Part]:
    tasks = ("judge", "retrieval_qa", "math_reasoning")
    headings = ("Key findings", *map(task_label, tasks))
    return [part for part in report_parts(edge_runs()) if part.heading in headings]


def markdown_of(parts: Sequence[Part]) -> str:
    return report_markdown(parts, title="A report", made="now", page="report.html", images={})


def golden_text(parts: Sequence[Part]) -> str:
    """Return the Markdown report, the number of columns that name a row by table, the numbers of curves."""
    heads = [f"- {part.heading}, {table.title}: {table.heads}" for part in parts for table in part.tables]
    curves = [line for part in parts for curve in part.curves for line in _curve_lines(curve)]
    return "\n".join([markdown_of(parts), "## Heads", "", *heads, "", "## Curves", "", *curves, ""])


def _curve_lines(curve: Curve) -> Iterator[str]:
    yield f"{curve.name}: {curve.x_title} {', '.join(curve.places)}; {curve.y_title}; {curve.note}"
    for line in (*curve.lines, *curve.levels):
        ends = [one and (round(one.mean, 6), one.interval is not None) for one in line.values]
        yield f"- {line.label}, marker {line.mark}: {ends}"
    for label, low, high in curve.areas:
        edges = [[value and round(value, 6) for value in edge] for edge in (low, high)]
        yield f"- {label}: {edges[0]} to {edges[1]}"


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        GOLDEN.write_text(golden_text(golden_parts(Path(scratch)) + edge_parts()), encoding="utf-8")
