"""The report: what its tables and curves say is what the summary says, on a page that needs nothing else."""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import plotly.graph_objects as go
import plotly.io as pio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pine_engine.cli import main as cli
from pine_engine.cli import report as report_command
from pine_engine.cli.report import make_report
from pine_engine.console.exit_status import BAD_INPUT
from pine_engine.errors import InputError
from pine_engine.evaluation.records import Record, RunInfo, Writer
from pine_engine.evaluation.report.findings import findings
from pine_engine.evaluation.report.molecule_tables import TASK, read_molecule_report
from pine_engine.evaluation.report.paper_tables import (
    overhead_beside,
    paper_part,
    same_model,
    same_subsets,
    shuffle_and_mean,
)
from pine_engine.evaluation.report.parts import report_parts
from pine_engine.evaluation.report.published import (
    ANY,
    JudgeScores,
    SectionScores,
    SubsetScores,
    gains,
    published,
    published_model,
)
from pine_engine.evaluation.report.runs import MeasuredRun, read_runs, repeat_command, run_labels
from pine_engine.evaluation.report.tables import (
    Curve,
    CurveLine,
    Part,
    Table,
    estimated,
    signed,
    task_label,
    without_lone_run,
)
from pine_engine.evaluation.rewardbench import SUBSETS
from pine_engine.evaluation.summary.intervals import Estimate, share
from pine_engine.evaluation.summary.results import Measure
from pine_engine.evaluation.summary.scenarios import BOTH, CHANGED, FIRST, SECOND
from pine_engine.evaluation.summary.summarize import summarize
from pine_engine.molecules.request_rows import PROPERTIES
from tests.support.records import SWAPS, judged, run_info, sweep, swept
from tests.support.viz_reading import HOSTILE, Element, read_html
from viz.drawing.styles import figure_styles
from viz.export import report as report_export
from viz.export.report import escape_markdown, report_markdown, report_page, row_spans

QA_METHODS = ("vanilla", "nia", "pine")
STYLES = figure_styles()


def qa_records() -> Iterator[Record]:
    """Twenty questions: vanilla is best at the ends, NIA better still, PINE alike everywhere and worse."""

    def logprob(index: int, method: str, slot: int) -> float:
        by_slot = {"vanilla": (0.0, -1.0, -0.5), "nia": (0.5, 0.0, 0.0), "pine": (-0.75, -0.75, -0.75)}
        return -1.0 - index % 5 / 4 + by_slot[method][slot]

    for record in sweep(20, QA_METHODS, logprob):
        is_taken = record.method == "pine" and record.gold_slot != 0
        seconds = 0.0 if is_taken else {"vanilla": 2.0, "nia": 1.5, "pine": 3.0}[record.method]
        yield record.model_copy(
            update={"computed": not is_taken, "seconds": seconds, "prefill_s": seconds / 2}
        )


