"""The subcommand `molecules`, with the shipped model."""

from pathlib import Path

from tests.support.commands import Run
from tests.support.molecule_rows import SMILES, row, write_rows


def test_molecules_reports_metrics_per_method(tmp_path: Path, pine: Run) -> None:
    training = write_rows(tmp_path / "train.jsonl", map(row, SMILES))
    requests = write_rows(tmp_path / "requests.jsonl", map(row, ("CC(C)CO", "CC(C)CN", "CC(C)C#N")))
    command = ["molecules", requests, "--predictor-data", training, "--methods", "vanilla,pine"]
    command += ["--orders", 2]
    report = pine(*command, "--json").json
    assert (report["requests"], report["orders"], report["dtype"]) == (3, 2, "float32")
    assert [(one["method"], one["written"]) for one in report["methods"]] == [("vanilla", 6), ("pine", 6)]
    assert report["methods"][1]["changed"] == 0
    assert set(report["references"]) == {"predictor", "mismatched_baseline"}
    outcome = pine(*command, "--limit", 1)
    assert outcome.status == 0 and {"valid", "predictor"} <= set(outcome.stdout.split())


def test_molecules_refuses_requests_in_training_data(tmp_path: Path, pine: Run) -> None:
    training = write_rows(tmp_path / "train.jsonl", map(row, SMILES))
    outcome = pine("molecules", training, "--predictor-data", training)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert "m-CO" in outcome.stderr
