"""Compressed responses, in the encodings that a client accepts, and the assets that browsers keep."""

import re

import httpx
import pytest

from tests.support.serving import ServedApp
from viz.page.common.widgets import PLOTLY_ADDRESS
from viz.page.serving.middleware import FOREVER, accepted


@pytest.mark.parametrize(
    ("header", "kept"),
    [
        ("gzip, deflate, br", "gzip,deflate,br"), ("gzip;q=0", ""), ("br, GZIP ; Q=0.000", "br"),
        ("gzip;q=0.5, br;q=0, *;q=0.0", "gzip;q=0.5"), ("gzip;q=1", "gzip;q=1"), ("", ""), (";q=0,;q=", ""),
    ],
)  # fmt: skip
def test_refused_encodings_are_removed(header: str, kept: str) -> None:
    assert accepted(header.encode()).decode() == kept


def test_page_and_assets_have_an_accepted_encoding(app: ServedApp) -> None:
    with httpx.Client(base_url=app.url) as client:
        page = client.get("/", headers={"Accept-Encoding": "gzip"})
        (script, *_) = re.findall(r"\./(assets/index-[^\"']+\.js)", page.text)
        for path in ("/", script, PLOTLY_ADDRESS):
            packed, br, *plain = (
                client.get(path, headers={"Accept-Encoding": header})
                for header in ("gzip, br;q=0", "br, gzip;q=0", "gzip;q=0, br;q=0.0", "identity")
            )
            assert packed.headers["content-encoding"] == "gzip"
            assert packed.num_bytes_downloaded < len(packed.content) / 2
            assert br.headers.get("content-encoding") in ("br", None)
            assert all("content-encoding" not in response.headers for response in plain)
            for response in (packed, br, *plain):
                assert response.content == packed.content
                assert "Accept-Encoding" in response.headers["vary"]
                assert (response.headers.get("cache-control") == FOREVER) == (path != "/")
        assert page.headers["content-security-policy"]
