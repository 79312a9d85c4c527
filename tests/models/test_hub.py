"""Downloads with the hub's own client from a local server with the responses of the hub."""

import hashlib
import json
import re
import shutil
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import huggingface_hub
import pytest
import torch
from transformers import LlamaForCausalLM
from transformers.utils import hub as transformers_hub

from pine_engine import ModelError
from pine_engine.errors import Cancelled
from pine_engine.models import hub
from pine_engine.models.hub import bring
from pine_engine.models.listing import describe
from pine_engine.models.load import fetch, load
from tests.support.errors import has_field
from tests.support.families import TinyLlama
from tests.support.tokenizers import letter_tokenizer

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CHUNK = 1 << 16


class Hub(BaseHTTPRequestHandler):
    """Server of the files of a folder as the model org/tiny, which may break connections within weights."""

    folder: ClassVar[Path]
    requested: ClassVar[list[str]] = []
    break_at: ClassVar[int] = 0

    def do_HEAD(self) -> None:
        self.do_GET(has_body=False)

    def do_GET(self, *, has_body: bool = True) -> None:
        path = urlsplit(self.path).path
        file = self.folder / path.rpartition("/")[2]
        if re.fullmatch("/api/models/org/tiny(/revision/main)?", path):
            self.respond(json.dumps({"id": "org/tiny", "sha": COMMIT, "siblings": []}).encode())
        elif path == f"/api/models/org/tiny/tree/{COMMIT}":
            files = [
                {"type": "file", "path": each.name, "oid": oid(each), "size": each.stat().st_size}
                for each in sorted(self.folder.iterdir())
            ]
            self.respond(json.dumps(files).encode())
        elif "/resolve/" in path and file.is_file():
            start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
            content = file.read_bytes()[start:]
            total = start + len(content)
            breaks = self.break_at > 0 and file.suffix == ".safetensors"
            end = max(0, self.break_at - start) if breaks else len(content)
            headers = {"ETag": f'"{oid(file)}"', "Content-Range": f"bytes {start}-{total - 1}/{total}"}
            self.respond(content, 206 if start else 200, headers, end=end if has_body else 0)
            if has_body:
                self.requested.append(file.name)
        else:
            self.respond(b"", 404, {"X-Error-Code": "EntryNotFound"})

    def respond(
        self, content: bytes, status: int = 200, headers: dict[str, str] | None = None, end: int | None = None
    ) -> None:
        self.send_response(status)
        length = {"X-Repo-Commit": COMMIT, "Content-Length": str(len(content))}
        for name, value in (length | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content[:end])

    def log_message(self, *_: object) -> None:
        pass


def oid(file: Path) -> str:
    return hashlib.sha1(file.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_llama: TinyLlama) -> Path:
    folder = tmp_path_factory.mktemp("hub") / "model"
    tiny_llama(layers=8, heads=8, head_dim=16).save_pretrained(folder)
    letter_tokenizer().save_pretrained(folder)
    (folder / "pytorch_model.bin").write_bytes(bytes(1000))
    return folder


@pytest.fixture(autouse=True)
def cache(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    Hub.folder, Hub.break_at = folder, 0
    Hub.requested.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    url = f"http://127.0.0.1:{server.server_port}"
    settings: dict[str, Any] = {
        "HF_HUB_CACHE": str(tmp_path / "cache"),
        "HF_HUB_OFFLINE": False,
        "ENDPOINT": url,
        "HUGGINGFACE_CO_URL_TEMPLATE": url + "/{repo_id}/resolve/{revision}/{filename}",
        "DOWNLOAD_CHUNK_SIZE": CHUNK,  # a small file then has progress, too
    }
    for name, value in settings.items():
        monkeypatch.setattr(huggingface_hub.constants, name, value)
    monkeypatch.setattr(transformers_hub, "_hf_api", None)  # it keeps the address
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield tmp_path / "cache"
    server.shutdown()
    thread.join()
    server.server_close()


def test_remote_model_is_described_without_its_weights(folder: Path) -> None:
    found = describe("org/tiny")
    sizes = {file.name: file.stat().st_size for file in folder.iterdir() if file.suffix != ".bin"}
    assert (found.origin, found.supported, found.family, found.context) == ("hub", True, "llama", 512)
    assert found.size_bytes == sizes["model.safetensors"]
    assert found.missing_bytes == sum(sizes.values())
    assert Hub.requested == ["config.json"]


def test_download_reports_progress_and_skips_pickles(folder: Path) -> None:
    calls: list[tuple[float, str]] = []
    loaded = load("org/tiny", progress=lambda part, step: calls.append((part, step)))
    parts = [part for part, step in calls if step.startswith("downloading")]
    assert len(set(parts)) > 5 and max(parts) == 1.0
    assert re.fullmatch(r"downloading, \d\.\d MB of 4\.\d MB", calls[-2][1])
    assert calls[-1][0] == 1.0
    assert loaded.source.revision == COMMIT
    assert "pytorch_model.bin" not in Hub.requested
    original = LlamaForCausalLM.from_pretrained(folder)
    assert torch.equal(loaded.model.lm_head.weight, original.lm_head.weight)
    found = describe("org/tiny")
    assert (found.parameters, found.missing_bytes) == (original.num_parameters(), 0)


def test_cancelled_download_is_resumed(cache: Path) -> None:
    def cancel(part: float, _: str) -> None:
        if part > 0.5:
            raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        bring("org/tiny", None, cancel)
    assert describe("org/tiny").missing_bytes > 0
    assert not list(cache.rglob("*.incomplete"))
    parts: list[float] = []
    fetch("org/tiny", lambda part, _: parts.append(part))
    assert max(parts) == 1.0
    assert load("org/tiny").source.revision == COMMIT


def test_lost_connection_is_reported_and_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)  # the client waits between attempts
    Hub.break_at = 100_000
    with pytest.raises(ModelError, check=has_field("download")):
        load("org/tiny", progress=lambda *_: None)
    Hub.break_at = 0
    assert load("org/tiny", progress=lambda *_: None).source.revision == COMMIT


def test_full_disk_is_rejected_before_the_download(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "free_disk", lambda _: 99_000)
    with pytest.raises(ModelError) as raised:
        bring("org/tiny", None, lambda *_: None)
    assert (raised.value.field, Hub.requested) == ("disk", [])


def test_unsupported_model_is_rejected_before_the_download(folder: Path, tmp_path: Path) -> None:
    Hub.folder = Path(shutil.copytree(folder, tmp_path / "bart"))
    (Hub.folder / "config.json").write_text('{"model_type": "bart"}')
    found = describe("org/tiny")
    assert not found.supported and "encoder-decoder" in found.reason
    with pytest.raises(ModelError) as raised:
        load("org/tiny", progress=lambda *_: None)
    assert (raised.value.field, Hub.requested) == ("architecture", ["config.json"])


def test_unwritable_cache_raises_model_error(cache: Path) -> None:
    cache.write_text("a file in place of the folder")
    with pytest.raises(ModelError):
        bring("org/tiny", None, lambda *_: None)
