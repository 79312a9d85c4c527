"""A local server with the responses of the Hugging Face hub that a download needs."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import huggingface_hub
import pytest
from transformers.utils import hub

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PIECE = 1 << 16


@dataclass
class HubServer:
    """Server of the files of a folder as a model.

    Attributes:
        break_at: Close the connection after this many bytes of a weights file.
        asked: Names of the requested files.
    """

    hub_id: str
    folder: Path
    url: str = ""
    break_at: int | None = None
    asked: list[str] = field(default_factory=list)

    def answer(self, handler: BaseHTTPRequestHandler, *, body: bool) -> None:
        """Send the response to one request."""
        path = urlsplit(handler.path).path
        if re.fullmatch(rf"/api/models/{self.hub_id}(/revision/main)?", path):
            self._json(handler, {"id": self.hub_id, "sha": COMMIT, "siblings": []})
        elif path == f"/api/models/{self.hub_id}/tree/{COMMIT}":
            self._json(handler, [self._entry(file) for file in sorted(self.folder.iterdir())])
        elif (file := self.folder / path.rpartition("/")[2]).is_file() and "/resolve/" in path:
            self._file(handler, file, body=body)
        else:
            handler.send_response(404)
            known = self.hub_id in path
            handler.send_header("X-Error-Code", "EntryNotFound" if known else "RepoNotFound")
            handler.send_header("X-Repo-Commit", COMMIT)
            handler.send_header("Content-Length", "0")
            handler.end_headers()

    def _entry(self, file: Path) -> dict[str, object]:
        return {"type": "file", "path": file.name, "oid": _oid(file), "size": file.stat().st_size}

    def _json(self, handler: BaseHTTPRequestHandler, value: object) -> None:
        text = json.dumps(value).encode()
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(text)))
        handler.end_headers()
        handler.wfile.write(text)

    def _file(self, handler: BaseHTTPRequestHandler, file: Path, *, body: bool) -> None:
        requested = handler.headers.get("Range")
        start = int(requested.removeprefix("bytes=").removesuffix("-")) if requested else 0
        content = file.read_bytes()
        handler.send_response(206 if requested else 200)
        handler.send_header("ETag", f'"{_oid(file)}"')
        handler.send_header("X-Repo-Commit", COMMIT)
        handler.send_header("Content-Length", str(len(content) - start))
        if requested:
            handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        handler.end_headers()
        if not body:
            return
        self.asked.append(file.name)
        cut = self.break_at if file.suffix == ".safetensors" else None
        for at in range(start, len(content) if cut is None else cut, PIECE):
            handler.wfile.write(content[at : at + PIECE][: None if cut is None else cut - at])


def _oid(file: Path) -> str:
    return hashlib.sha1(file.read_bytes()).hexdigest()


@contextmanager
def hub_of(hub_id: str, folder: Path, cache: Path) -> Iterator[HubServer]:
    """Serve a hub with one model to the hub's client, with an empty cache, until the end of the block."""
    served = HubServer(hub_id, folder)

    class Handler(BaseHTTPRequestHandler):
        """Handler that closes each connection after its response."""

        def do_GET(self) -> None:
            served.answer(self, body=True)

        def do_HEAD(self) -> None:
            served.answer(self, body=False)

        def log_message(self, *_: object) -> None:
            """Write no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    constants = huggingface_hub.constants
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_CACHE", str(cache))
        patch.setattr(constants, "HF_HUB_OFFLINE", False)
        patch.setattr(constants, "ENDPOINT", served.url)
        address = served.url + "/{repo_id}/resolve/{revision}/{filename}"
        patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address)
        patch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", PIECE)  # a small file then has progress, too
        patch.setattr(hub, "_hf_api", None)  # it keeps the address
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
