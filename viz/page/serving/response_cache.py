"""Cache of the responses that are the same for all visitors: the page, and gradio's scripts and styles.

Gradio fills in its configuration and compresses scripts at each request, and sends the page uncompressed.
Running answers wait for this, because they need the same interpreter.
"""

import gzip
from collections.abc import Hashable

from starlette.datastructures import Headers, QueryParams
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from viz.page.common.asgi import without_headers

MAX_RESPONSES = 256  # a page takes about 60 KB; all assets of gradio together take 6 MB

ASSETS = "/assets/"  # files whose names contain a hash of their content

FOREVER = "public, max-age=31536000, immutable"
"""Cache-Control of a URL with a version, so that caches never serve an old one."""

CONDITIONS = (b"if-none-match", b"if-modified-since", b"range")  # headers that ask for less than everything

PARAMETERS = {"page", "deep_link", "all_endpoints"}  # of the query; gradio's page depends on no others

ADDRESS = ("host", "x-forwarded-host", "x-forwarded-proto")  # headers from which gradio takes the address


class ResponseCache:
    """Middleware that stores the last MAX_RESPONSES responses, compressed. The page needs one per address."""

    def __init__(self) -> None:
        self._stored: dict[Hashable, tuple[bytes, dict[str, str]]] = {}  # body and headers

    async def __call__(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer from the cache, or pass the request on and store the response."""
        key = _key(scope)
        if key is None:
            await app(scope, receive, send)
            return
        if key not in self._stored:
            start, *parts = await _messages(app, without_headers(scope, *CONDITIONS), receive)
            if start["status"] != 200:
                for message in (start, *parts):
                    await send(message)
                return
            headers = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
            headers["Content-Type"] = Headers(raw=start["headers"])["content-type"]
            if scope["path"].startswith(ASSETS):
                headers["Cache-Control"] = FOREVER
            if len(self._stored) >= MAX_RESPONSES:
                del self._stored[next(iter(self._stored))]
            self._stored[key] = gzip.compress(b"".join(part.get("body", b"") for part in parts)), headers
        body, headers = self._stored[key]
        await Response(body, headers=headers)(scope, receive, send)


def _key(scope: Scope) -> Hashable | None:
    """Return what the response depends on; None if it is not stored."""
    headers, path = Headers(scope=scope), str(scope["path"])
    if scope["method"] != "GET" or "gzip" not in headers.get("accept-encoding", ""):
        return None
    if PARAMETERS & QueryParams(scope["query_string"]).keys():
        return None
    if path.startswith(ASSETS):
        return path
    if path != "/" or scope["app"].auth is not None:
        return None
    return (path, scope["scheme"], scope["root_path"], *(headers.get(name) for name in ADDRESS))


async def _messages(app: ASGIApp, scope: Scope, receive: Receive) -> list[Message]:
    messages: list[Message] = []

    async def collect(message: Message) -> None:
        messages.append(message)

    await app(scope, receive, collect)
    return messages
