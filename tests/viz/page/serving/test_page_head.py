"""Head of the page: language, and Open Graph tags with the address of the request."""

import json

import pytest
from starlette.responses import HTMLResponse
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from pine_engine.web.middleware import http_middleware
from tests.support.viz_reading import read_html
from viz.page.form.examples import load_examples
from viz.page.serving.languages import load_languages
from viz.page.serving.page_head import CARD, CARD_ADDRESS, PageHead

GRADIOS = """<html lang="en"><head><meta property="og:url" content="https://gradio.app/" />
<meta property="og:image" content="" />
<meta
  name="twitter:image" content="" /></head><p>Ünïcode</p></html>"""


async def gradios_page(scope: Scope, receive: Receive, send: Send) -> None:
    await HTMLResponse(GRADIOS)(scope, receive, send)


@pytest.mark.parametrize(
    ("root_path", "root"),
    [("", "https://pine.example"), ("/explorer", "https://pine.example/explorer"),
     ("https://other.example/x", "https://other.example/x")],
)  # fmt: skip
def test_tags_name_the_page_of_the_request(root_path: str, root: str) -> None:
    client = TestClient(http_middleware(PageHead(root_path))(gradios_page), base_url="https://pine.example")
    answer = client.get("/")
    tags = {
        tag.attributes.get("property"): tag.attributes["content"]
        for tag in read_html(answer.text).all("meta")
    }
    assert (tags["og:url"], tags["og:image"]) == (f"{root}/", root + CARD_ADDRESS)
    assert load_examples()[0].question in tags["og:description"]
    assert "gradio" not in answer.text and answer.text.endswith("<p>Ünïcode</p></html>")
    assert client.get("/config").text == GRADIOS


def test_card_has_the_size_of_its_tags() -> None:
    header = CARD.read_bytes()[:24]
    assert header.startswith(b"\x89PNG")
    assert [int.from_bytes(header[start : start + 4]) for start in (16, 20)] == [1200, 630]


@pytest.mark.parametrize("language", load_languages())
def test_page_states_the_language_of_the_request(language: str) -> None:
    client = TestClient(http_middleware(PageHead(""))(gradios_page))
    for address, headers in ((f"/?lang={language}", {}), ("/", {"Accept-Language": language})):
        answer = client.get(address, headers=headers)
        assert read_html(answer.text).all("html")[0].attributes["lang"] == language
        assert json.dumps(language) in answer.text and answer.headers["Vary"] == "Accept-Language"
