"""Clients as they are, each in an environment that has only the wheel and the client."""

import json
import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.api_server import server_process
from tests.support.commands import write
from tests.support.environments import clean_variables, run_apart
from tests.support.pages import PAGES, blocks

pytestmark = [pytest.mark.slow, pytest.mark.embedded, pytest.mark.timeout(2400)]

PACKAGES = {
    "openai": ["openai==3.57.0"],
    "langchain": ["langchain-openai==1.7.4"],
    "inspect_ai": ["inspect_ai==0.3.285", "openai==3.57.0"],
}
SCRIPTS = dict(zip(PACKAGES, blocks(PAGES["serving.md"]), strict=True))


@pytest.fixture(scope="module")
def address(
    published: Callable[..., Path], embedded_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Return the address of a server of the embedded model."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    folder = tmp_path_factory.mktemp("server")
    python = published("pine-explorer[serve]")
    command = [python, "-m", "pine_engine", "serve", "--port", port, "--model", embedded_folder]
    url = f"http://127.0.0.1:{port}"
    with server_process(command, f"{url}/health", folder, seconds=300, cwd=folder, env=clean_variables()):
        yield f"{url}/v1"


RIGHT_ANSWER = "Dario has the key to the boat shed."
TASK = """
task: keys
dataset_path: json
dataset_kwargs: {data_files: {test: keys.jsonl}}
test_split: test
doc_to_text: "{% for text in documents %}<document>{{ text }}</document>\\n{% endfor %}{{ question }}"
doc_to_target: "{{ answer }}"
output_type: generate_until
generation_kwargs: {until: ["\\n"], max_gen_toks: 8}
metric_list: [{metric: exact_match}]
"""
ROWS = [
    {"documents": ["Ann's key is 7.", f"{name}'s key is 4."], "question": f"Key of {name}?", "answer": "4"}
    for name in ("Ben", "Cy", "Dee")
]


@pytest.mark.parametrize("client", SCRIPTS)
def test_documented_script_runs(
    client: str, published: Callable[..., Path], address: str, tmp_path: Path
) -> None:
    script = write(tmp_path / "script.py", SCRIPTS[client])
    names = ("OPENAI_BASE_URL", "PINE_BASE_URL")
    variables = dict.fromkeys(names, address) | {"OPENAI_API_KEY": "none", "PINE_API_KEY": "none"}
    printed = run_apart(published(*PACKAGES[client]), tmp_path, script, **variables)
    assert address not in printed and "\n" in printed
    if client == "inspect_ai":
        assert re.search(r"^vanilla \[", printed, re.MULTILINE)
        assert re.search(r"^pine \[1\.0, 1\.0\]$", printed, re.MULTILINE), printed
    else:
        orders = re.findall(rf"^pine: {RIGHT_ANSWER}", printed, re.MULTILINE)
        assert len(orders) == len(re.findall(r"^vanilla: \S", printed, re.MULTILINE)) == 2, printed
        *_, streamed = printed.strip().splitlines()
        assert streamed == RIGHT_ANSWER


def test_documented_curl_has_right_answer(address: str) -> None:
    page = PAGES["serving.md"].read_text(encoding="utf-8")
    (command,) = re.findall(r"^```sh\n(curl .*?)^```$", page, re.MULTILINE | re.DOTALL)
    command = command.replace("http://127.0.0.1:8000/v1", address)
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=200)
    assert json.loads(done.stdout)["choices"][0]["message"]["content"] == RIGHT_ANSWER


def test_lm_eval_has_the_answers_of_the_server(
    published: Callable[..., Path], address: str, tmp_path: Path
) -> None:
    write(tmp_path / "keys.yaml", TASK)
    write(tmp_path / "keys.jsonl", "\n".join(map(json.dumps, ROWS)))
    url = f"{address}/chat/completions"
    options = f"--model local-chat-completions --model_args model=default,base_url={url} --tasks keys"
    saved = "--include_path . --apply_chat_template --log_samples --output_path out"
    python = published("lm-eval[api]==0.4.13")
    printed = run_apart(python, tmp_path, "-m", "lm_eval", *options.split(), *saved.split())
    assert "exact_match" in printed
    (samples,) = (tmp_path / "out").rglob("samples_*.jsonl")
    lines = list(map(json.loads, samples.read_text(encoding="utf-8").splitlines()))
    assert len(lines) == len(ROWS)
    for line in lines:
        messages = json.loads(line["arguments"]["gen_args_0"]["arg_0"][0])
        assert "<document>" in messages[-1]["content"]
        body = {"messages": messages, "max_tokens": 8, "stop": ["\n"]}
        answer = httpx.post(url, json=body, timeout=300).json()["choices"][0]["message"]["content"]
        assert line["resps"] == [[answer]] and answer
