"""The command that compares golden outputs, and files in version 1 of each format, which stay readable."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest

from pine_engine import Request
from pine_engine.lab.evaluation.run_files import read_records, read_run
from pine_engine.prompts.request import read_requests
from tests.support.commands import Run
from tools import golden
from viz.page.session import from_code, from_file

VERSION_1 = Path(__file__).parents[1] / "golden" / "outputs" / "version_1"
OPTIONS = "--model tiny --dtype float32 --methods vanilla,pine --orders as-is,reversed --max-new-tokens 3"
"""Options of the evaluation in the folder of records."""


@pytest.mark.slow
def test_golden_compare_detects_changed_value_and_other_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(golden, "ORDERS", ((1, 0, 2),))
    monkeypatch.setattr(golden, "BATCH_SIZES", (2,))
    cases = ("a/llama", "b/methods")
    assert golden.main(["record", str(tmp_path), *cases]) == 0
    assert golden.main(["compare", str(tmp_path), *cases]) == 0
    assert capsys.readouterr().out == ""

    file = tmp_path / "a.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    content["cases"]["llama"]["bfloat16"]["pine"][0] = "changed"
    file.write_text(json.dumps(content), encoding="utf-8")
    assert golden.main(["compare", str(tmp_path), "a/llama"]) == 1
    assert capsys.readouterr().out.startswith("a/llama/bfloat16/pine/0: ")

    content["platform"]["hardware"] = "another processor"
    file.write_text(json.dumps(content), encoding="utf-8")
    assert golden.main(["compare", str(tmp_path), "a/llama"]) == 2
    assert "another processor" in capsys.readouterr().out


@pytest.fixture
def version_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(VERSION_1, tmp_path / "v1")
    monkeypatch.chdir(tmp_path)
    golden.load_tiny()
    return tmp_path / "v1"


@pytest.mark.slow
def test_interrupted_evaluation_of_version_1_is_resumed(version_1: Path, pine: Run) -> None:
    records = version_1 / "records"
    (file,) = records.glob("*.jsonl")
    before, text = read_records(records), file.read_text(encoding="utf-8")
    kept = text.splitlines(keepends=True)[:-3]
    file.write_text("".join(kept), encoding="utf-8")
    options = OPTIONS.split()
    outcome = pine("evaluate", version_1 / "data.jsonl", "--output-dir", records, *options, "--json")
    assert (outcome.status, outcome.json["records"], outcome.json["missing"]) == (0, len(before), 0)
    assert file.read_text(encoding="utf-8").startswith("".join(kept))
    assert [record.key for record in read_records(records)] == [record.key for record in before]
    assert [record.text for record in read_records(records)] == [record.text for record in before]
    assert read_run(records).started == read_run(VERSION_1 / "records").started
    assert pine("report", records, "--output-dir", version_1 / "report").status == 0


@pytest.mark.slow
def test_certificate_of_version_1_is_reproduced(version_1: Path, pine: Run) -> None:
    outcome = pine("repeat", version_1 / "certificate.json", "--json")
    is_other_platform = bool(outcome.json["platform_differences"])  # the logits depend on the processor
    assert outcome.status == 0 and (outcome.json["bitwise_reproduced"] or is_other_platform)


def test_session_link_and_bundle_of_version_1_load(tmp_path: Path) -> None:
    session = from_file(VERSION_1 / "session.json")
    found = session.question, session.methods, session.tab
    assert found == ("Which is green?", ("vanilla", "pine"), "masks")
    assert [document.title for document in session.documents] == ["Varo", "Senna", "Orm"]
    assert from_code((VERSION_1 / "link.txt").read_text(encoding="utf-8")) == session
    assert from_file(VERSION_1 / "bundle.zip").documents == session.documents
    certified = from_file(VERSION_1 / "certificate.json")
    assert (certified.methods, len(certified.documents)) == (("vanilla", "pine"), 3)
    with zipfile.ZipFile(VERSION_1 / "bundle.zip") as bundle:
        bundle.extractall(tmp_path)
    assert read_requests(tmp_path / "input.json", Request)[0][1].question == session.question
    assert len(json.loads((tmp_path / "answers.json").read_text(encoding="utf-8"))["answers"]) == 2