def judge_records() -> Iterator[Record]:
    """Twelve pairs of two sections: vanilla always says A, PINE the better one but in pairs 0, 3, 6, 8."""
    for index, method, name in product(range(12), ("vanilla", "pine"), SWAPS):
        better = index % 2
        right = "AB"[SWAPS[name][0].index(better)]
        wrong = "BA"["AB".index(right)]
        yield judged(
            f"p-{index:02}",
            method,
            name,
            "A" if method == "vanilla" else (wrong if index in (0, 3, 6, 8) else right),
            better=better,
            logprobs=(-1.0, -2.0) if right == "A" else (-2.0, -1.0),
            section=("Chat Hard", "Safety")[index // 6],
            subset=("llmbar-natural", ("xstest-should-refuse", "xstest-should-respond")[index % 2])[
                index // 6
            ],
            weight=(100.0, (154.0, 250.0)[index % 2])[index // 6],
            seconds=2.1 if method == "pine" else 1.0,
        )


QA = run_info(task="retrieval_qa", data="questions.jsonl", methods=QA_METHODS, order_names=("gold-all",))
JUDGE = run_info(order_names=tuple(SWAPS))
LLAMA = run_info(
    order_names=tuple(SWAPS),
    address="meta-llama/Meta-Llama-3-8B-Instruct",
    platform=JUDGE.platform.model_copy(update={"model": "meta-llama/Meta-Llama-3-8B-Instruct"}),
)


@pytest.fixture(scope="module")
def runs() -> list[MeasuredRun]:
    infos = [(QA, qa_records()), (JUDGE, judge_records()), (LLAMA, judge_records())]
    labels = run_labels([info for info, _ in infos])
    return [
        MeasuredRun(label, info, summarize([*records], resamples=200))
        for label, (info, records) in zip(labels, infos, strict=True)
    ]


@pytest.fixture(scope="module")
def parts(runs: list[MeasuredRun]) -> list[Part]:
    return report_parts(runs)


@pytest.fixture(scope="module")
def files(parts: list[Part]) -> dict[str, str]:
    return report_files(parts)


def report_files(parts: Sequence[Part]) -> dict[str, str]:
    """The HTML page and the Markdown by file name."""
    heading = {"title": "A report", "made": "2026-01-02T03:04:05+00:00"}
    return {
        "report.html": report_page(parts, **heading),
        "report.md": report_markdown(parts, **heading, page="report.html", images={}),
    }


def markdown_of(part: Part) -> str:
    return report_markdown([part], title="r", made="now", page="report.html", images={})


def figures_of(html: str) -> list[dict[str, Any]]:
    """The plotly figures of a page."""
    places = read_html(html).with_class("pine-still-figure")
    return [json.loads(place.all("script")[0].text) for place in places]


def page_table(root: Element, label: str) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of the table in the region of that name; heads that span rows are in each of them."""
    (region,) = [element for element in root.with_class("pine-scroll")
                 if element.attributes["aria-label"] == label]  # fmt: skip
    (table,) = region.all("table")
    rows: list[list[str]] = []
    going_on: dict[int, tuple[int, str]] = {}
    for row in [row for body in table.all("tbody") for row in body.all("tr")]:
        cells = iter([cell for cell in row.children if cell.tag in ("th", "td")])
        texts: list[str] = []
        while True:
            left, text = going_on.get(len(texts), (0, ""))
            if left:
                going_on[len(texts)] = left - 1, text
                texts.append(text)
                continue
            cell = next(cells, None)
            if cell is None:
                break
            going_on[len(texts)] = int(cell.attributes.get("rowspan", "1")) - 1, cell.text
            texts.append(cell.text)
        rows.append(texts)
    return [column.text for column in table.all("thead")[0].all("th")], rows


def markdown_tables(markdown: str) -> dict[str, tuple[list[str], list[list[str]]]]:
    """Columns and rows of each table under its heading, read as GitHub reads them."""
    found = {}
    for block in re.split(r"^(?=#{2,3} )", markdown, flags=re.MULTILINE):
        lines = [line for line in block.split("\n") if line.startswith("|")]
        if lines:
            rows = [[cell_text(cell) for cell in re.findall(CELL, line[1:])] for line in lines]
            assert len({len(row) for row in rows}) == 1, block
            assert set(rows[1]) == {"---"}
            found[block.split("\n")[0]] = rows[0], rows[2:]
    return found


CELL = r"((?:\\.|[^|\\])*)\|"
"""A cell goes up to the next bar that no backslash stands before."""


def cell_text(cell: str) -> str:
    """First bars lose their backslash, then all else that has one."""
    return re.sub(r"\\(.)", r"\1", cell.replace("\\|", "|")).strip()


def measure_of(run: MeasuredRun, method: str, kind: str) -> Measure:
    (measure,) = [
        measure
        for task in run.summary.tasks
        for one in task.methods
        for measure in one.measures
        if (one.method, measure.kind) == (method, kind)
    ]
    return measure


# numbers


def test_the_main_table_says_what_the_summary_says(runs: list[MeasuredRun], files: dict[str, str]) -> None:
    columns, rows = page_table(read_html(files["report.html"]), "Question over documents: Main results")
    by_name = {(row[0], row[1]): dict(zip(columns, row, strict=True)) for row in rows}
    assert len(by_name) == len(rows) == 6
    for method, label in (("vanilla", "Vanilla"), ("nia", "NIA"), ("pine", "PINE")):
        for kind, by in (
            ("generated", "generated answer, %"),
            ("logprob", "log-probability of the answer, nats"),
        ):
            measure = measure_of(runs[0], method, kind)
            row = by_name[by, label]
            factor, decimals = (1, 2) if kind == "logprob" else (100, 1)
            mean = measure.mean
            assert mean.low is not None and mean.high is not None
            numbers = [f"{factor * value:.{decimals}f}" for value in (mean.mean, mean.low, mean.high)]
            assert row["mean over orders"] == "{} ({} to {})".format(*numbers)
            assert row["n"] == str(mean.n) == "20"
            worst = "all alike" if method == "pine" else measure.worst
            assert row["worst order"].startswith(f"{worst}: ")
    assert (
        by_name["log-probability of the answer, nats", "PINE"]["more than vanilla"]
        == "-0.25 (-0.25 to -0.25)"
    )
    assert by_name["generated answer, %", "Vanilla"]["more than vanilla"] == "–"


def test_markdown_and_page_have_the_same_tables(parts: list[Part], files: dict[str, str]) -> None:
    root, markdown = read_html(files["report.html"]), markdown_tables(files["report.md"])
    tables = [(part, table) for part in parts for table in part.tables]
    assert len(tables) > 12
    for part, table in tables:
        found = page_table(root, f"{part.heading}: {table.title}")
        assert found == ([*table.columns], [[*row] for row in table.rows])
    titles = [f"### {table.title}" for _, table in tables]
    for (_, table), title in zip(tables, titles, strict=True):
        if titles.count(title) == 1:
            assert markdown[title] == ([*table.columns], [[*row] for row in table.rows])


def test_curves_are_drawn_from_the_slots_of_the_summary(runs: list[MeasuredRun], parts: list[Part]) -> None:
    (part,) = [part for part in parts if part.heading == "Question over documents"]
    names = ["retrieval_qa-1-3-generated", "retrieval_qa-1-3-logprob"]
    assert [curve.name for curve in part.curves] == [*names, *(f"{name}-areas" for name in names)]
    curve = part.curves[1]
    assert curve.places == ("1", "2", "3")
    for line, method in zip(curve.lines, QA_METHODS, strict=True):
        slots = measure_of(runs[0], method, "logprob").slots
        assert line.values == tuple(slot.value.mean for slot in slots)
        assert line.intervals == tuple((slot.value.low, slot.value.high) for slot in slots)
    marks = [line.mark for line in curve.lines]
    assert marks == [0, 1, 4], "a method has one marker in all charts: its place in the table of methods"
    percent = part.curves[0].lines[0]
    assert percent.values == tuple(
        100 * slot.value.mean for slot in measure_of(runs[0], "vanilla", "generated").slots
    )


def test_a_shuffle_is_a_level_of_its_own_and_not_drawn_where_it_lies_on_the_line() -> None:
    records = [*qa_records()]
    records += [
        record.model_copy(update={"order_name": "shuffled:1", "order": (2, 0, 1), "gold_slot": 1})
        for record in records
        if record.gold_slot == 2
    ]
    run = MeasuredRun("run", QA, summarize(records, resamples=200))
    parts = report_parts([run])
    (part,) = [part for part in parts if part.heading == "Question over documents"]
    curve = part.curves[1]
    assert [(level.label, level.mark) for level in curve.levels] == [
        ("Vanilla, shuffled", 0),
        ("NIA, shuffled", 1),
    ]
    for level, method in zip(curve.levels, ("vanilla", "nia"), strict=True):
        measure = measure_of(run, method, "logprob")
        (shuffled,) = measure.shuffles
        assert level.value == shuffled.value.mean == measure.slots[2].value.mean
        assert level.interval == (shuffled.value.low, shuffled.value.high)
    assert [len(line.values) for line in curve.lines] == [3, 3, 3], "no slot has more than its own records"
    files = report_files(parts)
    columns, rows = page_table(
        read_html(files["report.html"]), "Question over documents: With the answer in each slot"
    )
    pine = dict(zip(columns, rows[-1], strict=True))
    assert pine["method"] == "PINE" and pine["shuffled"] == pine["slot 1"] == pine["slot 3"]
    drawn = {one["layout"]["meta"]["name"]: one for one in figures_of(files["report.html"])}[curve.name]
    assert {level.label for level in curve.levels} <= {trace["name"] for trace in drawn["data"]}
    assert "A thin line across" in files["report.md"]


def test_an_order_in_which_nothing_is_read_has_no_accuracy_in_any_table() -> None:
    """Half a point for each verdict, or no point for each answer: neither in a cell nor in a sentence."""
    pairs = [
        judged(f"p-{index}", "vanilla", name, "A" if name == "as-is" or index == 11 else None,
               better=index // 11, section="Chat", subset=("a", "b")[index // 6])
        for index in range(12) for name in ("as-is", "swapped")
    ]  # fmt: skip
    pairs = [one.model_copy(update={"parsed": None, "score": 0.5}) if one.example == "p-11" else one
             for one in pairs]  # fmt: skip
    asked = [one.model_copy(update={"parsed": None, "score": 0.0} if one.gold_slot == 2 else {})
             for one in qa_records()]  # fmt: skip
    judge = MeasuredRun("judge", JUDGE, summarize(pairs, resamples=20))
    questions = MeasuredRun("questions", QA, summarize(asked, resamples=20))

    def cells(run: MeasuredRun, title: str) -> list[dict[str, str]]:
        parts = [part for part in report_parts([run]) if part.heading == task_label(run.info.task)]
        (table,) = [table for part in parts for table in part.tables if table.title == title]
        return [dict(zip(table.columns, row, strict=True)) for row in table.rows]

    (order,) = cells(judge, "In each order")
    assert order["swapped"] == "none read" and order["as-is"].startswith("95.8 (")
    (main,) = cells(judge, "Main results")
    assert main["worst order"].startswith("as-is: ") and main["best order"].startswith("as-is: ")
    assert [row["accuracy"] == "none read" for row in cells(judge, "Position bias")] == [False, True]
    scenarios, subsets = (
        {row["scenario"]: row for row in cells(judge, title)}
        for title in ("Scenarios by section", "Chat: its subsets")
    )
    assert scenarios[SECOND]["Chat"] == subsets[SECOND]["b"] == "none read"
    assert scenarios[FIRST]["Chat"].startswith("95.8 (")
    for row in cells(questions, "With the answer in each slot"):
        assert (row["slot 3"] == "none read") == (row["by"] == "generated answer, %")
    said = findings("retrieval_qa", questions)[0]
    assert "; none can be read in gold-at:2" in said and "(gold-at:2)" not in said


@pytest.mark.parametrize("unparsed", ["vanilla", "nia", "pine"])
def test_the_score_of_answers_that_cannot_be_read_is_not_drawn(unparsed: str) -> None:
    """No line, no level and no area; the log-probabilities of the same records say something."""
    records = [
        record.model_copy(update={"parsed": None} if record.method == unparsed else {})
        for record in qa_records()
    ]
    records += [
        record.model_copy(update={"order_name": "shuffled:1", "order": (2, 0, 1), "gold_slot": 1})
        for record in records
        if record.gold_slot == 2
    ]
    (part,) = [part for part in report_parts([MeasuredRun("run", QA, summarize(records, resamples=20))])
               if part.heading == "Question over documents"]  # fmt: skip
    curves = {curve.name.removeprefix("retrieval_qa-1-3-"): curve for curve in part.curves}
    labels = {"vanilla": "Vanilla", "nia": "NIA", "pine": "PINE"}
    left = [label for name, label in labels.items() if name != unparsed]
    generated = curves["generated"]
    assert [line.label for line in generated.lines] == left
    assert not [level for level in generated.levels if level.label.startswith(labels[unparsed])]
    assert f"No answer can be read, and none is drawn, of: {labels[unparsed]}." in generated.note
    assert ("generated-areas" in curves) == (unparsed == "pine")
    assert [line.label for line in curves["logprob"].lines] == [*labels.values()]
    assert "none is drawn" not in curves["logprob"].note and "logprob-areas" in curves


def test_a_curve_of_few_examples_says_that_it_has_no_intervals() -> None:
    few = MeasuredRun("run", QA, summarize([one for one in qa_records() if one.example in ("q-1", "q-2")]))
    (part,) = [part for part in report_parts([few]) if part.heading == "Question over documents"]
    generated, nats, *areas = part.curves
    assert "Too few" not in generated.note and "Too few examples for intervals." in nats.note
    assert not [area for area in areas if "intervals" in area.note]


def test_areas_lie_between_vanilla_and_nia_and_below_it(runs: list[MeasuredRun], parts: list[Part]) -> None:
    (part,) = [part for part in parts if part.heading == "Question over documents"]
    areas = part.curves[3]
    vanilla, nia = (
        tuple(slot.value.mean for slot in measure_of(runs[0], method, "logprob").slots)
        for method in ("vanilla", "nia")
    )
    assert [line.values for line in areas.lines] == [vanilla, nia]
    causal, positions = areas.areas
    assert (causal.start, causal.end) == (nia, vanilla)
    assert (positions.start, positions.end) == ((min(nia),) * 3, nia)
    assert "Vanilla less NIA" in areas.note and "Figure 1" in areas.note
    without = MeasuredRun(
        "run", QA, summarize([one for one in qa_records() if one.method != "nia"], resamples=20)
    )
    (alone,) = [part for part in report_parts([without]) if part.heading == "Question over documents"]
    assert len(alone.curves) == 2, "one of the two alone has no area"


def test_math_has_bars_by_model_and_method() -> None:
    """As the paper's Figure 5. One model was not asked under NIA, and what the other says cannot be read."""

    def solved(model: str, methods: Sequence[str]) -> MeasuredRun:
        records = [
            swept(f"m-{index}", method, 0, score=float(index % 4 < (2 if method == "pine" else 1)), text="7")
            .model_copy(update={"task": "math_reasoning", "gold_slot": None, "order_name": name,
                                "order": order, "parsed": None if method == "nia" else "7"})
            for index in range(8)
            for method in methods
            for name, order in (("as-is", (0, 1, 2)), ("reversed", (2, 1, 0)))
        ]  # fmt: skip
        return MeasuredRun(model, run_info(task="math_reasoning"), summarize(records, resamples=20))

    unparsed = solved("small", ("nia",))
    assert [
        part.curves for part in report_parts([unparsed]) if part.heading == "Conditions of a math problem"
    ] == [()]
    parts = report_parts([solved("small", ("vanilla", "nia", "pine")), solved("large", ("vanilla", "pine"))])
    (part,) = [part for part in parts if part.heading == "Conditions of a math problem"]
    (bars,) = part.curves
    assert bars.has_bars and bars.places == ("small", "large")
    assert {line.label: line.values for line in bars.lines} == {
        "Vanilla": (25, 25), "PINE": (50, 50)
    }  # fmt: skip
    assert bars.note == "No answer can be read, and none is drawn, of: NIA (small)."
    low, high = wilson(4, 8)
    assert bars.lines[1].intervals[0] == pytest.approx((100 * low, 100 * high))
    (figure,) = figures_of(report_page(parts, title="r", made="now"))
    assert {trace["name"]: trace["type"] for trace in figure["data"]} == {"Vanilla": "bar", "PINE": "bar"}


def wilson(right: int, count: int) -> tuple[float, float]:
    found = share(np.array([1.0] * right + [0.0] * (count - right)))
    assert found is not None and found.interval is not None
    return found.interval


def test_methods_that_are_in_no_table_are_reported_by_their_names() -> None:
    """Such as one of a later release: last, in an order of their own, with their numbers and lines."""
    names = {"nia": "voted:vanilla", "pine": "debated:pine"}
    records = [
        record.model_copy(update={"method": names.get(record.method, record.method)})
        for record in qa_records()
    ]
    info = QA.model_copy(update={"methods": ("vanilla", *names.values())})
    run = MeasuredRun("run", info, summarize([*reversed(records)], resamples=20))
    assert [method.method for method in run.summary.tasks[0].methods] == ["vanilla", *sorted(names.values())]
    parts = report_parts([run])
    (part,) = [part for part in parts if part.heading == "Question over documents"]
    assert [line.label for line in part.curves[0].lines] == ["Vanilla", *sorted(names.values())]
    files = report_files(parts)
    columns, rows = page_table(read_html(files["report.html"]), "Question over documents: Main results")
    found = {row[columns.index("method")] for row in rows}
    assert found == {"Vanilla", *names.values()}


def test_swaps_are_reported_apart(files: dict[str, str]) -> None:
    columns, rows = page_table(read_html(files["report.html"]), "Judge two answers: Position bias")
    found = {
        (row["method"], row["order"]): row
        for row in (dict(zip(columns, row, strict=True)) for row in rows)
        if row["by"] == "generated answer, %" and row["run"].startswith("SmolLM2")
    }
    changed = {key: row["other verdict than as stored, %"].split(" ")[0] for key, row in found.items()}
    assert [changed["vanilla".title(), name] for name in SWAPS] == ["–", "0.0", "100.0", "100.0"]
    assert [changed["PINE", name] for name in SWAPS] == ["–", "0.0", "0.0", "0.0"]
    assert [found["Vanilla", name]["says A, %"].split(" ")[0] for name in SWAPS] == ["100.0"] * 4
    assert [found["Vanilla", name]["names the first, %"].split(" ")[0] for name in SWAPS] == [
        "100.0", "0.0", "0.0", "100.0"
    ]  # fmt: skip
    assert {row["n"] for row in found.values()} == {"12"}


def test_sections_are_shown_with_the_weights_of_both_versions(files: dict[str, str]) -> None:
    """PINE has one in three xstest-should-refuse right and all of the other subset.

    Later weights: (154 / 3 + 250) / 404 = 74.6 %. Version 0.1.1: (250 / 3 + 154) / 404 = 58.7 %. Chat Hard:
    four of six.
    """
    columns, rows = page_table(read_html(files["report.html"]), "Judge two answers: Scenarios by section")
    assert columns[4:] == [
        "Chat Hard", "Safety", "total", "Safety, weights of v0.1.1", "total, weights of v0.1.1"
    ]  # fmt: skip
    found = [dict(zip(columns, row, strict=True)) for row in rows]
    (row,) = [
        row
        for row in found
        if (row["run"], row["by"], row["method"], row["scenario"])
        == ("SmolLM2-135M-Instruct, pairs", "generated answer, %", "PINE", BOTH)
    ]
    means = [row[column].split(" ")[0] for column in columns[4:]]
    assert means == ["66.7", "74.6", "70.6", "58.7", "62.7"]
    assert row["Chat Hard"].endswith("n = 6")


def test_overhead_is_of_what_was_computed(runs: list[MeasuredRun], files: dict[str, str]) -> None:
    columns, rows = page_table(read_html(files["report.html"]), "Overhead: Question over documents")
    pine = dict(zip(columns, rows[2], strict=True))
    assert (pine["method"], pine["computed"], pine["n"]) == ("PINE", "20", "20")
    assert pine["all, times vanilla"] == "1.5x (1.5 to 1.5)"
    assert pine["seconds"] == "3 s (3 to 3)"
    beside = overhead_beside(runs)
    assert beside is not None
    assert ("the paper, its models", "Judge two answers", "2", "about 2x", "–") in beside.rows
    assert ("the paper, its models", "Question over documents", "20", "about 8x", "–") in beside.rows
    assert overhead_beside([]) is None


def test_where_pine_loses_is_said(runs: list[MeasuredRun]) -> None:
    said = findings("retrieval_qa", runs[0])
    (nats,) = [sentence for sentence in said if "nats" in sentence]
    assert "n = 20" in nats
    assert "PINE less Vanilla: -0.25 (-0.25 to -0.25), beyond chance." in nats
    assert (
        "PINE loses to Vanilla (-0.25 (-0.25 to -0.25), beyond chance); NIA (-0.92 (-0.92 to -0.92)" in nats
    )
    assert "Vanilla has -2.00 " in nats and "from -2.50 (gold-at:1) to -1.50 (gold-at:0)" in nats
    verdicts = findings("judge_pair", runs[1])[0]
    assert "its answer changes in 0.0 % when places alone are swapped, 100.0 % when letters alone" in verdicts
    assert "No other method here has a higher mean than PINE." in verdicts


def test_a_method_that_is_not_compared_is_not_said_to_be_no_better() -> None:
    """NIA's verdicts cannot be read: whether it has a higher mean than PINE is not known."""
    says = {"vanilla": "B", "nia": None, "pine": "A"}
    records = [
        judged(f"p-{index}", method, "as-is", verdict)
        for index in range(12)
        for method, verdict in says.items()
    ]
    (said,) = findings("judge_pair", MeasuredRun("run", JUDGE, summarize(records, resamples=20)))
    assert said.endswith("No other method here whose answers can mostly be read has a higher mean than PINE.")
    legible = [record for record in records if record.method != "nia"]
    (said,) = findings("judge_pair", MeasuredRun("run", JUDGE, summarize(legible, resamples=20)))
    assert said.endswith("No other method here has a higher mean than PINE.")


def test_a_difference_that_may_be_chance_is_said_to_be_within_it() -> None:
    def said_of(count: int) -> str:
        """Vanilla is right in the even pairs, PINE in the odd ones, of which there is one less."""
        records = [
            judged(f"p-{index}", method, "as-is", "AB"[(index + (method == "pine")) % 2], better=0)
            for index in range(count)
            for method in ("vanilla", "pine")
        ]
        (said,) = findings("judge_pair", MeasuredRun("run", JUDGE, summarize(records, resamples=200)))
        return said

    said = said_of(25)
    assert re.search(r"PINE less Vanilla: -4\.0 \(.*\), within chance\.", said)
    assert re.search(r"PINE loses to Vanilla \(-4\.0 \(.*\), within chance\)\.", said)
    assert re.search(r"PINE less Vanilla: -20\.0 of 5 examples, too few to tell\.", said_of(5))


@pytest.mark.parametrize("read", [0, 3, 8, 12])
def test_what_cannot_be_read_is_said_before_anything_else(read: int) -> None:
    """Of twelve pairs so many verdicts can be read, all of them right: 50 % and no change say nothing."""
    records = [
        judged(f"p-{index:02}", method, name, "AB"[SWAPS[name][0].index(0)] if index < read else None)
        for index, method, name in product(range(12), ("vanilla", "pine"), ("as-is", "swapped"))
    ]
    run = MeasuredRun("run", JUDGE, summarize(records, resamples=200))
    (said,) = findings("judge_pair", run)
    root = read_html(report_page(report_parts([run]), title="r", made="now"))
    columns, rows = page_table(root, "Judge two answers: Main results")
    vanilla, pine = (dict(zip(columns, row, strict=True)) for row in rows)
    if read == 0:
        assert said.endswith(
            "None of Vanilla’s answers can be read, so nothing is known of its accuracy (each counts half a "
            "point). None of PINE’s answers can be read, so nothing is known of its accuracy (each counts "
            "half a point)."
        )
        assert vanilla["mean over orders"] == vanilla["worst order"] == "none read"
        assert vanilla["answer changes, %"] == pine["more than vanilla"] == "–"
    elif read == 3:
        assert (
            "75.0 (46.8 to 91.1) % of Vanilla’s answers cannot be read and count half a point, too many to "
            "speak of its accuracy; of the others 100.0 (43.9 to 100.0) % are right."
        ) in said
        assert not re.search("less Vanilla|higher mean|as the mean over orders", said)
    elif read == 8:
        assert said.split(": ", 1)[1].startswith(
            "33.3 (13.8 to 60.9) % of Vanilla’s answers cannot be read and count half a point. Vanilla has "
        )
        assert "PINE less Vanilla: 0.0 (" in said
    else:
        assert "cannot be read" not in said and "cannot be read, %" not in columns
    if read < 12:
        assert vanilla["cannot be read, %"].startswith(f"{100 * (12 - read) / 12:.1f} (")
    assert "50.0" not in said


def test_the_page_says_what_was_measured_and_how_to_do_it_again(
    runs: list[MeasuredRun], files: dict[str, str]
) -> None:
    root = read_html(files["report.html"])
    columns, rows = page_table(root, "What was measured: Runs")
    facts = {row[0]: dict(zip(columns, row, strict=True)) for row in rows}
    run = "SmolLM2-135M-Instruct, questions"
    assert facts["revision"][run] == "abc123" and facts["dtype"][run] == "float32"
    assert facts["SHA-256 of the data"][run] == "0123456789abcdef" * 4
    assert (
        facts["rows"][run] == "the first"
        and facts["examples"][run] == "20"
        and facts["longest answer"][run] == "64 tokens"
    )
    commands = [code.text for code in root.all("code")]
    assert (
        commands[0]
        == repeat_command(runs[0])
        == " ".join(
            [
                "python -m pine_engine evaluate questions.jsonl --task retrieval_qa --limit 20",
                "--methods vanilla,nia,pine --orders gold-all --metrics generate,logprob --model embedded",
                "--dtype float32 --device cpu --output-dir FOLDER",
            ]
        )
    )
    assert commands[0] in files["report.md"]
    sampled = replace(runs[0], info=runs[0].info.model_copy(update={"sample": 3}))
    assert "--task retrieval_qa --sample-seed 3 --limit 20" in repeat_command(sampled)
    text = " ".join(root.text.split())
    assert "Every method is reported as the mean over orders, with each order beside it." in text
    assert (
        "Wilson’s score interval, also where all examples are alike" in text
        and "none of 7 is 0.0 (0.0 to 35.4)" in text
    )
    assert "bootstrap interval over examples (BCa, 200 resamples, seed 0), and none for fewer than 10" in text
    assert "percentile" not in text.lower()
    assert "lies below both fixed orders for 4 of 9 models" in text
    assert "Meta-Llama-3-8B-Instruct +8.1 on the shuffle, +0.25 on the mean" in text


def molecule_report(folder: Path, **changes: object) -> Path:
    """What the verb molecules prints: PINE is better in all properties but mu."""

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
    path = folder / "molecules.json"
    path.write_text(json.dumps(printed), encoding="utf-8")
    return path


def test_molecules_stand_in_the_form_of_the_paper(runs: list[MeasuredRun], tmp_path: Path) -> None:
    reports = [read_molecule_report(molecule_report(tmp_path))]
    (part,) = [part for part in report_parts(runs, molecules=reports) if part.heading == task_label(TASK)]
    (table,) = part.tables
    rows = {row[1]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert list(rows) == [
        *("Vanilla", "PINE", "PINE less Vanilla", "the predictor's own", "molecules of other requests")
    ]
    assert table.columns[-6:] == tuple(f"{name}, {unit}" for name, unit in PROPERTIES.items())
    assert rows["PINE"]["alpha, Bohr³"] == "1.5 (1.4 to 1.6), n = 90"
    assert rows["PINE"]["valid, %"] == "90.0" and rows["PINE"]["novel, %"] == "–"
    assert rows["PINE less Vanilla"]["mu, Debye"] == "+0.05 (-0.05 to +0.15), n = 80"
    assert rows["the predictor's own"]["gap, eV"] == "0.5 (0.4 to 0.6), n = 90"
    (said,) = part.sentences
    assert "PINE's error is larger than Vanilla's in mu (+0.05 (-0.05 to +0.15), within chance);" in said
    assert "the same in alpha (-0.5 (-0.6 to -0.4), beyond chance), homo" in said
    assert "changes with the order for 0.0 % of the requests, Vanilla's for 75.0 %" in said


def test_a_report_of_molecules_alone_has_no_runs(tmp_path: Path) -> None:
    reports = [read_molecule_report(molecule_report(tmp_path))]
    headings = [part.heading for part in report_parts([], molecules=reports)]
    assert headings == [task_label(TASK), "The paper's own numbers (other models)"]
    with pytest.raises(InputError, match="molecules.json: methods: got the text 'none', expected a list"):
        read_molecule_report(molecule_report(tmp_path, methods="none"))
    with pytest.raises(InputError, match="nothing to report; give folders"):
        make_report(tmp_path)


# the paper's numbers


ROUNDED = 0.0751
"""A mean of four and the mean of the four, each rounded to a tenth. They lie 0.1 apart only if all were
rounded by half a tenth, the four the other way; all that is published lies nearer."""


@pytest.mark.parametrize(
    "row", published().judge_scores, ids=lambda row: f"{row.model} {row.method} {row.setting}"
)
def test_the_published_average_is_that_of_the_published_sections(row: JudgeScores) -> None:
    assert row.average == pytest.approx(fmean(row.sections), abs=ROUNDED)


@pytest.mark.parametrize(
    "row", published().subset_scores, ids=lambda row: f"{row.model} {row.method} {row.setting}"
)
def test_published_subsets_make_the_published_sections(row: SubsetScores) -> None:
    """Tables 7 to 15 against Table 5, by the weights of v0.1.1; both are rounded to a tenth."""
    (whole,) = [
        one
        for one in published().judge_scores
        if (one.model, one.method, one.setting) == (row.model, row.method, row.setting)
    ]
    for section, printed in whole.by_section.items():
        parts = [subset for subset in SUBSETS if subset.section == section]
        weights = [part.weight_v0_1_1 or part.weight for part in parts]
        mean = sum(w * row.by_subset[part.name] for w, part in zip(weights, parts, strict=True)) / sum(
            weights
        )
        assert printed == pytest.approx(mean, abs=0.1001)


def test_all_models_of_the_paper_have_subsets_but_for_one_column() -> None:
    known = [(row.model, row.method, row.setting) for row in published().subset_scores]
    missing = {(model, "pine", ANY) for model in published().models} - {*known}
    assert len(known) == 17 and missing == {("Meta-Llama-3-8B-Instruct", "pine", ANY)}


@pytest.mark.parametrize("row", published().changed_verdicts, ids=lambda row: row.model)
def test_published_shares_of_changed_verdicts_agree_with_their_average(row: SectionScores) -> None:
    assert row.average == pytest.approx(fmean(row.sections), abs=ROUNDED)


def test_the_paper_gains_less_on_the_mean_of_both_orders_than_on_its_shuffle() -> None:
    reasoning = {one.model: one for one in gains() if one.part == "Reasoning"}
    small, large = reasoning["Meta-Llama-3-8B-Instruct"], reasoning["Meta-Llama-3-70B-Instruct"]
    assert (round(small.on_shuffle, 1), round(large.on_shuffle, 1)) == (8.1, 8.7)
    assert small.on_mean == pytest.approx(0.25) and large.on_mean == pytest.approx(3.55)
    assert [model for model, one in reasoning.items() if one.is_below_both] == [
        "Meta-Llama-3-8B-Instruct",
        "Meta-Llama-3-70B-Instruct",
        "Qwen1.5-32B-Chat",
        "Qwen1.5-72B-Chat",
    ]
    (row,) = [row for row in shuffle_and_mean().rows if row[:2] == ("Meta-Llama-3-8B-Instruct", "Reasoning")]
    assert row[2:] == ("80.3", "66.0", "73.15", "65.3", "73.4", "+8.1", "+0.25", "yes")


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("meta-llama/Meta-Llama-3-8B-Instruct", "Meta-Llama-3-8B-Instruct"),
        ("/models/llama-3-8b-instruct/", "Meta-Llama-3-8B-Instruct"),
        ("Qwen/Qwen1.5-7B-Chat", "Qwen1.5-7B-Chat"),
        ("Qwen/Qwen1.5-7B", None),
        ("meta-llama/Llama-3.1-8B-Instruct", None),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", None),
    ],
)
def test_a_model_is_the_papers_if_its_name_is(name: str, model: str | None) -> None:
    assert published_model(name) == model


def test_published_numbers_stand_beside_ours_for_the_same_model_alone(runs: list[MeasuredRun]) -> None:
    table = same_model("judge_pair", runs)
    assert table is not None
    whose = {row[0] for row in table.rows}
    assert whose == {f"ours, {runs[2].label}", "the paper, Meta-Llama-3-8B-Instruct"}
    (theirs,) = [row for row in table.rows if row[0].startswith("the paper") and row[1] == "PINE"]
    (changed,) = [row for row in table.rows if row[0].startswith("the paper") and row[2] == CHANGED]
    assert changed[3:] == ("10.3", "21.5", "11.4", "27.6", "17.7", "Table 4")
    assert theirs == (
        *("the paper, Meta-Llama-3-8B-Instruct", "PINE", "any order"),
        *("85.6", "41.5", "66.5", "73.4", "66.7", "Table 5"),
    )
    (ours,) = [row for row in table.rows if row[0].startswith("ours") and row[1:3] == ("PINE", BOTH)]
    measure = measure_of(runs[2], "pine", "generated")
    assert ours[3:] == (
        "–",
        estimated(measure.sections[0].value),
        estimated(measure.sections_v0_1_1[1].value),
        "–",
        estimated(measure.total_v0_1_1),
        "–",
    )
    (scores,) = [table for table in paper_part(runs).tables if table.title == "RewardBench"]
    assert "Meta-Llama-3-8B-Instruct" not in {row[0] for row in scores.rows}
    assert len({row[0] for row in scores.rows}) == 8
    assert same_model("judge_pair", runs[:2]) is None


def test_published_subsets_stand_beside_ours(runs: list[MeasuredRun]) -> None:
    (table,) = same_subsets("judge_pair", runs)
    assert runs[2].label in table.title and "Table 7" in table.note
    rows = {row[1]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert list(rows) == ["llmbar-natural", "xstest-should-refuse", "xstest-should-respond"]
    natural = rows["llmbar-natural"]
    assert natural["section"] == "Chat Hard" and natural["the paper, Vanilla, shuffled"] == "66.0"
    measure = measure_of(runs[2], "pine", "generated")
    (both,) = [one for one in measure.scenarios if one.name == BOTH]
    assert natural[f"ours, PINE, {BOTH}"] == estimated(both.sections[0].subsets[0].value)
    others = (FIRST, SECOND, CHANGED)
    assert not [column for column in table.columns if column.endswith(others)], "the paper has none of them"


# the page


def test_page_contains_everything_it_needs(files: dict[str, str]) -> None:
    root = read_html(files["report.html"])
    assert not [root.all(tag) for tag in ("img", "link", "iframe", "object", "form") if root.all(tag)]
    assert not [script for script in root.all("script") if "src" in script.attributes]
    links = [link.attributes["href"] for link in root.all("a")]
    anchors = {section.attributes["id"] for section in root.all("section")}
    assert links == [f"#part-{number}" for number in range(1, len(anchors) + 1)]
    assert {link.removeprefix("#") for link in links} == anchors
    (style,) = root.all("style")
    assert not re.search(r"url\(|@import|https?:", style.text)
    (policy,) = [meta.attributes["content"] for meta in root.all("meta") if "http-equiv" in meta.attributes]
    assert policy.startswith("default-src 'none'; ") and "http" not in policy


def test_page_has_a_figure_for_each_curve_and_plotly_once(parts: list[Part], files: dict[str, str]) -> None:
    figures = figures_of(files["report.html"])
    curves = [curve for part in parts for curve in part.curves]
    assert [figure["layout"]["meta"]["name"] for figure in figures] == [curve.name for curve in curves]
    assert len(figures) == 4
    for figure, curve in zip(figures, curves, strict=True):
        names = {trace["name"] for trace in figure["data"]}
        assert {line.label for line in curve.lines} | {area.label for area in curve.areas} <= names
        assert figure["layout"]["yaxis"]["title"]["text"] == curve.y_title
        assert figure["config"]["showSendToCloud"] is False
    assert files["report.html"].count("* plotly.js v") == 1


def test_every_table_can_be_scrolled_by_keyboard_and_has_a_name(files: dict[str, str]) -> None:
    root = read_html(files["report.html"])
    regions = root.with_class("pine-scroll")
    assert sum(len(region.all("table")) for region in regions) == len(root.all("table")) > 12
    for region in regions:
        assert region.attributes["tabindex"] == "0" and region.attributes["role"] == "region"
    names = [region.attributes["aria-label"] for region in regions if region.all("table")]
    assert len(set(names)) == len(names)
    for row in [row for table in root.all("table") for body in table.all("tbody") for row in body.all("tr")]:
        assert row.all("th"), "each row is named"


def test_the_page_is_dark_where_the_system_is(files: dict[str, str]) -> None:
    (style,) = read_html(files["report.html"]).all("style")
    dark = re.findall(r"@media \(prefers-color-scheme: dark\) \{\s*body([^{]*)\{([^}]*)\}\s*\}", style.text)
    assert len(dark) == STYLES.count("body.dark") > 0 and "body.dark" not in style.text
    assert "--pine-ink: #e6eaef" in dark[0][1]


def test_markdown_links_figures_without_images_to_the_page(parts: list[Part], files: dict[str, str]) -> None:
    curves = [curve for part in parts for curve in part.curves]
    assert files["report.md"].count("](report.html)") == len(curves) and "![" not in files["report.md"]
    images = {curves[0].name: "one.png"}
    markdown = report_markdown(parts, title="r", made="now", page="report.html", images=images)
    assert markdown.count("](report.html)") == len(curves) - 1 and markdown.count("](one.png)") == 1


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_come_out_as_texts(text: str) -> None:
    table = Table(text, (text, text), ((text, text),), 1, text)
    curve = Curve(text, text, text, text, (text,), (CurveLine(text, 0, (1.0,), ()),), note=text)
    part = Part(text, (text,), (table,), (curve,), (text,))
    html = report_page([part], title=text, made=text)
    root = read_html(html)
    allowed = {"html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "h3", "p", "time", "nav"}
    allowed |= {"ol", "li", "a", "section", "div", "table", "thead", "tbody", "tr", "th", "td", "pre", "code"}
    allowed |= {"figure", "script"}
    pending = [*root.children]
    while pending:
        element = pending.pop()
        assert element.tag in allowed and not [name for name in element.attributes if name.startswith("on")]
        pending += element.children
    assert len(root.all("script")) == 4 and len(figures_of(html)) == 1
    assert [cell.text for cell in root.all("td")] == [text] == [code.text for code in root.all("code")]
    columns, rows = markdown_tables(markdown_of(replace(part, curves=())))[f"### {escape_markdown(text)}"]
    assert columns == [text, text] and rows == [[text, text]]


@given(st.text(alphabet="a |\\`*_<>[]~$&#\n-", max_size=12))
def test_a_cell_of_a_markdown_table_is_its_text(text: str) -> None:
    table = Table("t", ("x", "y"), ((text, "end"),))
    _, rows = markdown_tables(markdown_of(Part("p", tables=(table,))))["### t"]
    assert [re.sub(r"\s+", " ", text).strip(), "end"] == [cell.strip() for cell in rows[0]]


@pytest.mark.parametrize("text", ["# x", "- x", "1. x", "12) x", "+ x", "=== x"])
def test_a_sentence_begins_no_list_and_no_heading(text: str) -> None:
    (line,) = [line for line in markdown_of(Part("p", (text,))).split("\n") if line.endswith("x")]
    assert re.match(r"\d*\\[#+=.)-]", line)


def test_a_command_cannot_end_its_fence() -> None:
    assert "`````sh\necho ```` x\n`````" in markdown_of(Part("p", commands=("echo ```` x",)))


# numbers in words


@pytest.mark.parametrize(
    ("estimate", "kind", "text", "sign"),
    [
        (
            Estimate(mean=0.625, low=0.5, high=0.75, n=8),
            "generated",
            "62.5 (50.0 to 75.0)",
            "+62.5 (+50.0 to +75.0)",
        ),
        (
            Estimate(mean=-0.00001, low=-1, high=0, n=8),
            "logprob",
            "0.00 (-1.00 to 0.00)",
            "0.00 (-1.00 to 0.00)",
        ),
        (Estimate(mean=0, low=0, high=0, n=1), "chosen", "0.0 (0.0 to 0.0)", "0.0 (0.0 to 0.0)"),
        (Estimate(mean=-1.5, low=None, high=None, n=7), "logprob", "-1.50 (too few)", "-1.50 (too few)"),
    ],
)
def test_estimates_are_written_with_their_interval(
    estimate: Estimate, kind: Any, text: str, sign: str
) -> None:
    assert estimated(estimate, kind) == text
    assert signed(estimate, kind) == sign
    assert estimated(None, kind) == "–"


def test_a_column_that_says_the_same_in_each_row_becomes_a_note() -> None:
    table = Table("t", ("run", "method"), (("one run", "a"), ("one run", "b")), heads=2, note="A note.")
    assert without_lone_run(table) == Table(
        "t", ("method",), (("a",), ("b",)), heads=1, note="one run. A note."
    )
    two = Table("t", ("run", "method"), (("one run", "a"), ("another", "b")), heads=2)
    assert without_lone_run(two) is two


def test_heads_that_go_on_span_their_rows() -> None:
    rows = (("r", "x", "1"), ("r", "x", "2"), ("r", "y", "3"), ("s", "y", "4"), ("s", "y", "4"))
    table = Table("t", ("a", "b", "c"), rows, heads=3)
    assert row_spans(table) == [[3, 2, 1], [0, 0, 1], [0, 1, 1], [2, 2, 1], [0, 0, 1]]
    html = report_page([Part("p", tables=(table,))], title="r", made="now")
    assert page_table(read_html(html), "p: t")[1] == [list(row) for row in rows]


@pytest.mark.parametrize(
    ("changes", "labels"),
    [
        ([{}], ["SmolLM2-135M-Instruct, pairs"]),
        ([{}, {"data": "other.jsonl"}], ["SmolLM2-135M-Instruct, pairs", "SmolLM2-135M-Instruct, other"]),
        (
            [{}, {"task": "kv_retrieval"}],
            ["SmolLM2-135M-Instruct, pairs, judge_pair", "SmolLM2-135M-Instruct, pairs, kv_retrieval"],
        ),
    ],
)
def test_runs_have_short_names_that_differ(changes: list[dict[str, object]], labels: list[str]) -> None:
    assert run_labels([run_info(**change) for change in changes]) == labels


def test_runs_that_differ_in_nothing_are_numbered() -> None:
    first, second = run_labels([JUDGE, JUDGE])
    assert first.endswith("(1)") and second.endswith("(2)") and first[:-3] == second[:-3]


# the command


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    write_run(folder, QA, [*qa_records()])
    return folder


def write_run(folder: Path, info: RunInfo, records: Sequence[Record]) -> None:
    folder.mkdir()
    (folder / "run.json").write_text(info.model_dump_json(), encoding="utf-8")
    with Writer(folder) as writer:
        for record in records:
            writer.append(record)


CURVES = [f"retrieval-qa-1-3-{kind}" for kind in ("generated", "generated-areas", "logprob", "logprob-areas")]


@pytest.mark.parametrize("kaleido", ["missing", "installed", "without a browser"])
def test_report_command_writes_page_markdown_and_images(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kaleido: str,
) -> None:
    def write_images(figures: Sequence[go.Figure], paths: Sequence[str], **options: object) -> None:
        if kaleido == "without a browser":
            raise RuntimeError("no Chrome")
        for figure, path in zip(figures, paths, strict=True):
            Path(path).write_text(figure.layout.title.text, encoding="utf-8")

    monkeypatch.setattr(pio, "write_images", write_images)
    monkeypatch.setattr(report_export, "find_spec", lambda name: None if kaleido == "missing" else name)
    out = tmp_path / "new" / "report"
    monkeypatch.setattr(
        sys, "argv", ["pine_engine", "report", str(folder), "--output-dir", str(out), "--json"]
    )
    with pytest.raises(SystemExit) as raised:
        cli.main()
    assert not raised.value.code
    printed = capsys.readouterr()
    said = json.loads(printed.out)
    assert sorted(said["files"]) == sorted(map(str, out.iterdir()))
    images = [f"{name}.png" for name in CURVES] if kaleido == "installed" else []
    assert {Path(name).name for name in said["files"]} == {"report.html", "report.md", *images}
    assert (report_command.NO_IMAGES in printed.err) == (kaleido == "without a browser")
    markdown = (out / "report.md").read_text(encoding="utf-8")
    assert all(f"]({name})" in markdown for name in images)
    assert markdown.count("](report.html)") == len(CURVES) - len(images)
    (summary,) = said["runs"].values()
    assert summary["tasks"][0]["examples"] == 20 and summary["resamples"] == 2000
    assert "Question over documents" in markdown
    read_html((out / "report.html").read_text(encoding="utf-8"))


def test_a_folder_without_a_run_and_one_without_records_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no run: it has no run.json"):
        read_runs([tmp_path])
    write_run(tmp_path / "empty", QA, [])
    with pytest.raises(InputError, match="there are no records yet; run `evaluate`"):
        read_runs([tmp_path / "empty"])


def test_a_place_that_cannot_be_written_is_told(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    target = tmp_path / "file" / "report"
    monkeypatch.setattr(sys, "argv", ["pine_engine", "report", str(folder), "--output-dir", str(target)])
    with pytest.raises(SystemExit) as raised:
        cli.main()
    assert raised.value.code == BAD_INPUT
    assert f"{target} cannot be written: " in capsys.readouterr().err
