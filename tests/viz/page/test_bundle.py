"""Everything of a run as one ZIP: it says what was computed, and its command computes it again."""

import datetime
import io
import shlex
import zipfile
from pathlib import Path
from typing import Any

import pytest

from pine_engine.engine.engine import Engine
from pine_engine.invariance.certificate import read_certificate
from pine_engine.prompts.request import Request, read_requests
from tests.support.running import views_of
from tests.support.runs import THREE, finish, form_of
from tests.support.viz_reading import read_html
from viz.page.answers.record import RunRecord
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
    assert session.source == "shared" and session.orders, "answers of a file are those of someone else"
    assert session.ran and session.selection["query"] == str(first_selection(run).query)


def test_record_has_the_answers_of_the_engine(files: dict[str, bytes], run: Run) -> None:
    record = RunRecord.model_validate_json(files["session.json"])
    assert (record.model, record.dtype, record.source) == ("tiny", "float32", "own")
    assert record.orders == (run.order,)
    assert [one.method for one in record.answers] == list(run.result.answers)
    for one in record.answers:
        answer = run.result.answers[one.method]
        assert one.texts == (answer.text,) and one.num_tokens == len(one.tokens) == answer.num_tokens
        assert (one.token_ids, one.logprobs) == (answer.token_ids, answer.logprobs)
        assert one.times == answer.times and one.cut_off == (answer.finish_reason == "length",)


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


def test_pictures_have_the_figures_of_all_tabs(files: dict[str, bytes]) -> None:
    page = files["pictures.html"].decode()
    assert 'data-pick="' not in page
    headings = [heading.text for heading in read_html(page).all("h2")]
    assert headings == [
        "Question, documents and answers",
        *(label for name, label in TABS if name in DRAWING),
    ]


def test_readme_lists_the_files_of_the_zip(files: dict[str, bytes]) -> None:
    readme = files["README.txt"].decode()
    for fact in ("tiny", "float32", "2026-03-01", "Vanilla, PCW, PINE", "3, as C A B"):
        assert fact in readme
    assert [name for name in files if name not in readme] == ["README.txt"]
    assert "certificate" not in readme


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
    record = RunRecord.model_validate_json(files["session.json"])
    assert record.orders == tuple(last.run.orders) == ((0, 1), (1, 0))
    texts = tuple(answers.texts["pine"] for answers in last.run.orders.values())
    assert [(one.method, one.texts) for one in record.answers] == [("pine", texts)]
    assert "reproduce certificate.json" in files["README.txt"].decode()
