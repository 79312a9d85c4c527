"""A scripted server, and an endpoint with its address."""

from collections.abc import Iterator

import pytest

from pine_engine.endpoint import client as client_module
from pine_engine.endpoint.client import Endpoint
from tests.support.api_server import running_app
from tests.support.scripted_endpoint import KEY, ScriptedServer


@pytest.fixture
def server() -> ScriptedServer:
    return ScriptedServer()


@pytest.fixture
def endpoint(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setattr(client_module, "MAX_RETRIES", 0)
    with running_app(server.app) as address:
        yield Endpoint(f"{address}/v1", "m", api_key=KEY, max_concurrency=3)
