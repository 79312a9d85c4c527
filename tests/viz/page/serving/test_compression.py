"""Compressed responses, in the encodings that a client accepts, and the assets that browsers keep."""

import re

import httpx

from tests.support.serving import ServedApp
from viz.page.common.look import PLOTLY_ADDRESS
from viz.page.serving.middleware import FOREVER


def test_page_and_assets_have_an_accepted_encoding(app: ServedApp) -> None:
    with httpx.Client(base_url=app.url) as client:
        page = client.get("/", headers={"Accept-Encoding": "gzip"})
        (script, *_) = re.findall(r"\./(assets/index-[^\"']+\.js)", page.text)
        for path in ("/", script, PLOTLY_ADDRESS):
            headers = (
                "gzip, deflate, br", "gzip, br;q=0", "gzip;q=0, br;q=0.0", ";q=0,;q=", "identity",
            )  # fmt: skip
            br, packed, *plain = (client.get(path, headers={"Accept-Encoding": header}) for header in headers)
            assert [response.headers["content-encoding"] for response in (br, packed)] == ["br", "gzip"]
            assert br.num_bytes_downloaded < packed.num_bytes_downloaded < len(packed.content) / 2
            assert all("content-encoding" not in response.headers for response in plain)
            for response in (packed, br, *plain):
                assert response.content == packed.content
                assert "Accept-Encoding" in response.headers["vary"]
                assert (response.headers.get("cache-control") == FOREVER) == (path != "/")
        assert page.headers["content-security-policy"]
