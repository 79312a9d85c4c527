"""Files of visitors: parsed one upload at a time, within limits, for connected clients, with one message."""

import json
import logging
import sys
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from pine_engine.errors import Cancelled, InputError, PineError
from pine_engine.evaluation.examples import read_examples
from pine_engine.prompts.document_files import read_documents
from pine_engine.prompts.prompt import Document
from tests.support import apart
from tests.support.serving import Serve, ServedApp
from tools.fuzz.corpus import PDF_BOMB, PDF_OF_COMMENTS
from viz.page.common.bounds import MAX_DOCUMENTS
from viz.page.files import reading_files
from viz.page.files.limited_process import Limits
from viz.page.files.reading_files import FileReader, without_progress
from viz.page.jobs.connection_tracker import Client
from viz.page.jobs.run_log import SHUTTING_DOWN, RunLog

MB = 1_000_000
SHORT = Limits(cpu_s=1)
SECRET = "Xylophone"
"""In names and texts that no log may have."""


def words(reader: FileReader, *paths: Path) -> Generator[str, None, list[Document]]:
    return reader.read(read_documents, paths, MAX_DOCUMENTS + 1, what="read documents", files=paths, say=str)


def message_of(reader: FileReader, *paths: Path) -> str:
    with pytest.raises(InputError) as raised:
        without_progress(words(reader, *paths))
    return str(raised.value)


def logged(caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    (record,) = [one for one in caplog.records if one.name == "pine_explorer.runs"]
    line: dict[str, Any] = json.loads(record.message)
    return line


def children() -> int:
    return len(psutil.Process().children())


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[tuple[FileReader, Path]]:
    """A reader that is busy for the whole test, and the file that its process has written."""
    reader, file, over = FileReader(RunLog()), tmp_path / "process", threading.Event()

    def read() -> None:
        with pytest.raises(Cancelled):
            without_progress(reader.read(apart.sleep_as, file, what="read documents", files=[], say=str))

    def left() -> None:
        if threading.current_thread() is thread and over.is_set():
            raise Cancelled

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading_files, "stop_if_disconnected", left)
        thread = threading.Thread(target=read)
        thread.start()
        while not file.exists():
            time.sleep(0.02)
        yield reader, file
        over.set()
        thread.join()


def test_files_are_read_as_the_library_reads_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    file = tmp_path / f"{SECRET}.txt"
    file.write_text(f"The {SECRET} sleeps.")
    runs = RunLog()
    assert without_progress(words(FileReader(runs), file)) == [Document(f"The {SECRET} sleeps.", SECRET)]
    line = logged(caplog)
    assert (line["operation"], line["outcome"], line["model"]) == ("read documents", "done", "")
    assert SECRET not in caplog.text and runs.outcomes == {"done": 1}


def test_file_error_names_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    file = tmp_path / "rows.jsonl"
    file.write_text('{"text": "one"}\n{"text": " "}\n')
    shown_text = message_of(FileReader(RunLog()), file)
    assert shown_text == "the file rows.jsonl, line 2: it has no text; write some, or remove it"
    assert logged(caplog)["outcome"] == "rejected" and "rows.jsonl" not in caplog.text


def test_message_is_short_for_a_long_file(tmp_path: Path) -> None:
    file = tmp_path / "wide.csv"
    file.write_text(f"{','.join(map(str, range(40_000)))}\n1\n")
    shown_text = message_of(FileReader(RunLog()), file)
    assert (
        shown_text.startswith("the file wide.csv has no column 'text', its header reads '0, 1")
        and len(shown_text) < 1100
    )


# bombs


def test_a_pdf_without_operands_ends_with_its_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    file = tmp_path / f"{SECRET}.pdf"
    file.write_bytes(PDF_OF_COMMENTS)
    shown_text = message_of(FileReader(RunLog(), SHORT), file)
    assert shown_text == (
        f"the file {SECRET}.pdf takes more than 1 s to read; give a part of it, or its text as .txt"
    )
    assert logged(caplog)["outcome"] == "timeout" and SECRET not in caplog.text


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits memory")
def test_a_file_that_takes_too_much_memory_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    files = [tmp_path / "many.jsonl", tmp_path / "few.txt"]
    files[0].write_text(json.dumps({"documents": ["a b"] * 1_000_000}))
    files[1].write_text("few")
    shown_text = message_of(FileReader(RunLog(), Limits(memory=50 * MB)), *files)
    assert shown_text == (
        "one of the 2 files takes more than 50 MB of memory to read; give a part of it, or its text as .txt"
    )
    assert logged(caplog)["outcome"] == "out_of_memory"


