"""A server of one file on this machine, as well or as badly behaved as a test wants it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class FileServer:
    """What it serves, how it misbehaves, and what it was asked.

    drop_after: closes the connection after so many bytes of an answer. status: refuses with that. ranges: off
    for a server that always sends the whole. shift: a rest begins so many bytes later than was asked.
    """

    content: bytes = b""
    etag: str | None = '"state-1"'
    drop_after: int | None = None
    status: int | None = None
    ranges: bool = True
    shift: int = 0
    length: bool = True
    url: str = ""
    asked: list[dict[str, str]] = field(default_factory=list)

    @property
    def ranges_asked(self) -> list[str | None]:
        """The Range of every request so far."""
        return [headers.get("Range") for headers in self.asked]

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answers one request."""
        headers = dict(handler.headers.items())
        self.asked.append(headers)
        if self.status is not None:
            handler.send_response(self.status)
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        start = self._start(headers)
        if start is not None and start >= len(self.content):
            handler.send_response(416)
            handler.send_header("Content-Range", f"bytes */{len(self.content)}")
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        body = self.content if start is None else self.content[start + self.shift :]
        handler.send_response(200 if start is None else 206)
        if start is not None:
            first, last = start + self.shift, len(self.content) - 1
            handler.send_header("Content-Range", f"bytes {first}-{last}/{len(self.content)}")
        if self.etag is not None:
            handler.send_header("ETag", self.etag)
        if self.length:
            handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body if self.drop_after is None else body[: self.drop_after])

    def _start(self, headers: dict[str, str]) -> int | None:
        asked, condition = headers.get("Range"), headers.get("If-Range")
        if asked is None or not self.ranges or (condition is not None and condition != self.etag):
            return None
        return int(asked.removeprefix("bytes=").removesuffix("-"))


@contextmanager
def serving(content: bytes) -> Iterator[FileServer]:
    """Serves that content at its `url` until the end of the block."""
    served = FileServer(content)

    class Handler(BaseHTTPRequestHandler):
        """Answers as the FileServer says; every connection ends with its answer."""

        def do_GET(self) -> None:
            served.answer(self)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_port}/file"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
