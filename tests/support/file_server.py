"""An HTTP server of one file on this machine, with selectable failures."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class FileServer:
    """Served content, failure settings and request headers.

    Attributes:
        content: Body of each response.
        drop_after: Close the connection after this many bytes of the body.
        status: Status of each response, in place of the content.
        url: Address of the file.
        requests: Headers of all requests.
    """

    content: bytes = b""
    drop_after: int | None = None
    status: int | None = None
    url: str = ""
    requests: list[dict[str, str]] = field(default_factory=list)


@contextmanager
def serving(content: bytes) -> Iterator[FileServer]:
    """Serve the content until the end of the block."""
    served = FileServer(content)

    class Handler(BaseHTTPRequestHandler):
        """Handler that closes each connection after its response."""

        def do_GET(self) -> None:
            served.requests.append(dict(self.headers.items()))
            body = served.content if served.status is None else b""
            self.send_response(served.status or 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: served.drop_after])

        def log_message(self, *_: object) -> None:
            """Write no log."""

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