def test_more_text_than_a_page_could_show_is_not_handed_over(tmp_path: Path) -> None:
    file = tmp_path / "long.txt"
    file.write_text("x" * 2 * MB)
    shown_text = message_of(FileReader(RunLog(), Limits(answer=MB)), file)
    assert shown_text == "the file long.txt holds more than 1 MB of text; give a part of it"


@pytest.mark.slow
def test_several_bombs_are_read_one_after_another_and_take_no_memory_of_the_page(tmp_path: Path) -> None:
    file = tmp_path / "packed.pdf"
    file.write_bytes(PDF_BOMB)
    reader, others = FileReader(RunLog(), SHORT), children()
    before = psutil.Process().memory_info().rss
    shown_text: list[str] = []
    threads = [threading.Thread(target=lambda: shown_text.append(message_of(reader, file))) for _ in range(4)]
    for thread in threads:
        thread.start()
    most_at_once = most_memory = 0
    while any(thread.is_alive() for thread in threads):
        most_at_once = max(most_at_once, children() - others)
        most_memory = max(most_memory, psutil.Process().memory_info().rss)
        time.sleep(0.1)
    assert most_at_once == 1 and len(shown_text) == 4
    assert most_memory - before < 50 * MB


@pytest.mark.parametrize(("name", "count"), [("x", 1_000_000), ("document", 560_000)])
def test_the_columns_of_a_large_file_are_read_in_time_that_grows_with_it(
    tmp_path: Path, name: str, count: int
) -> None:
    """Comparing each of so many names with all others would take days."""
    file = tmp_path / "wide.csv"
    header = ",".join(["id", "question", "answers", *(f"{name}{10**7 + number}" for number in range(count))])
    file.write_text(f"{header}\n1\n")
    assert 8 * MB < file.stat().st_size < 11 * MB
    with pytest.raises(InputError):
        read_documents([file])
    with pytest.raises(InputError):
        read_examples(file)


