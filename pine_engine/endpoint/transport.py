"""HTTP limits of an endpoint: the size of a reply, and redirects within its origin."""

from collections.abc import AsyncIterator

import httpx2

from pine_engine.endpoint.failures import RefusalError

MAX_REPLY_BYTES = 16 * 2**20
"""Maximum size of a reply: 4,000 tokens with 20 log-probabilities each have 12 MB."""


class _LimitedStream(httpx2.AsyncByteStream):
    """Body of a response, which ends with an error behind MAX_REPLY_BYTES."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for part in self._stream:
            size += len(part)
            if size > MAX_REPLY_BYTES:
                raise RefusalError(f"the reply of the server is larger than {MAX_REPLY_BYTES // 2**20} MiB")
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


async def limit_response(response: httpx2.Response, *, names_target: bool = True) -> None:
    """Limit the body of a response; to be called before the body is received.

    names_target: name the address of a redirect.
    Raises RefusalError for a redirect to another origin, which would get the prompt, and for a compressed
    body, whose size is unknown and which no request accepts.
    """
    if response.has_redirect_location:
        target = response.url.join(response.headers["location"])
        if _origin(target) != _origin(response.url):
            named = f" ({target!s:.200})" if names_target else ""
            raise RefusalError(f"the server redirects to another host{named}, which does not get the prompt")
    if (encoding := response.headers.get("content-encoding", "identity")) != "identity":
        raise RefusalError(f"the reply of the server is compressed ({encoding:.20}), which was not requested")
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _LimitedStream(response.stream)


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port
