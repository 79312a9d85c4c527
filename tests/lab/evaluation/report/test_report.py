"""The report: one golden report, findings, curves, published numbers, and the files of the subcommand."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import plotly.graph_objects as go
import plotly.io as pio
import pytest
from hypothesis import given, strategies as st

from pine_engine import InputError
from pine_engine.cli.output import BAD_INPUT
from pine_engine.lab.cli.report import report
from pine_engine.lab.evaluation.estimates import estimate_tasks
from pine_engine.lab.evaluation.report.key_findings import key_findings
from pine_engine.lab.evaluation.report.molecule_tables import read_molecule_report
from pine_engine.lab.evaluation.report.paper_tables import paper_part
from pine_engine.lab.evaluation.report.parts import report_parts
from pine_engine.lab.evaluation.report.published import gains, published, published_model
from pine_engine.lab.evaluation.report.runs import MeasuredRun, read_runs, repeat_command, run_labels
from pine_engine.lab.evaluation.report.tables import HEADS, Part, Table, pivot, quantity, task_label
from pine_engine.prompts.tasks import TASKS
from tests.support.commands import Run
from tests.support.errors import has_field
from tests.support.records import judged, run_info, swept, write_run
from tests.support.report_runs import (
    GOLDEN,
    JUDGE,
    QA,
    edge_parts,
    golden_parts,
    golden_text,
    markdown_of,
    molecule_json,
    qa_records,
)
from tests.support.viz_reading import read_html
from viz.lab import report as report_export
from viz.lab.report import report_page, row_spans


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Part]:
    return golden_parts(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def page(parts: list[Part]) -> str:
    return report_page(parts, title="A report", made="2026-01-02T03:04:05+00:00")


def test_report_equals_the_golden_report(parts: list[Part]) -> None:
    """All texts and numbers. `python -m tests.support.report_runs` writes the file."""
    assert golden_text([*parts, *edge_parts()]) == GOLDEN.read_text(encoding="utf-8")


def test_shares_have_two_digits_and_0_and_100_are_exact() -> None:
    shares = (0, 1e-9, 0.0044, 0.0994, 0.0996, 0.625, 0.996, 1 - 1e-9, 1)
    assert list(map(quantity, shares)) == ["0", "0", "0.44", "9.9", "10", "62", ">99", "100", "100"]
    signed = [quantity(share, is_signed=True) for share in (-1e-9, -0.011, 0.02, 0.996)]
    assert signed == ["0", "-1.1", "+2.0", "+100"]


PAPER_NUMBERS = "The paper's own numbers (other models)"


def test_report_begins_with_findings_and_a_figure(parts: list[Part], page: str) -> None:
    headings = [part.heading for part in parts]
    assert headings[0] == "Key findings"
    assert headings[-4:] == ["Overhead", "How to read it", "What was measured", PAPER_NUMBERS]
    assert len(parts[0].curves) == 1 and not parts[0].tables and parts[0].sentences
    curves = [curve.name for part in parts for curve in part.curves]
    assert len(set(curves)) == len(curves)
    sections = read_html(page).all("section")
    assert len(sections[0].with_class("pine-static-figure")) == 1


@pytest.mark.parametrize("task", TASKS)
def test_paper_numbers_are_those_of_the_task(task: str) -> None:
    """Each table names a task, is one of judges, or one of molecules."""
    shown = [table for part in paper_part([task], []) for table in part.tables]
    remarks = [table for table in shown if table.title == "In words"]
    assert {row[0] for table in remarks for row in table.rows} <= {task_label(task)}
    num_others = {"judge": 3, "molecule_generation": 1}.get(task, 0)
    assert len(shown) - len(remarks) == num_others


def test_run_of_few_documents_has_a_figure() -> None:
    """Two documents have no curve over slots; a run without generated answers has the next metric."""
    for metrics in ({}, {"text": None, "parsed": None, "score": None}):
        records = [
            judged(f"p-{n}", method, "as-is", "A", logprobs=(-1.0, -2.0)).model_copy(update=metrics)
            for n in range(3)
            for method in ("vanilla", "pine")
        ]
        run = MeasuredRun("run", JUDGE, estimate_tasks(records))
        (curve,) = report_parts([run])[0].curves
        assert curve.y_title == ("most likely choice, %" if metrics else "accuracy, %")


def findings_of(scores: Mapping[str, Sequence[float]], logprobs: bool = False) -> list[str]:
    """Return the sentences about runs with these scores, or log-probabilities, per example and method."""
    name = "answer_logprob" if logprobs else "score"
    records = [
        swept(f"q-{number}", method, 0, score=1.0, logprob=-1.0, text="x").model_copy(
            update={"score": None, "answer_logprob": None, "parsed": "x", name: value}
        )
        for method, values in scores.items()
        for number, value in enumerate(values)
    ]
    run = MeasuredRun("run", QA, estimate_tasks(records))
    (text,) = key_findings("retrieval_qa", run)
    return [
        sentence for sentence in text.split(". ") if sentence.startswith("PINE") and " has " not in sentence
    ]


def test_difference_with_zero_is_no_difference() -> None:
    (few,) = findings_of({"vanilla": [-1.0] * 6, "pine": [-1.3] * 6}, logprobs=True)
    assert few.startswith("PINE and Vanilla, no difference found: -0.30 nats, 6 examples")
    (chance,) = findings_of({"vanilla": [1, 0] * 10, "pine": [0, 1] * 9 + [0, 0]})
    start = "PINE and Vanilla, no difference found: -5.0 percentage points (interval -"
    assert chance.startswith(start) and ", 20 examples" in chance
    (undecided,) = findings_of({"vanilla": [1] * 6, "pine": [0] * 6})
    assert undecided.startswith("PINE and Vanilla, undecided: -100 percentage points (interval -100 to -")


def test_difference_without_zero_names_its_direction() -> None:
    scores = {"vanilla": [0] * 20, "nia": [1] * 20, "pcw": [1, 0] * 10, "sp": [0] * 20, "pine": [1, 0] * 10}
    vanilla, nia, equal, above = findings_of(scores)
    assert vanilla.startswith("PINE is higher than Vanilla: +50 percentage points (interval +")
    assert nia.startswith("PINE is lower than NIA: -50 percentage points (interval -")
    assert equal == "PINE, no difference found to: PCW" and above.startswith("PINE, higher than: SP")


def cells_of(table: Table) -> list[str]:
    found = [*table.columns]
    for row, spans in zip(table.rows, row_spans(table), strict=True):
        found += [cell for index, cell in enumerate(row) if index >= table.heads or spans[index]]
    return found


def test_page_has_the_tables_of_the_report(parts: list[Part], page: str) -> None:
    root = read_html(page)
    tables = {f"{part.heading}: {table.title}": table for part in parts for table in part.tables}
    assert len(tables) > 12
    for label, table in tables.items():
        (region,) = [one for one in root.with_class("pine-scroll") if one.attributes["aria-label"] == label]
        rows = [row for row in region.all("tr") if row.children]
        assert all(row.all("th") for row in rows)
        cells = [cell.text for row in rows for cell in row.children if cell.tag in ("th", "td")]
        assert cells == cells_of(table)


def test_published_averages_are_means_of_sections() -> None:
    for row in (*published("judge_scores"), *published("changed_verdicts")):
        # Largest difference between a mean of four and their mean, each rounded to a tenth in print.
        assert row["average"] == pytest.approx(fmean(row["sections"]), abs=0.0751)
    assert {row["hub_id"].rpartition("/")[2] for row in published("models")} == {
        row["model"] for row in published("judge_scores")
    }
    reasoning = {one["model"]: one for one in gains("Reasoning")}
    small, large = reasoning["Meta-Llama-3-8B-Instruct"], reasoning["Meta-Llama-3-70B-Instruct"]
    assert (round(small["on_shuffle"], 1), round(large["on_shuffle"], 1)) == (8.1, 8.7)
    assert small["on_mean"] == pytest.approx(0.25) and large["on_mean"] == pytest.approx(3.55)


@pytest.mark.parametrize(
    ("name", "published_name"),
    [
        ("meta-llama/Meta-Llama-3-8B-Instruct", "Meta-Llama-3-8B-Instruct"),
        ("/models/llama-3-8b-instruct/", "Meta-Llama-3-8B-Instruct"),
        ("Qwen/Qwen1.5-7B", None),
        ("meta-llama/Llama-3.1-8B-Instruct", None),
    ],
)
def test_published_model_is_found_by_its_name(name: str, published_name: str | None) -> None:
    assert published_model(name) == published_name


def test_page_is_complete_in_one_file(parts: list[Part], page: str) -> None:
    root = read_html(page)
    assert not [tag for tag in ("img", "link", "iframe", "object", "form") if root.all(tag)]
    assert not [script for script in root.all("script") if "src" in script.attributes]
    links = [link.attributes["href"] for link in root.all("a")]
    assert links == [f"#{section.attributes['id']}" for section in root.all("section")]
    (policy,) = [meta.attributes["content"] for meta in root.all("meta") if "http-equiv" in meta.attributes]
    assert policy.startswith("default-src 'none'; ") and "http" not in policy
    assert "@import" not in page.split("<script", 1)[0]
    curves = [curve.name for part in parts for curve in part.curves]
    figures = [one.all("script")[0].text for one in read_html(page).with_class("pine-static-figure")]
    assert [json.loads(one)["layout"]["meta"]["name"] for one in figures] == curves
    assert page.count("* plotly.js v") == 1


CELL = r"((?:\\.|[^|\\])*)\|"
"""A cell ends at the next bar without a backslash."""


def markdown_table(table: Table) -> list[list[str]]:
    lines = [line for line in markdown_of([Part("p", tables=(table,))]).split("\n") if line.startswith("|")]
    rows = [[re.sub(r"\\(.)", r"\1", cell.replace("\\|", "|")).strip() for cell in re.findall(CELL, line[1:])]
            for line in lines]  # fmt: skip
    assert len({len(row) for row in rows}) == 1 and set(rows.pop(1)) == {"---"}
    return rows


@given(st.text(alphabet="a |\\`*_<>[]~$&#\n-", max_size=12))
def test_markdown_cell_is_its_text(text: str) -> None:
    _, row = markdown_table(Table("t", ("x", "y"), ((text, "end"),)))
    assert row == [re.sub(r"\s+", " ", text).strip(), "end"]


def test_markdown_paragraph_is_no_list_and_no_heading() -> None:
    for text in ("# x", "- x", "1. x", "12) x", "+ x", "=== x"):
        (line,) = [line for line in markdown_of([Part("p", (text,))]).split("\n") if line.endswith("x")]
        assert re.match(r"\d*\\[#+=.)-]", line)
    assert "`````sh\necho ```` x\n`````" in markdown_of([Part("p", commands=("echo ```` x",))])


def test_heads_span_their_rows() -> None:
    rows = (("r", "x", "1"), ("r", "x", "2"), ("r", "y", "3"), ("s", "y", "4"), ("s", "y", "4"))
    table = Table("t", ("a", "b", "c"), rows, heads=3)
    assert row_spans(table) == [[3, 2, 1], [0, 0, 1], [0, 1, 1], [2, 2, 1], [0, 0, 1]]
    assert cells_of(table) == [*"abc", *"rx1", *"2", *"y3", *"sy4", *"4"]
    assert pivot("main_results", [], HEADS, orders="").rows == ()


def test_labels_of_runs_are_short_and_unique() -> None:
    model = "SmolLM2-135M-Instruct"
    assert run_labels([JUDGE, run_info(data="other.jsonl")]) == [f"{model}, pairs", f"{model}, other"]
    of_tasks = [run_info(task=task) for task in ("judge", "kv_retrieval")]
    assert run_labels(of_tasks) == [f"{model}, pairs, judge", f"{model}, pairs, kv_retrieval"]
    assert [label[-4:] for label in run_labels([JUDGE, JUDGE])] == [" (1)", " (2)"]


def test_repeat_command_has_the_settings_of_the_run() -> None:
    info = QA.model_copy(update={"sample": 3, "recompute": True, "max_new_tokens": 7})
    command = repeat_command(MeasuredRun("run", info, estimate_tasks([*qa_records()])))
    assert "--task retrieval_qa --sample-seed 3 --limit 20 --methods vanilla,nia,pine" in command
    assert "--max-new-tokens 7 --model embedded" in command and " --recompute --output-dir FOLDER" in command


CURVES = [f"retrieval-qa-1-3-{name}" for name in ("generated", "generated-areas", "logprob", "logprob-areas")]


@pytest.mark.parametrize("kaleido", ["missing", "installed", "without a browser"])
def test_report_writes_page_markdown_and_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pine: Run, kaleido: str
) -> None:
    def write_images(figures: Sequence[go.Figure], paths: Sequence[str], **options: object) -> None:
        if kaleido == "without a browser":
            raise RuntimeError("no Chrome")
        for figure, path in zip(figures, paths, strict=True):
            Path(path).write_text(figure.layout.title.text, encoding="utf-8")

    monkeypatch.setattr(pio, "write_images", write_images)
    monkeypatch.setattr(report_export, "find_spec", lambda name: None if kaleido == "missing" else name)
    folder, out = tmp_path / "run", tmp_path / "new" / "report"
    write_run(folder, QA, [*qa_records()])
    printed = pine("report", folder, "--output-dir", out, "--json")
    output = printed.json
    images = [f"{name}.png" for name in CURVES] if kaleido == "installed" else []
    assert sorted(output["files"]) == sorted(map(str, out.iterdir()))
    assert {Path(name).name for name in output["files"]} == {"report.html", "report.md", *images}
    assert ("kaleido could not run" in printed.stderr) == (kaleido == "without a browser")
    markdown = (out / "report.md").read_text(encoding="utf-8")
    assert all(f"]({name})" in markdown for name in images)
    (summary,) = output["runs"].values()
    assert summary["tasks"][0]["examples"] == 20


def test_report_refuses_folders_and_files(tmp_path: Path, pine: Run) -> None:
    write_run(tmp_path / "empty", QA, [])
    for folder in (tmp_path, tmp_path / "empty"):
        with pytest.raises(InputError):
            read_runs([folder])
    with pytest.raises(InputError):
        report(tmp_path)
    file = tmp_path / "molecules.json"
    file.write_text(molecule_json(methods="none"), encoding="utf-8")
    with pytest.raises(InputError, check=has_field("methods")):
        read_molecule_report(file)
    file.write_text(molecule_json(), encoding="utf-8")  # needs no run
    headings = [part.heading for part in report_parts([], molecules=[read_molecule_report(file)])]
    assert headings == ["Key findings", task_label("molecule_generation"), PAPER_NUMBERS]
    write_run(tmp_path / "run", QA, [*qa_records()])
    assert pine("report", tmp_path / "run", "--output-dir", file / "report").status == BAD_INPUT
