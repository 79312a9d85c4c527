"""Head of the page: its language, and Open Graph tags for sites that link to the page.

The tags are title, finding and picture of the host's example.
"""

import json
import re
from functools import cache
from itertools import chain, repeat

from gradio.route_utils import get_root_url
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from viz.drawing.markup import render
from viz.page.answers.order_table import order_table_json
from viz.page.answers.recordings import recorded_of
from viz.page.common.look import ASSETS
from viz.page.form.examples import load_examples
from viz.page.form.options import DEFAULT_METHODS
from viz.page.serving.languages import language_of, language_script

CARD = ASSETS / "card.png"  # drawn by tools/share_card.py
CARD_ADDRESS = "/static/card.png"

_GRADIOS_TAG = re.compile(rb'<meta\s+(?:property="og:|name="twitter:)[^>]*>')


class PageHead:
    """Middleware that states the language, and replaces gradio's tags, which name the address of gradio.

    The address of the page is that of the request, whose host name `RequestFilter` has checked.
    """

    def __init__(self, root_path: str) -> None:
        self._root_path = root_path

    async def __call__(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; replace language and tags in a page."""
        if scope["path"] != "/" or scope["method"] != "GET":
            await app(scope, receive, send)
            return
        root_path = self._root_path or scope.get("root_path", "")
        request = Request(scope)
        language = language_of(request)
        tags = open_graph_tags(get_root_url(request, "/", root_path)) + language_script(language)
        start: Message = {}
        body = b""

        async def send_with_tags(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start":
                start = message
                return
            body += message.get("body", b"")
            if message.get("more_body"):
                return
            replacements = chain([tags.encode()], repeat(b""))
            page = _GRADIOS_TAG.sub(lambda _: next(replacements), body)
            page = page.replace(b'lang="en"', f'lang="{language}"'.encode(), 1)
            headers = MutableHeaders(scope=start)
            headers["Content-Length"] = str(len(page))
            headers.add_vary_header("Accept-Language")
            await send(start)
            await send({"type": "http.response.body", "body": page})

        await app(scope, receive, send_with_tags)


def open_graph_tags(root: str) -> str:
    """Render the tags of the page at this address."""
    question, finding = _first_example()
    return render(
        "open_graph.html", root=root, image=root + CARD_ADDRESS, question=question, description=finding
    )


@cache
def _first_example() -> tuple[str, str]:
    """Return the question of the first example, and the finding of its recorded answers."""
    first, *_ = load_examples()
    table = order_table_json(recorded_of(first.form(DEFAULT_METHODS)), first.answers)
    return first.question, json.loads(table)["finding"]
