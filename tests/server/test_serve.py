"""Subcommand `serve`: options, the chat template from a file, and the address."""

import os
import signal
import socket
import sys
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
import uvicorn
from starlette.testclient import TestClient

from pine_engine.cli.main import main
from pine_engine.server import listening
from pine_engine.server.settings import ServerSettings
from tests.support.api_server import wait_until
from tests.support.commands import Run
from tests.support.serving import free_port, is_answered

BODY = {"messages": [{"role": "user", "content": "Who?"}], "documents": ["Ann.", "Ben."], "max_tokens": 2}


@pytest.fixture
def served(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> list[uvicorn.Server]:
    servers: list[uvicorn.Server] = []
    monkeypatch.setenv("PINE_MODEL", str(tiny))
    monkeypatch.setattr(uvicorn.Server, "run", lambda server, sockets: servers.append(server))
    return servers


def client_of(server: uvicorn.Server) -> TestClient:
    app: Any = server.config.app
    return TestClient(app, base_url="http://localhost")


def test_served_model_answers(pine: Run, served: list[uvicorn.Server]) -> None:
    port = free_port()
    outcome = pine(
        "serve", "--port", port, "--method", "pcw", "--max-new-tokens", 4, "--allowed-origins", "*"
    )
    assert outcome.status == 0 and outcome.stdout == ""
    assert f"http://127.0.0.1:{port}/v1" in outcome.stderr
    (server,) = served
    client = client_of(server)
    answer = client.post("/v1/chat/completions", json=BODY).json()
    assert answer["pine_engine"]["method"] == "pcw"
    capped = client.post("/v1/chat/completions", json=BODY | {"max_tokens": 5}).json()
    assert capped["pine_engine"]["max_new_tokens"] == 4
    assert client.get("/health", headers={"host": "pine.example"}).status_code == 400
    headers = client.get("/health", headers={"origin": "https://a.example"}).headers
    assert headers["access-control-allow-origin"] == "*"


def test_keys_and_template_are_used(
    pine: Run, served: list[uvicorn.Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = tmp_path / "template.jinja"
    template.write_text("{{ messages[0]['content'] }}!")
    monkeypatch.setenv("PINE_API_KEYS", "a-key, another")
    outcome = pine("serve", "--port", free_port(), "--host", "0.0.0.0", "--chat-template", template)
    assert outcome.status == 0 and "API keys" not in outcome.stderr
    client = client_of(served[0])
    assert client.post("/v1/completions", json={"prompt": "Who?"}).status_code == 401
    client.headers["authorization"] = "Bearer another"
    plain = {"messages": BODY["messages"], "max_tokens": 1}
    answer = client.post("/v1/chat/completions", json=plain, headers={"host": "pine.example"}).json()
    assert answer["usage"]["prompt_tokens"] == len("Who?!")
    monkeypatch.delenv("PINE_API_KEYS")
    assert "API keys" in pine("serve", "--port", free_port(), "--host", "0.0.0.0").stderr


@pytest.mark.parametrize(
    ("options", "seconds"),
    [([], None), (["--host", "0.0.0.0"], 300), (["--host", "0.0.0.0", "--max-seconds", 5], 5)],
)
def test_answers_for_other_machines_have_a_time_limit(
    options: list[Any], seconds: float | None, pine: Run, served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[ServerSettings] = []
    monkeypatch.setattr(listening, "serve", lambda engine, settings, listener: found.append(settings))
    assert pine("serve", "--port", free_port(), *options).status == 0
    assert found[0].max_seconds == seconds


@pytest.mark.parametrize(
    ("options", "word"),
    [(["--method", "gpt"], "gpt"), (["--method", "pine,nia"], "one method"), (["--port", 0], "port"),
     (["--api-keys", " , "], "api_keys"), (["--api-keys", "first,k\u20acy"], "api_keys"),
     (["--chat-template", "none.jinja"], "none.jinja"),
     (["--queue-size", 0], "queue"), (["--allowed-origins", "a.example"], "a.example"),
     (["--host", "300.1.1.1"], "300.1.1.1"), (["--host", "[::1]"], "[::1]"), (["--host", "a b"], "a b"),
     (["--allowed-origins", "*,https://a.example/"], "https://a.example/"),
     *((["--allowed-origins", origin], origin) for origin in
       ("https://A.example", "https://a.example:443", "http://a.example:80", "http://a:b",
        "https://a.example?x", "https://ada@a.example", "https://a_é.example", "https://*.example", "https://",
        "https://300.1.1.1", "https://a..example", '["https://a.example"]', "null"))],
)  # fmt: skip
def test_wrong_option_is_rejected(pine: Run, options: list[Any], word: str) -> None:
    outcome = pine("serve", *options)
    assert outcome.status == 2 and word in outcome.stderr


def test_used_port_and_missing_package_are_named(
    pine: Run, served: list[uvicorn.Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        outcome = pine("serve", "--port", port)
    assert outcome.status == 2 and str(port) in outcome.stderr and not served
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    outcome = pine("serve")
    assert outcome.status == 2 and "pip install uvicorn==" in outcome.stderr


def serve_on(port: int, model: Path, log: Path) -> None:
    torch.set_num_threads(1)  # a fork has no other thread of this process
    sys.stdout = sys.stderr = log.open("w", buffering=1, encoding="utf-8")
    sys.argv = ["pine_engine", "serve", "--model", str(model), "--port", str(port)]
    main()


def test_server_ends_at_a_signal(tiny: Path, tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "log"
    process = get_context("fork").Process(target=serve_on, args=(port, tiny, log))
    process.start()
    wait_until(lambda: is_answered(f"http://127.0.0.1:{port}/health"), seconds=120)
    answer = httpx.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=BODY, timeout=60).json()
    assert answer["choices"][0]["message"]["role"] == "assistant"
    assert process.pid is not None
    os.kill(process.pid, signal.SIGINT)
    process.join(30)
    assert process.exitcode == 130
    assert "Traceback" not in log.read_text()
