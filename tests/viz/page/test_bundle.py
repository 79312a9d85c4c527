"""Everything of a run as one ZIP: it says what was computed, and its command computes it again."""

import csv
import datetime
import io
import json
import shlex
import zipfile
from pathlib import Path
from typing import Any

import pytest

from pine_engine.engine.engine import Engine
from pine_engine.engine.events import trace_report
from pine_engine.invariance.certificate import read_certificate
from pine_engine.prompts.request import Request, read_requests
from tests.support.running import views_of
from tests.support.runs import THREE, finish, form_of
from tests.support.viz_reading import read_html
from viz.page.answers.run import Run
from viz.page.bundle import bundle
from viz.page.internals.tabs import DRAWING, TABS
from viz.page.selection import first_selection
from viz.page.session import from_file
from viz.page.shuffle_job import prepare_shuffle

DATE = datetime.date(2026, 3, 1)
MOVED = (THREE[2], THREE[0], THREE[1])


@pytest.fixture(scope="module")
def run(engine: Engine) -> Run:
    return finish(engine, MOVED, methods=("vanilla", "pcw", "pine"), max_new_tokens=8)


def packed(run: Run, **changes: Any) -> dict[str, bytes]:
    """The files of the ZIP."""
    options: dict[str, Any] = {"accepted": "Varo\nOrm", "date": DATE} | changes
    with zipfile.ZipFile(io.BytesIO(bundle(run, first_selection(run), **options))) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        assert len(names) == len(set(names))
        assert {file.date_time[0] for file in archive.infolist()} == {1980}, "equal runs give equal bytes"
        return {name: archive.read(name) for name in names}


@pytest.fixture(scope="module")
def files(run: Run) -> dict[str, bytes]:
    return packed(run)


def test_zip_opens_as_the_session_of_its_run(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "run.zip"
    file.write_bytes(bundle(run, first_selection(run), accepted="Varo\nOrm"))
    session = from_file(file)
    assert (session.form, session.accepted) == (run.form, "Varo\nOrm")
    assert session.ran and session.selection["query"] == str(first_selection(run).query)


def test_answers_and_report_are_those_of_the_engine(files: dict[str, bytes], run: Run) -> None:
    record = json.loads(files["answers.json"])
    assert (record["model"], record["dtype"]) == ("tiny", "float32")
    rows = list(csv.DictReader(io.StringIO(files["answers.csv"].decode(), newline="")))
    for entry in record["answers"]:
        answer = run.result.answers[entry["method"]]
        assert entry["text"] == answer.text
        assert tuple(token["id"] for token in entry["tokens"]) == answer.token_ids
        assert tuple(token["logprob"] for token in entry["tokens"]) == answer.logprobs
        own = [row for row in rows if row["method"] == entry["method"]]
        assert [int(row["token id"]) for row in own] == list(answer.token_ids)
        assert [float(row["log-probability (nats)"]) for row in own] == list(answer.logprobs)
    assert [entry["method"] for entry in record["answers"]] == list(run.result.answers)
    assert json.loads(files["report.json"]) == json.loads(
        json.dumps({"model": run.model, "dtype": run.dtype, **trace_report(run.result)})
    )


def test_command_reproduces_the_answers(
    files: dict[str, bytes], engine: Engine, run: Run, tmp_path: Path
) -> None:
    readme = files["README.txt"].decode()
    [command] = [line.strip() for line in readme.splitlines() if "pine_engine compare" in line]
    words = shlex.split(command)
    assert words[:4] == ["python", "-m", "pine_engine", "compare"]
    options = dict(zip(words[5::2], words[6::2], strict=True))
    assert (options["--model"], options["--dtype"]) == ("tiny", "float32")
    (tmp_path / words[4]).write_bytes(files[words[4]])
    again = engine.run(
        read_requests(tmp_path / words[4], Request)[0][1].tokenize(engine),
        methods=options["--methods"].split(","),
        max_new_tokens=int(options["--max-new-tokens"]),
    )
    assert {name: answer.token_ids for name, answer in again.answers.items()} == {
        name: answer.token_ids for name, answer in run.result.answers.items()
    }


def test_charts_have_their_numbers_as_files(files: dict[str, bytes]) -> None:
    page = files["pictures.html"].decode()
    assert 'data-pick="' not in page
    headings = [heading.text for heading in read_html(page).all("h2")]
    assert headings == [
        "Question, documents and answers",
        *(label for name, label in TABS if name in DRAWING),
    ]
    tables = [name for name in files if name.startswith("numbers/") and name.endswith(".json")]
    assert len(tables) >= 8
    for name in tables:
        numbers = json.loads(files[name])
        rows = list(csv.reader(io.StringIO(files[name.replace(".json", ".csv")].decode(), newline="")))
        assert rows[0] == numbers["columns"] and len(rows) == len(numbers["rows"]) + 1


def test_readme_lists_the_files_of_the_zip(files: dict[str, bytes]) -> None:
    readme = files["README.txt"].decode()
    for fact in ("tiny", "float32", "2026-03-01", "Vanilla, PCW, PINE", "3, as C A B"):
        assert fact in readme
    for name in {name.partition("/")[0] for name in files}:
        assert name in readme
    assert "certificate" not in readme and "orders.csv" not in readme and "Omitted" not in readme


def test_shuffle_has_its_orders_and_its_certificate(engine: Engine, tmp_path: Path) -> None:
    form = form_of(THREE[:2], methods=("pine",), max_new_tokens=8)
    *_, last = views_of(prepare_shuffle, engine, form, count=2, seed=0, controls=False)
    assert last.run is not None
    files = packed(last.run)
    file = tmp_path / "certificate.json"
    file.write_bytes(files["certificate.json"])
    assert read_certificate(file) == last.run.certificate
    opened = from_file(file)
    assert (opened.form, opened.ran, opened.named_model) == (form, True, "tiny (float32)")
    assert b"<!doctype html>" in files["certificate.html"]
    rows = list(csv.reader(io.StringIO(files["orders.csv"].decode(), newline="")))
    texts = [answers.texts["pine"] for answers in last.run.orders.values()]
    assert rows[1:] == [["A B", "pine", texts[0]], ["B A", "pine", texts[1]]]
    assert "reproduce certificate.json" in files["README.txt"].decode()


def test_oversized_files_are_omitted_with_a_note(files: dict[str, bytes], run: Run) -> None:
    most = sum(map(len, files.values())) - len(files["README.txt"]) - 1
    fewer = packed(run, max_bytes=most)
    assert set(files) - set(fewer) == {"report.json"}
    assert "Omitted" in fewer["README.txt"].decode()
