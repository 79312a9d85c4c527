"""The subcommand `download-data`: list, download, checksum and offline behavior."""

import dataclasses
import hashlib
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pine_engine.data.registry import PUBLIC_SETS, PublicSet
from pine_engine.evaluation.examples import read_examples
from pine_engine.prompts.tasks import TASKS
from tests.data.test_readers import COMPARED, TABLE
from tests.support.commands import Run


@pytest.fixture
def run(pine: Run) -> Run:
    """Run the subcommand `download-data`."""
    return partial(pine, "download-data")


@dataclasses.dataclass
class FileServer:
    """Content of each response, failure settings, and the number of requests.

    Attributes:
        drop_after: Close the connection after this many bytes.
        status: Status of each response, in place of the content.
    """

    content: bytes = b""
    drop_after: int | None = None
    status: int | None = None
    url: str = ""
    num_requests: int = 0


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setattr(time, "sleep", lambda _: None)  # between retries
    served = FileServer()

    class Handler(BaseHTTPRequestHandler):
        """Handler that closes each connection after its response."""

        def do_GET(self) -> None:
            served.num_requests += 1
            body = served.content if served.status is None else b""
            self.send_response(served.status or 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: served.drop_after])

        def log_message(self, *_: object) -> None:
            """Write no log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as local:
        served.url = f"http://127.0.0.1:{local.server_port}/file"
        thread = threading.Thread(target=local.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield served
        local.shutdown()
        thread.join()


Serve = Callable[..., PublicSet]


@pytest.fixture
def serve(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Serve the files of a set locally, all with the same content."""

    def put(name: str, content: str, sha256: str | None = None) -> PublicSet:
        server.content = content.encode()
        public = PUBLIC_SETS[name]
        files = tuple(
            dataclasses.replace(file, url=f"{server.url}/{file.name}", sha256=sha256) for file in public.files
        )
        changed = dataclasses.replace(public, files=files)
        monkeypatch.setitem(PUBLIC_SETS, name, changed)
        return changed

    return put


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_data_lists_all_sets(run: Run) -> None:
    listed = run("--json").json["sets"]
    assert [row["set"] for row in listed] == [*PUBLIC_SETS, "r-gsm"]
    for row in listed[:-1]:
        assert row["task"] in TASKS and row["records"] > 0 and row["license"]
        assert row["source"].startswith("https://")
    assert set(listed[-1].values()) == {"r-gsm", "math_reasoning", None}


def test_sources_are_pinned() -> None:
    for public in PUBLIC_SETS.values():
        for file in public.files:
            assert file.url.startswith("https://")
            assert re.search(r"/[0-9a-f]{40}/", file.url) or file.sha256
            assert file.sha256 is None or re.fullmatch(r"[0-9a-f]{64}", file.sha256)
        assert len({file.name for file in public.files}) == len(public.files)
        assert len({file.part for file in public.files}) == len(public.files)


def test_data_downloads_and_converts_set_once(
    run: Run, serve: Serve, server: FileServer, tmp_path: Path
) -> None:
    public = serve("llmbar", json.dumps([COMPARED]))
    report = run("llmbar", "--output-dir", tmp_path, "--json").json
    path = tmp_path / "llmbar.jsonl"
    downloads = [tmp_path / "downloads" / "llmbar" / file.name for file in public.files]
    assert [one.read_bytes() for one in downloads] == [server.content] * 5
    assert (report["set"], report["task"], report["examples"]) == ("llmbar", "judge_pair", 5)
    assert (report["file"], report["sha256"]) == (str(path), sha256(path.read_bytes()))
    assert [one["file"] for one in report["downloads"]] == list(map(str, downloads))
    for one, file in zip(report["downloads"], public.files, strict=True):
        assert (one["bytes"], one["sha256"]) == (len(server.content), sha256(server.content))
        assert (one["checked"], one["from"]) == ("no published checksum", file.url)
    assert server.num_requests == 5
    server.status = 503
    outcome = run("llmbar", "--output-dir", tmp_path, "--limit", 2)
    assert outcome.status == 0 and public.license in outcome.stderr
    assert len(read_examples(path)) == 2 and server.num_requests == 5
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["downloads", "llmbar.jsonl"]


def test_hash_mismatch_is_refused_and_damaged_file_replaced(
    run: Run, serve: Serve, server: FileServer, tmp_path: Path
) -> None:
    serve("qm9", TABLE.replace("1.50", "1.51"), sha256=sha256(TABLE.encode()))
    outcome = run("qm9", "--output-dir", tmp_path)
    assert (outcome.status, outcome.stdout, outcome.stderr.count("\n")) == (2, "", 1)
    assert sha256(TABLE.encode()) in outcome.stderr
    folder = tmp_path / "downloads" / "qm9"
    assert not list(folder.iterdir()) and not (tmp_path / "qm9.jsonl").exists()
    (folder / "qm9.csv").write_text(TABLE[:-9])
    server.content = TABLE.encode()
    report = run("qm9", "--output-dir", tmp_path, "--json").json
    assert [one["checked"] for one in report["downloads"]] == ["as published"]
    assert (folder / "qm9.csv").read_text() == TABLE


@pytest.mark.parametrize("failure", ["offline", "status", "dropped"])
def test_failed_download_names_place_for_copy(
    failure: str, run: Run, serve: Serve, server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = serve("qm9", TABLE)
    path = tmp_path / "downloads" / "qm9" / "qm9.csv"
    if failure == "offline":
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{unused.getsockname()[1]}/qm9.csv"
        offline = dataclasses.replace(public.files[0], url=url)
        monkeypatch.setitem(PUBLIC_SETS, "qm9", dataclasses.replace(public, files=(offline,)))
    elif failure == "status":
        server.status = 404
    else:
        server.drop_after = 100
    outcome = run("qm9", "--output-dir", tmp_path)
    assert (outcome.status, outcome.stdout, outcome.stderr.count("\n")) == (2, "", 1)
    assert str(path) in outcome.stderr
    assert not path.exists() and not (tmp_path / "qm9.jsonl").exists()
    path.write_text(TABLE)
    assert run("qm9", "--output-dir", tmp_path).status == 0


def test_output_folder_that_is_file_is_refused(run: Run, serve: Serve, tmp_path: Path) -> None:
    serve("qm9", TABLE)
    (tmp_path / "file").write_text("")
    outcome = run("qm9", "--output-dir", tmp_path / "file")
    assert outcome.status == 2 and "--output-dir" in outcome.stderr


@pytest.mark.parametrize(("module", "name"), [("pooch", "llmbar"), ("pyarrow", "rewardbench")])
def test_missing_package_is_refused_with_install_command(
    module: str, name: str, run: Run, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(name, "")
    monkeypatch.setitem(sys.modules, module, None)
    outcome = run(name, "--output-dir", tmp_path)
    assert outcome.status == 2 and f"pip install {module}==" in outcome.stderr