def test_a_file_of_millions_of_rows_is_refused_at_the_first_that_is_too_many(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("text\n" + "a\n" * 4_900_000)
    found = without_progress(words(FileReader(RunLog(), Limits(memory=150 * MB)), file))
    assert len(found) == MAX_DOCUMENTS + 1


@pytest.mark.parametrize("rows", ["text\na\nb\n\nc,d\n", '{"text": "a"}\n{"text": "b"}\n{\n'])
def test_what_is_behind_the_last_document_is_not_parsed(tmp_path: Path, rows: str) -> None:
    file = tmp_path / ("rows.csv" if rows.startswith("text") else "rows.jsonl")
    file.write_text(rows)
    assert [document.text for document in read_documents([file], 2)] == ["a", "b"]
    with pytest.raises(InputError):
        read_documents([file])


# who waits, and who leaves


def test_waiting_upload_shows_its_place(sleeper: tuple[FileReader, Path], tmp_path: Path) -> None:
    reader, _ = sleeper
    file = tmp_path / "a.txt"
    file.write_text("a")
    first, second = words(reader, file), words(reader, file)
    assert next(first) == "Waiting: 1 upload is read before yours."
    assert next(second) == "Waiting: 2 uploads are read before yours."
    first.close()
    assert next(second) == "Waiting: 1 upload is read before yours."
    second.close()


@pytest.mark.slow
def test_too_many_who_wait_are_refused(sleeper: tuple[FileReader, Path], tmp_path: Path) -> None:
    reader, _ = sleeper
    file = tmp_path / "a.txt"
    file.write_text("a")
    waiting = [words(reader, file) for _ in range(reading_files.MAX_WAITING_UPLOADS)]
    for one in waiting:
        next(one)
    with pytest.raises(PineError, match="full: 8 waiting"):
        next(words(reader, file))
    for one in waiting:
        one.close()


@pytest.mark.slow
def test_who_brings_much_makes_room_for_others(
    sleeper: tuple[FileReader, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, _ = sleeper
    file = tmp_path / "a.txt"
    file.write_text("a")
    monkeypatch.setattr(reading_files, "current_client", lambda: Client("192.0.2.1"))
    waiting = [words(reader, file) for _ in range(reading_files.MAX_WAITING_UPLOADS)]
    for one in waiting:
        next(one)
    monkeypatch.setattr(reading_files, "current_client", lambda: Client("192.0.2.2"))
    other = words(reader, file)
    assert next(other) == "Waiting: 2 uploads are read before yours."
    with pytest.raises(PineError, match="removed from the queue"):
        next(waiting[-1])
    for one in (other, *waiting):
        one.close()


def test_the_process_ends_with_its_visitor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    file = tmp_path / "process"

    def left() -> None:
        if file.exists():
            raise Cancelled

    monkeypatch.setattr(reading_files, "stop_if_disconnected", left)
    reader = FileReader(RunLog())
    with pytest.raises(Cancelled):
        without_progress(reader.read(apart.sleep_as, file, what="read rows", files=[], say=str))
    assert not psutil.pid_exists(int(file.read_text())) and logged(caplog)["outcome"] == "client_disconnected"


def test_the_process_ends_with_the_page(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    file, runs = tmp_path / "process", RunLog()
    reader, shown_text = FileReader(runs), []

    def read() -> None:
        with pytest.raises(PineError, match=SHUTTING_DOWN) as raised:
            without_progress(reader.read(apart.sleep_as, file, what="read rows", files=[], say=str))
        shown_text.append(raised.value)

    thread = threading.Thread(target=read)
    thread.start()
    while not file.exists():
        time.sleep(0.02)
    assert not runs.close(0) and runs.wait(30)
    thread.join()
    assert shown_text and not psutil.pid_exists(int(file.read_text()))
    assert logged(caplog)["outcome"] == "shutdown"


# over HTTP


@pytest.fixture(scope="module")
def served(
    serve: Serve, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ServedApp, httpx.Client]]:
    with (
        serve(tmp_path_factory.mktemp("app") / "app.log") as app,
        httpx.Client(base_url=f"{app.url}gradio_api/", timeout=60) as http,
    ):
        yield app, http
        assert "Traceback" not in app.log.read_text()


def request(http: httpx.Client, name: str, content: bytes) -> dict[str, Any]:
    """The body of the event that brings a file of that content."""
    events = http.get("../config").json()["dependencies"]
    (event,) = (one for one in events if one["api_name"] == name)
    (path,) = http.post("upload", files={"files": ("a.pdf", content)}).json()
    file = {"path": path, "meta": {"_type": "gradio.FileData"}}
    data = [[file] if name == "upload" else file]
    return {"fn_index": event["id"], "data": data, "session_hash": name}


def test_who_closes_the_page_takes_the_process_along(served: tuple[ServedApp, httpx.Client]) -> None:
    app, http = served
    page = psutil.Process(app.process.pid)
    body = request(http, "upload", PDF_OF_COMMENTS)
    assert http.post("queue/join", json=body).status_code == 200
    with http.stream("GET", "queue/data", params={"session_hash": "upload"}):
        while not page.children():
            time.sleep(0.05)
    left = time.monotonic()
    while page.children():
        assert time.monotonic() - left < Limits().cpu_s / 2
        time.sleep(0.05)
    while '"operation": "read documents"' not in app.log.read_text():
        time.sleep(0.05)
    assert '"outcome": "client_disconnected"' in app.log.read_text()


@pytest.mark.parametrize("name", ["upload", "bring"])
def test_no_file_is_parsed_outside_the_queue(served: tuple[ServedApp, httpx.Client], name: str) -> None:
    """Of such a caller it is not heard that he has left."""
    _, http = served
    answer = http.post("run/predict", json=request(http, name, b"text\na\n"))
    assert answer.status_code == 404 and "join the queue" in answer.text
