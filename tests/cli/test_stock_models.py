"""Subcommands on a model that runs as it is: default methods, misfits, and resumed evaluations."""

from pathlib import Path

import pytest

from tests.support.commands import COMPARISON, Run, load_once, write
from tests.support.measured_rows import QUESTION
from tests.support.molecule_rows import write_rows

DEFAULTS = ["vanilla", "reorder_content"]


@pytest.fixture
def folder(tmp_path: Path, hybrid: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    load_once(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PINE_MODEL", str(hybrid))
    write(tmp_path / "request.json", COMPARISON)
    write(tmp_path / "labeled.json", {**COMPARISON, "labels": ["A", "B"]})
    row = QUESTION.model_dump(mode="json")
    write_rows(tmp_path / "data.jsonl", [{**row, "documents": row["documents"][:3], "gold_index": 0}])
    return tmp_path


def test_default_methods_are_those_that_fit(pine: Run, folder: Path) -> None:
    compared = pine("compare", "request.json", "--max-new-tokens", 2, "--json").json["results"]
    assert [one["method"] for one in compared] == DEFAULTS
    line = "verify data.jsonl --max-new-tokens 2 --num-orders 2 --json"
    verified = pine(*line.split()).json["summary"]
    assert {name: one["invariance_held"] for name, one in verified.items()} == {
        "vanilla": None,
        "reorder_content": True,
    }
    assert not verified["vanilla"]["bitwise_identical"]


@pytest.mark.parametrize(
    "line",
    [
        "compare request.json --methods vanilla,pine",
        "verify data.jsonl --methods nia",
        "debias labeled.json --wrapper permutation_full --base pine",
        "evaluate data.jsonl --output-dir run --methods permutation_cyclic:pine",
    ],
)
def test_misfit_is_refused_with_the_reason(pine: Run, folder: Path, line: str) -> None:
    outcome = pine(*line.split())
    assert (outcome.status, outcome.stdout) == (2, "")
    assert "recurrent, state-space or convolution" in outcome.stderr.splitlines()[-1]
    assert outcome.stderr.count("pine_engine: ") == 1


def test_evaluation_resumes_with_the_methods_of_its_model(pine: Run, folder: Path) -> None:
    line = "evaluate data.jsonl --output-dir run --orders as-is,reversed --max-new-tokens 2 --json"
    first, again = pine(*line.split()).json, pine(*line.split()).json
    assert first["run"]["methods"] == again["run"]["methods"] == DEFAULTS
    assert (first["records"], first["errors"], first["missing"]) == (4, 0, 0)
    assert (again["records"], again["wall_s"]) == (4, 0)


def test_wrappers_run_around_methods_that_fit(pine: Run, folder: Path) -> None:
    wrapped = "permutation_cyclic,permutation_full:nbce,calibration_every,routing:reorder_content"
    line = f"evaluate data.jsonl --output-dir run --methods {wrapped} --max-new-tokens 2 --json"
    assert pine(*line.split()).json["errors"] == 0
    line = "debias labeled.json --wrapper pride --base ensemble --json"
    outcome = pine(*line.replace("labeled.json", "labeled.json labeled.json").split())
    assert [sum(result["scores"].values()) for result in outcome.json["results"]] == pytest.approx([1, 1])
