"""Files of visitors: parsed one upload at a time, within limits, for connected clients, with one message."""

import logging
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psutil
import pytest

from pine_engine.errors import Cancelled, InputError, PineError
from pine_engine.rows.document_files import read_documents
from pine_engine.rows.documents import Document
from pine_engine.scheduling.run_state import SHUTTING_DOWN
from pine_engine.scheduling.runs import Caller, Runs
from pine_engine.scheduling.turns import Client
from tests.support import apart
from tests.support.pdf_files import pdf_bomb, pdf_of_comments
from tests.support.running import logged
from viz.page.common.limits import MAX_DOCUMENTS
from viz.page.files import reading_files
from viz.page.files.limited_process import Limits
from viz.page.files.reading_files import FileReader, without_progress

MB = 1_000_000
SHORT = Limits(cpu_s=1)
SECRET = "Xylophone"  # in names and texts that no log may have


def read(reader: FileReader, *paths: Path) -> Generator[str, None, list[Document]]:
    return reader.read(read_documents, paths, MAX_DOCUMENTS + 1, what="read documents", files=paths, say=str)


def message_of(reader: FileReader, *paths: Path) -> str:
    with pytest.raises(InputError) as raised:
        without_progress(read(reader, *paths))
    return str(raised.value)


def children() -> int:
    return len(psutil.Process().children())


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[FileReader]:
    """A reader that is busy for the whole test."""
    reader, file, over = FileReader(Runs()), tmp_path / "process", threading.Event()

    def sleep() -> None:
        with pytest.raises(Cancelled):
            without_progress(reader.read(apart.sleep_as, file, what="read documents", files=[], say=str))

    def left() -> None:
        if threading.current_thread() is thread and over.is_set():
            raise Cancelled

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading_files, "current_caller", lambda: Caller(check=left))
        thread = threading.Thread(target=sleep)
        thread.start()
        while not file.exists():
            time.sleep(0.02)
        yield reader
        over.set()
        thread.join()


def test_file_is_read_and_logged_without_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)  # of all packages
    file = tmp_path / f"{SECRET}.txt"
    file.write_text(f"The {SECRET} sleeps.")
    runs = Runs()
    assert without_progress(read(FileReader(runs), file)) == [Document(f"The {SECRET} sleeps.", SECRET)]
    line = logged(caplog)
    assert (line["operation"], line["outcome"], line["model"]) == ("read documents", "done", "")
    assert SECRET not in caplog.text and runs.outcomes == {}


ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits memory")


@pytest.mark.parametrize(
    ("files", "limits", "words", "outcome"),
    [
        (
            {"wide.csv": lambda: ",".join(map(str, range(40_000))).encode() + b"\n1\n"},
            Limits(),
            "File wide.csv has no column 'text'",
            "rejected",
        ),
        ({f"{SECRET}.pdf": pdf_of_comments}, SHORT, f"parsing {SECRET}.pdf took more than 1 s", "timeout"),
        pytest.param(
            {"many.jsonl": lambda: b'{"documents": [%s""]}' % (b'"a b", ' * 1_000_000), "few.txt": bytes},
            Limits(memory=50 * MB),
            "parsing one of 2 files needs more than 50 MB",
            "out_of_memory",
            marks=ON_LINUX,
        ),
        ({"long.txt": lambda: b"x" * 2 * MB}, Limits(answer=MB), "long.txt has more than 1 MB", "rejected"),
    ],
    ids=["long message", "time", "memory", "text"],
)
def test_file_rejected_is_named_and_logged(
    files: dict[str, Callable[[], bytes]],
    limits: Limits,
    words: str,
    outcome: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    paths = [tmp_path / name for name in files]
    for path, content in zip(paths, files.values(), strict=True):
        path.write_bytes(content())
    message = message_of(FileReader(Runs(), limits), *paths)
    assert words in message and len(message) < 1100
    assert logged(caplog)["outcome"] == outcome
    assert not any(name in caplog.text for name in files)


# bombs


@pytest.mark.slow
def test_bombs_are_parsed_one_at_a_time(tmp_path: Path) -> None:
    file = tmp_path / "packed.pdf"
    file.write_bytes(pdf_bomb())
    reader, others = FileReader(Runs(), SHORT), children()
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


def test_long_file_is_read_up_to_limit(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("text\n" + "a\n" * 4_900_000)
    found = without_progress(read(FileReader(Runs(), Limits(memory=150 * MB)), file))
    assert len(found) == MAX_DOCUMENTS + 1


# clients that wait or disconnect


@pytest.fixture
def small(tmp_path: Path) -> Path:
    file = tmp_path / "a.txt"
    file.write_text("a")
    return file


def test_waiting_upload_shows_its_place(sleeper: FileReader, small: Path) -> None:
    first, second = read(sleeper, small), read(sleeper, small)
    assert next(first) == "Queued: 1 upload ahead of you."
    assert next(second) == "Queued: 2 uploads ahead of you."
    first.close()
    assert next(second) == "Queued: 1 upload ahead of you."
    second.close()


@pytest.mark.slow
def test_full_upload_queue_serves_other_clients(
    sleeper: FileReader, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_files, "current_caller", lambda: Caller(Client("192.0.2.1")))
    with ExitStack() as stack:
        waiting = [
            stack.enter_context(closing(read(sleeper, small)))
            for _ in range(reading_files.MAX_WAITING_UPLOADS)
        ]
        for one in waiting:
            next(one)
        with pytest.raises(PineError, match="full: 8 waiting"):
            next(read(sleeper, small))
        monkeypatch.setattr(reading_files, "current_caller", lambda: Caller(Client("192.0.2.2")))
        other = stack.enter_context(closing(read(sleeper, small)))
        assert next(other) == "Queued: 2 uploads ahead of you."
        with pytest.raises(PineError, match="removed from the queue"):
            next(waiting[-1])


def test_disconnect_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "process"

    def left() -> None:
        if file.exists():
            raise Cancelled

    monkeypatch.setattr(reading_files, "current_caller", lambda: Caller(check=left))
    reader = FileReader(Runs())
    with pytest.raises(Cancelled):
        without_progress(reader.read(apart.sleep_as, file, what="read rows", files=[], say=str))
    assert not psutil.pid_exists(int(file.read_text())) and logged(caplog)["outcome"] == "disconnected"


def test_shutdown_ends_the_process(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file, runs = tmp_path / "process", Runs()
    messages: list[str] = []

    def sleep() -> None:
        with pytest.raises(PineError) as raised:
            without_progress(FileReader(runs).read(apart.sleep_as, file, what="read rows", files=[], say=str))
        messages.append(str(raised.value))

    thread = threading.Thread(target=sleep)
    thread.start()
    while not file.exists():
        time.sleep(0.02)
    assert runs.num_open == 0  # it is no run
    assert not runs.close(0) and runs.wait(30)
    thread.join()
    assert messages == [SHUTTING_DOWN] and not psutil.pid_exists(int(file.read_text()))
    assert logged(caplog)["outcome"] == "shutdown"
