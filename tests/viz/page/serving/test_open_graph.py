"""Open Graph tags of the page, with the address of the request."""

import pytest
from starlette.responses import HTMLResponse
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from pine_engine.web.middleware import http_middleware
from tests.support.viz_reading import read_html
from viz.page.form.examples import load_examples
from viz.page.serving.open_graph import CARD, CARD_ADDRESS, OpenGraph

GRADIOS = """<head><meta property="og:url" content="https://gradio.app/" />
<meta property="og:image" content="" />
<meta
  name="twitter:image" content="" /></head><p>Ünïcode</p>"""


async def gradios_page(scope: Scope, receive: Receive, send: Send) -> None:
    await HTMLResponse(GRADIOS)(scope, receive, send)


@pytest.mark.parametrize(
    ("root_path", "root"),
    [("", "https://pine.example"), ("/explorer", "https://pine.example/explorer"),
     ("https://other.example/x", "https://other.example/x")],
)  # fmt: skip
def test_tags_name_the_page_of_the_request(root_path: str, root: str) -> None:
    client = TestClient(http_middleware(OpenGraph(root_path))(gradios_page), base_url="https://pine.example")
    answer = client.get("/")
    tags = {
        tag.attributes.get("property"): tag.attributes["content"]
        for tag in read_html(answer.text).all("meta")
    }
    assert (tags["og:url"], tags["og:image"]) == (f"{root}/", root + CARD_ADDRESS)
    assert load_examples()[0].question in tags["og:description"]
    assert "gradio" not in answer.text and answer.text.endswith("<p>Ünïcode</p>")
    assert client.get("/config").text == GRADIOS


def test_card_has_the_size_of_its_tags() -> None:
    header = CARD.read_bytes()[:24]
    assert header.startswith(b"\x89PNG")
    assert [int.from_bytes(header[start : start + 4]) for start in (16, 20)] == [1200, 630]
