"""Under which names the page is reached, and whose pages may call it.

A name of somebody else's can be made to lead to this machine (DNS rebinding), any site can send a form to it,
and whoever asks can claim with a header that a proxy has sent them.
"""

from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse

from viz.page.common.addresses import Network, is_in
from viz.page.common.asgi import App, Receive, Scope, Send, without_headers
from viz.page.common.host_settings import LOCAL_NAMES, HostSettings

ANY = "*"

ALWAYS = {*LOCAL_NAMES, "0.0.0.0"}
"""Names that can be made to lead nowhere else; the page itself uses them when it starts."""

OF_PROXIES = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip")
CLAIMS = (*OF_PROXIES, b"x-gradio-server")
"""Headers that gradio believes, whoever sends them."""

DEFAULT_PORTS = (80, 443)

READING = ("GET", "HEAD", "OPTIONS")

CALLS = "/gradio_api/info"
"""Tells how the page is called, under the first caller's name for it to all, unless a page is asked for."""

WATCHED = "/health"
"""Asked for by whoever watches the process, under any name."""


class TrustedHosts:
    """ASGI middleware: refuses requests under other names, and what pages of other sites want to change.

    What goes on to gradio names the host in `Host` alone. is_public: whether others than this machine may
    reach the page; if not, nothing that came through a proxy is answered. is_space: on a Space of Hugging
    Face, which is reached through its proxies alone; they see to the names. proxies: networks of the proxies
    whose headers are trusted.
    """

    def __init__(
        self,
        app: App,
        settings: HostSettings,
        *,
        is_public: bool,
        is_space: bool,
        proxies: Iterable[Network],
    ) -> None:
        self._app = app
        self._is_public, self._is_space = is_public, is_space
        names = settings.allowed_hosts or ((ANY,) if is_public else LOCAL_NAMES)
        self._names = {name.lower() for name in (*names, settings.host) if name}
        # Not the names of this machine: other programs serve pages under them, at other ports.
        self._callers = {ANY} if is_space else {name.lower() for name in settings.allowed_hosts} - ALWAYS
        self._proxies = tuple(proxies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on, or answers why not."""
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
        """Why a request is not answered; None if it is."""
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
    """The name in `name:port`, in lower case, of an IPv6 address without brackets; "" for nonsense."""
    try:
        return urlsplit(f"//{netloc}").hostname or ""
    except ValueError:
        return ""


def address(netloc: str) -> tuple[str, int | None]:
    """Return the name and the port of `name:port`; None for no port, and for the default of HTTP or HTTPS.

    Browsers leave a default port out, and a proxy that ends HTTPS may not tell which of the two it was.
    """
    try:
        port = urlsplit(f"//{netloc}").port
    except ValueError:
        return "", None
    return hostname(netloc), None if port in DEFAULT_PORTS else port


def _is_among(name: str, names: set[str]) -> bool:
    """Whether a name is there, or under one that begins with "*."; "*" stands for any."""
    return (
        ANY in names
        or name in names
        or any(one.startswith("*.") and name.endswith(one.removeprefix("*")) for one in names)
    )
