"""Headers of all responses, and rejection of requests by host name, origin, route and login.

Protects against DNS rebinding, cross-site forms, forged proxy headers and unused routes of gradio.
"""

import re
from urllib.parse import unquote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pine_engine.web.addresses import LOCAL_NAMES, is_among, is_in, split_netloc
from pine_engine.web.middleware import without_headers
from viz.page.common.host_settings import HostSettings

# gradio's page is made of scripts and styles in the page itself, and compiles some of its own.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; media-src 'self' data: blob:; "
    "connect-src 'self' data: blob:; worker-src 'self' blob:; object-src 'none'; base-uri 'self'; "
    "form-action 'self'"
)

_NO_SNIFFING = {"X-Content-Type-Options": "nosniff"}
_HEADERS = _NO_SNIFFING | {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "same-origin",  # with "no-referrer" some browsers hide the origin of a request
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}

_LOGIN_PAGE = (
    r"theme\.css|favicon\.ico|robots\.txt|manifest\.json|login|logout|health|metrics"
    r"|(?:assets|static|svelte)/.*|gradio_api/theme\.css"
    r"|gradio_api/startup-events"  # gradio's own first request; it starts the queue, once
)
_PAGE = r"config|monitoring/summary"  # the second is for "Use via API" and empty, see app.py
_GRADIO = (
    r"info|openapi\.json|app_id|user|login_check|heartbeat/[^/]+|reset|cancel"
    r"|queue/(?:join|data)|(?:run|api)/[^/]+|call/.+|upload|upload_progress|file=.*|mcp(?:/.*)?"
)

WITHOUT_LOGIN = re.compile(rf"/(?:(?:{_LOGIN_PAGE})/?)?", re.DOTALL)
"""Paths without login: the login form, its assets, the health and gradio's start."""

OPEN = re.compile(rf"/(?:(?:{_LOGIN_PAGE}|{_PAGE}|gradio_api/(?:{_GRADIO}))/?)?", re.DOTALL)

CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f]")

ANY = "*"

ALWAYS = {*LOCAL_NAMES, "0.0.0.0"}  # names of this machine; the page uses them at its start
OF_PROXIES = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip")
CLAIMS = (*OF_PROXIES, b"x-gradio-server")  # headers that gradio trusts from any client

CALLS = "/gradio_api/info"
"""Route that reports the address of the page under the name of the first client, except for page requests."""

HEALTH = "/health"  # route for health checks, under any name

ASSETS = "/assets/"  # files whose names contain a hash of their content

FOREVER = "public, max-age=31536000, immutable"
"""Cache-Control of a URL with a version, so that caches never serve an old one."""


async def add_headers(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Add the security headers to a response, those of a document unless it is a script or a style sheet.

    Let browsers keep assets.
    """

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            # Those of a document are 40 KB of a first visit, if each script and style sheet has them.
            is_part = headers.get("Content-Type", "").startswith(("text/javascript", "text/css"))
            headers.update(_NO_SNIFFING if is_part else _HEADERS)
            if message["status"] == 200 and scope["path"].startswith(ASSETS):
                headers["Cache-Control"] = FOREVER
        await send(message)

    await app(scope, receive, send_with_headers)


class RequestFilter:
    """Middleware that rejects requests before gradio reads them, and removes forged headers of proxies.

    Only `Host` names the host for gradio. If the page is not public, requests through a proxy are rejected. A
    Space is reached only through its proxies, which check names. Starlette's TrustedHostMiddleware
    supports neither IPv6, origins nor the names that a proxy forwards.
    """

    def __init__(self, settings: HostSettings) -> None:
        self._is_public, self._is_space = settings.is_public, settings.is_space
        self._proxies = settings.proxies
        names = settings.allowed_hosts or ((ANY,) if settings.is_public else LOCAL_NAMES)
        self._names = {name.lower() for name in (*names, settings.host) if name} | ALWAYS
        # Not the names of this machine: other programs serve pages under them, at other ports.
        named = {name.lower() for name in settings.allowed_hosts} - ALWAYS
        self._callers = {ANY} if settings.is_space else named

    async def __call__(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or reject it."""
        headers, peer = Headers(scope=scope), scope.get("client")
        is_proxy = self._is_space or (peer is not None and is_in(peer[0], self._proxies))
        claimed = headers.get("x-forwarded-host") if is_proxy else None
        host = (claimed or headers.get("host", "")).split(",")[0].strip()
        problem = self._problem_of_sender(scope, headers, host)
        status, detail = (403, problem) if problem else _problem_of_route(scope)
        if detail:
            await JSONResponse({"detail": detail}, status)(scope, receive, send)
            return
        forged = (b"x-forwarded-host", b"x-gradio-server", b"forwarded") if is_proxy else CLAIMS
        plain = without_headers(scope, *forged, b"host")
        named = {**plain, "headers": [(b"host", host.encode("latin-1")), *plain["headers"]]}
        if scope["path"].rstrip("/") == CALLS:
            named["query_string"] = b"page=&" + scope["query_string"]
        await app(named, receive, send)

    def _problem_of_sender(self, scope: Scope, headers: Headers, host: str) -> str | None:
        """Return why a host name, an origin or a proxy is rejected; None if they are accepted."""
        (name, _), origin = split_netloc(host), headers.get("origin")
        if scope["path"].rstrip("/") == HEALTH:
            return None
        if not self._is_public and any(header.decode() in headers for header in OF_PROXIES):
            return (
                "Request through a proxy rejected: this page serves its own machine. To serve others, set "
                "PINE_ALLOWED_HOSTS to the name of the page."
            )
        if not is_among(name, self._names):
            return (
                f"Unknown host name: got {name!r}. To serve the page under this name, set PINE_ALLOWED_HOSTS."
            )
        if scope["method"] in ("GET", "HEAD", "OPTIONS") or origin is None:
            return None
        caller = split_netloc(urlsplit(origin).netloc)
        if caller != split_netloc(host) and not is_among(caller[0], self._callers):
            return f"Foreign origin: got {origin!r}. To accept it, set PINE_ALLOWED_HOSTS to both names."
        return None


def _problem_of_route(scope: Scope) -> tuple[int, str]:
    """Return status and sentence for a closed route or a missing login; (200, "") for others."""
    path, query = scope["path"], scope["query_string"].decode("latin-1")
    if any(CONTROL_CHARACTER.search(part) for part in (path, query, unquote(query))):
        return 400, (
            "Invalid request address: got a control character, expected printable characters. Remove it, "
            "also where it is percent-encoded."
        )
    if not OPEN.fullmatch(path):
        return 404, "Not found."
    if not WITHOUT_LOGIN.fullmatch(path) and not _is_logged_in(scope):
        return 401, (
            "Not authenticated: this page requires a login. Log in at /login with the name and the password."
        )
    return 200, ""


def _is_logged_in(scope: Scope) -> bool:
    """Check whether the page has no login, or the request has a valid cookie, as gradio does."""
    app = scope["app"]
    if app.auth is None:
        return True
    cookies = Request(scope).cookies
    names = (f"access-token-{app.cookie_id}", f"access-token-unsecure-{app.cookie_id}")
    return any(cookies.get(name) in app.tokens for name in names)
