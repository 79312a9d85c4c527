"""Allowed host names of the page, and origins that may call it.

Protects against DNS rebinding, cross-site forms and forged proxy headers.
"""

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse

from viz.page.common.addresses import is_in
from viz.page.common.asgi import App, Receive, Scope, Send, without_headers
from viz.page.common.host_settings import LOCAL_NAMES, HostSettings

ANY = "*"

ALWAYS = {*LOCAL_NAMES, "0.0.0.0"}
"""Names of this machine; the page uses them at its start."""

OF_PROXIES = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip")
CLAIMS = (*OF_PROXIES, b"x-gradio-server")
"""Headers that gradio trusts from any client."""

DEFAULT_PORTS = (80, 443)

READING = ("GET", "HEAD", "OPTIONS")

CALLS = "/gradio_api/info"
"""Route that reports the address of the page under the name of the first client, except for page requests."""

WATCHED = "/health"
"""Route for health checks, under any name."""


class AllowedHostsMiddleware:
    """ASGI middleware that rejects other host names and changes by other origins.

    Only `Host` names the host for gradio. If the page is not public, requests through a proxy are rejected. A
    Space is reached only through its proxies, which check names.
    """

    def __init__(self, app: App, settings: HostSettings) -> None:
        self._app = app
        self._is_public, self._is_space = settings.is_public, settings.is_space
        names = settings.allowed_hosts or ((ANY,) if settings.is_public else LOCAL_NAMES)
        self._names = {name.lower() for name in (*names, settings.host) if name}
        # Not the names of this machine: other programs serve pages under them, at other ports.
        self._callers = (
            {ANY} if settings.is_space else {name.lower() for name in settings.allowed_hosts} - ALWAYS
        )
        self._proxies = settings.proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or reject it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        peer = scope.get("client")
        is_proxy = self._is_space or (peer is not None and is_in(peer[0], self._proxies))
        claimed = headers.get("x-forwarded-host") if is_proxy else None
        host = (claimed or headers.get("host", "")).split(",")[0].strip()
        if why := self._refusal(scope, headers, host):
            await JSONResponse({"detail": why}, 403)(scope, receive, send)
            return
        forged = (b"x-forwarded-host", b"x-gradio-server", b"forwarded") if is_proxy else CLAIMS
        plain = without_headers(scope, *forged, b"host")
        named = {**plain, "headers": [(b"host", host.encode("latin-1")), *plain["headers"]]}
        if scope["path"].rstrip("/") == CALLS:
            named["query_string"] = b"page=&" + scope["query_string"]
        await self._app(named, receive, send)

    def _refusal(self, scope: Scope, headers: Headers, host: str) -> str | None:
        """Return the reason for a rejection, or None."""
        name = hostname(host)
        if scope["path"].rstrip("/") == WATCHED:
            return None
        if not self._is_public and any(header.decode() in headers for header in OF_PROXIES):
            return (
                "This page is for the machine on which it runs, and this request came through a proxy. To "
                "serve others, start it with PINE_ALLOWED_HOSTS set to the name under which they reach it."
            )
        if not _is_among(name, self._names | ALWAYS):
            return (
                f"This page is not reached as {name!r}; if it should be, start it with PINE_ALLOWED_HOSTS "
                "set to that name."
            )
        origin = headers.get("origin")
        if scope["method"] in READING or origin is None:
            return None
        caller = address(urlsplit(origin).netloc)
        if caller != address(host) and not _is_among(caller[0], self._callers):
            return (
                f"A page of {origin!r} may not call this one; if it should, start this one with "
                "PINE_ALLOWED_HOSTS set to the names of both."
            )
        return None


def hostname(netloc: str) -> str:
    """Return the name in `name:port` in lower case, without brackets of IPv6; "" if it is invalid."""
    try:
        return urlsplit(f"//{netloc}").hostname or ""
    except ValueError:
        return ""


def address(netloc: str) -> tuple[str, int | None]:
    """Return name and port of `name:port`; None for no port or a default port of HTTP and HTTPS."""
    try:
        port = urlsplit(f"//{netloc}").port
    except ValueError:
        return "", None
    return hostname(netloc), None if port in DEFAULT_PORTS else port


def _is_among(name: str, names: set[str]) -> bool:
    """Check whether a name matches an entry; "*." matches subdomains, "*" all."""
    return (
        ANY in names
        or name in names
        or any(one.startswith("*.") and name.endswith(one.removeprefix("*")) for one in names)
    )
