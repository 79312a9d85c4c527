"""Security headers: no content of other sites, no referrer."""

from starlette.datastructures import MutableHeaders

from viz.page.common.asgi import App, Message, Receive, Scope, Send

# gradio's page is made of scripts and styles in the page itself, and compiles some of its own.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; media-src 'self' data: blob:; "
    "connect-src 'self' data: blob:; worker-src 'self' blob:; object-src 'none'; base-uri 'self'; "
    "form-action 'self'; frame-ancestors {}"
)


class SecurityHeaders:
    """ASGI middleware; `frame_ancestors` are the sites that may embed the page."""

    def __init__(self, app: App, frame_ancestors: str) -> None:
        self._app = app
        self._headers = {
            "Content-Security-Policy": _POLICY.format(frame_ancestors),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "same-origin",  # with "no-referrer" some browsers hide whose page asks
            "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and add the headers to the answer."""

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers)
            await send(message)

        await self._app(scope, receive, sending)
