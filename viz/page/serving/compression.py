"""Accepted encodings of a request, and the time for which browsers keep the assets of gradio."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

ASSETS = "/assets/"  # files whose names contain a hash of their content

FOREVER = "public, max-age=31536000, immutable"
"""Cache-Control of a URL with a version, so that caches never serve an old one."""


async def keep_assets(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Remove refused encodings from a request, and let browsers keep assets.

    The middleware of starlette and gradio that compresses responses looks for the name of an encoding only.
    """

    async def send_with_header(message: Message) -> None:
        if message.get("status") == 200 and scope["path"].startswith(ASSETS):
            MutableHeaders(scope=message)["Cache-Control"] = FOREVER
        await send(message)

    headers = [
        (name, accepted(value) if name == b"accept-encoding" else value) for name, value in scope["headers"]
    ]
    await app({**scope, "headers": headers}, receive, send_with_header)


def accepted(encodings: bytes) -> bytes:
    """Return the header Accept-Encoding without the encodings of weight 0, such as gzip;q=0."""
    parts = [part.partition(b";q=") for part in encodings.lower().replace(b" ", b"").split(b",")]
    return b",".join(b"".join(part) for part in parts if not part[1] or part[2].strip(b"0."))
