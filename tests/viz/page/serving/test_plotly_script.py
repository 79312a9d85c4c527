"""plotly.js as the page serves it."""

from pathlib import Path

from plotly.offline import get_plotlyjs_version
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from viz.page.common.theme import PLOTLY, page_head
from viz.page.serving.open_routes import OPEN
from viz.page.serving.plotly_script import add_plotly

ADDRESS = f"/static/plotly-{get_plotlyjs_version()}.js"


def test_a_browser_gets_it_packed_and_may_keep_it() -> None:
    app = Starlette(routes=[Route("/{path:path}", lambda _: PlainTextResponse("gradio"))])
    add_plotly(app)
    client = TestClient(app)
    packed = client.get(ADDRESS, headers={"accept-encoding": "gzip"})
    assert int(packed.headers["content-length"]) < 600_000
    assert packed.content == client.get(ADDRESS, headers={"accept-encoding": "identity"}).content
    assert packed.content == Path(PLOTLY).read_bytes()
    assert "immutable" in packed.headers["cache-control"]
    assert packed.headers["content-type"].startswith("text/javascript")


def test_the_page_knows_its_address_which_is_open() -> None:
    assert f'"{ADDRESS}"' in page_head() and OPEN.fullmatch(ADDRESS)
