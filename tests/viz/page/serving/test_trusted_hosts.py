"""Under which names the page answers, to whose pages, and what it believes of a proxy."""

from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.testclient import TestClient

from viz.page.common.host_settings import HostSettings
from viz.page.serving.trusted_hosts import AllowedHostsMiddleware

STRANGER = ("203.0.113.9", 1234)
LOCAL = ("127.0.0.1", 1234)


async def tell(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the headers that came through."""
    await JSONResponse(dict(Request(scope).headers))(scope, receive, send)


def trusting(*names: str) -> HostSettings:
    return HostSettings.model_validate({"trusted_proxies": names})


def ask(
    settings: HostSettings | None = None,
    headers: dict[str, str] | None = None,
    *,
    method: str = "POST",
    path: str = "/gradio_api/queue/join",
    is_public: bool = False,
    is_space: bool = False,
    peer: tuple[str, int] = LOCAL,
) -> tuple[int, Any]:
    with pytest.MonkeyPatch.context() as patch:
        if is_public:
            patch.setenv("GRADIO_SHARE", "true")
        if is_space:
            patch.setenv("SPACE_ID", "x/y")
        app = AllowedHostsMiddleware(tell, settings or HostSettings())
    client = TestClient(app, base_url="http://localhost:7860", client=peer)
    response = client.request(method, path, headers=headers)
    return response.status_code, response.json()


@pytest.mark.parametrize(
    "host", ["localhost:7860", "127.0.0.1:7860", "[::1]:7860", "LOCALHOST", "0.0.0.0:7860"]
)
@pytest.mark.parametrize("has_origin", [False, True])
def test_this_machine_is_answered_under_its_own_names(host: str, has_origin: bool) -> None:
    headers = {"Host": host} | ({"Origin": f"http://{host.lower()}"} if has_origin else {})
    assert ask(headers=headers)[0] == 200


@pytest.mark.parametrize("trusted", [(), ("localhost", "pine.example")])
@pytest.mark.parametrize(
    "origin",
    ["http://localhost:3000", "http://localhost", "https://localhost:8443", "http://127.0.0.1:7860"],
)
def test_origin_with_another_port_or_name_of_this_machine_is_refused(
    origin: str, trusted: tuple[str, ...]
) -> None:
    headers = {"Host": "localhost:7860", "Origin": origin}
    assert ask(HostSettings(allowed_hosts=trusted), headers, is_public=bool(trusted))[0] == 403


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("pine.example", "https://pine.example", 200),  # HTTPS that ends at a proxy
        ("pine.example:443", "https://pine.example", 200),
        ("PINE.example:8443", "https://pine.example:8443", 200),
        ("pine.example", "https://pine.example:8443", 403),
        ("pine.example:8443", "https://pine.example", 403),
        ("[2001:db8::1]:7860", "http://[2001:db8::1]:7860", 200),
        ("pine.example", "https://pine.example:x", 403),
    ],
)
def test_origin_equals_the_host_with_its_port_or_is_refused(host: str, origin: str, status: int) -> None:
    assert ask(headers={"Host": host, "Origin": origin}, is_public=True)[0] == status
    forwarded = {"Host": "page:7860", "X-Forwarded-Host": host, "Origin": origin}
    assert ask(headers=forwarded, is_public=True)[0] == status


@pytest.mark.parametrize("peer", ["10.0.0.7", "172.17.0.1", "192.168.1.40", "fd00::7"])
def test_a_client_in_a_private_network_is_no_proxy_unless_it_is_named(peer: str) -> None:
    claims = {"Host": "real.example", "X-Forwarded-For": "198.51.100.7", "X-Forwarded-Host": "x.example"}
    record = ask(None, claims, is_public=True, peer=(peer, 1))[1]
    assert record["host"] == "real.example" and "x-forwarded-for" not in record
    named = ask(trusting(peer), claims, is_public=True, peer=(peer, 1))[1]
    assert named["host"] == "x.example" and named["x-forwarded-for"] == "198.51.100.7"


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "host",
    ["rebound.example", "rebound.example:7860", "localhost.rebound.example", "127.0.0.1.nip.io", "", "["],
)
def test_a_name_that_was_made_to_lead_here_is_not_answered(host: str, method: str) -> None:
    status, record = ask(headers={"Host": host}, method=method)
    assert status == 403
    assert "This page is not reached as" in record["detail"] and "PINE_ALLOWED_HOSTS" in record["detail"]


@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost.evil.example", "x"])
def test_pages_of_other_sites_change_nothing(origin: str, public: bool) -> None:
    status, record = ask(headers={"Origin": origin}, is_public=public)
    assert status == 403 and f"A page of {origin!r} may not call this one" in record["detail"]
    assert ask(headers={"Origin": origin}, is_public=public, method="GET")[0] == 200


def test_named_sites_may_call_and_any_on_a_space() -> None:
    settings = HostSettings(allowed_hosts=("pine.example", "*.school.example"))
    for origin in ("https://pine.example", "https://maths.school.example:8443"):
        assert ask(settings, {"Host": "pine.example", "Origin": origin}, is_public=True)[0] == 200
    assert (
        ask(settings, {"Host": "pine.example", "Origin": "https://other.example"}, is_public=True)[0] == 403
    )
    assert ask(settings, {"Host": "other.example"}, is_public=True)[0] == 403
    assert ask(settings, {"Host": "school.example"}, is_public=True)[0] == 403
    assert (
        ask(headers={"Host": "x.hf.space", "Origin": "https://y.example"}, is_public=True, is_space=True)[0]
        == 200
    )


@pytest.mark.parametrize(
    "header", ["Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP"]
)
def test_a_page_for_this_machine_is_not_served_through_a_proxy(header: str) -> None:
    status, record = ask(headers={header: "x"}, method="GET")
    assert status == 403 and "this request came through a proxy" in record["detail"]
    assert "PINE_ALLOWED_HOSTS" in record["detail"]


def test_only_a_trusted_proxy_is_believed_and_gradio_hears_of_one_name() -> None:
    claims = {
        "X-Forwarded-Host": "claimed.example",
        "X-Forwarded-For": "198.51.100.7",
        "X-Forwarded-Proto": "https",
        "X-Gradio-Server": "http://evil.example",
        "Forwarded": "host=evil.example",
    }
    status, record = ask(headers={"Host": "real.example"} | claims, is_public=True, peer=STRANGER)
    assert status == 200 and record["host"] == "real.example"
    assert not {name.lower() for name in claims} & set(record)
    for settings, peer in (
        (HostSettings(), LOCAL),
        (HostSettings(), ("::1", 1234)),
        (trusting("::1", "203.0.113.9"), STRANGER),
        (trusting("203.0.113.0/24"), STRANGER),
    ):
        status, record = ask(settings, {"Host": "inner"} | claims, is_public=True, peer=peer)
        assert status == 200 and record["host"] == "claimed.example"
        assert record["x-forwarded-for"] == "198.51.100.7" and record["x-forwarded-proto"] == "https"
        assert not {"x-forwarded-host", "x-gradio-server", "forwarded"} & set(record)


def test_a_space_is_reached_through_its_proxies_alone() -> None:
    claims = {"Host": "someone-space.hf.space", "X-Forwarded-Proto": "https"}
    status, record = ask(headers=claims, is_public=True, is_space=True, peer=STRANGER)
    assert status == 200 and record["x-forwarded-proto"] == "https"


def test_a_proxy_that_is_not_named_is_not_believed() -> None:
    settings = trusting("10.0.0.1")
    claims = {"Host": "real.example", "X-Forwarded-Proto": "https"}
    record = ask(settings, claims, is_public=True, peer=("10.0.0.2", 1))[1]
    assert "x-forwarded-proto" not in record and record["host"] == "real.example"


def test_what_a_proxy_says_of_the_name_is_judged_too() -> None:
    settings = HostSettings(allowed_hosts=("pine.example",))
    headers = {"Host": "localhost", "X-Forwarded-Host": "evil.example"}
    assert ask(settings, headers, is_public=True)[0] == 403


def test_health_is_served_under_any_host_name() -> None:
    assert ask(headers={"Host": "10.1.2.3:7860"}, method="GET", path="/health")[0] == 200
