"""Hosted process as its operator sees it: health, full queue, log and shutdown."""

import json
import re
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from gradio_client import Client

from tests.support.forks import fork
from tests.support.serving import ServedApp, started_app
from tests.support.tokenizers import letter_tokenizer

ROOT = Path(__file__).parents[4]


SIGNAL_IN_A_THREAD = """
import signal, sys, threading, time
from viz.page.serving.shutdown import end_signal, wait_for_end

signaled = end_signal()
def receive():
    time.sleep(0.5)
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    time.sleep(60)

threading.Thread(target=receive, daemon=True).start()
wait_for_end(signaled)
print("ended")
"""


@pytest.mark.slow
def test_end_signal_in_another_thread_is_received(tmp_path: Path) -> None:
    printed = tmp_path / "printed"
    process = fork(exec, SIGNAL_IN_A_THREAD, {}, stdout=printed, stderr=tmp_path / "failed")
    process.join(30)
    assert (process.exitcode, printed.read_text()) == (0, "ended\n")


A_LONG_LAYER = """
import time
import gradio as gr
from pine_engine.scheduling.runs import Runs
from viz.page.serving.shutdown import end_process, end_signal, shut_down, wait_for_end

runs = Runs()
def read_prompt():
    with runs.recorded(runs.new("compare")):
        print("reading", flush=True)
        time.sleep(90)

with gr.Blocks() as page:
    gr.on(None, read_prompt, api_name="read", concurrency_limit=None)
signaled = end_signal()
_, address, _ = page.launch(prevent_thread_lock=True, quiet=True)
print(address, flush=True)
shut_down(page, runs, 1, since=wait_for_end(signaled))
time.sleep(90)  # clean-up that does not end
end_process()
"""


def test_long_layer_does_not_delay_shutdown(tmp_path: Path) -> None:
    printed, failed = tmp_path / "printed", tmp_path / "failed"
    process = fork(exec, A_LONG_LAYER, {}, stdout=printed, stderr=failed)

    def line(number: int) -> str:
        while not (printed.exists() and printed.read_text().count("\n") > number):
            assert process.is_alive(), failed.read_text()
            time.sleep(0.02)
        return printed.read_text().splitlines()[number]

    call = f"{line(0)}gradio_api/call/read"
    event = httpx.post(call, json={"data": []}).json()["event_id"]
    assert line(1) == "reading"
    with httpx.stream("GET", f"{call}/{event}", timeout=30) as answer:
        process.terminate()
        began = time.monotonic()
        assert any("The server is shutting down" in line for line in answer.iter_lines())
    process.join(100)
    assert process.exitcode == 0
    assert time.monotonic() - began < 10  # 2 s on an idle machine; docker kills after 10


def serve_on(port: int) -> None:
    import app

    sys.argv = ["app.py", "--port", str(port), "--model", "no-folder-of-this-name"]
    app.main()


def test_main_port_in_use_exits_with_status_2(tmp_path: Path) -> None:
    failed = tmp_path / "failed"
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        process = fork(serve_on, port, stdout=tmp_path / "printed", stderr=failed)
        process.join(100)
    (sentence,) = failed.read_text().splitlines()
    assert process.exitcode == 2
    assert all(word in sentence for word in (f"port {port}", "--port", "PINE_PORT"))


# the image


def instructions() -> list[list[str]]:
    """Those of the Dockerfile, as words; continued lines are one."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    return [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def copied() -> list[tuple[Path, str]]:
    """Return the files and folders of the image, by their source here."""
    pairs = []
    for name, *words in instructions():
        if name == "COPY":
            *sources, target = words
            pairs += [
                (ROOT / source, target if source.endswith("/") else f"{target}/{source}")
                for source in sources
            ]
    return pairs


def test_image_runs_as_user_with_health_check() -> None:
    found = {name: words for name, *words in instructions()}
    assert found["USER"] == ["pine"]
    assert "--uid 1000 pine" in (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert json.loads(" ".join(found["CMD"])) == ["python", "app.py"]
    assert "'/health'" in " ".join(found["HEALTHCHECK"])
    settings = dict(word.split("=") for name, *words in instructions() if name == "ENV" for word in words)
    assert settings.items() >= {"PINE_HOST": "0.0.0.0", "PINE_PORT": "7860"}.items()
    assert found["EXPOSE"] == ["7860"]


def arguments() -> dict[str, str]:
    """Those of the build, with their defaults."""
    return dict(words[0].split("=", 1) for name, *words in instructions() if name == "ARG")


def test_image_base_is_pinned_by_digest() -> None:
    assert [words for name, *words in instructions() if name == "FROM"] == [["$BASE"]]
    assert re.fullmatch(r"python:3\.12-slim@sha256:[0-9a-f]{64}", arguments()["BASE"])


def test_image_installs_hashed_wheels_from_one_index() -> None:
    steps = [part for name, *words in instructions() if name == "RUN" for part in " ".join(words).split("&&")]
    installs = [step.split() for step in steps if "install" in step and "apt-get" not in step]
    for words in installs:
        assert words[:2] == ["pip", "install"]
        assert "--require-hashes" in words
        assert words[words.index("--only-binary") + 1] == ":all:"
        assert not [word for word in words if "index" in word or "find-links" in word]
        assert not [word for word in words[words.index("-r") + 2 :] if not word.startswith("-")]
    files = [words[words.index("-r") + 1] for words in installs]
    assert files == ["requirements-torch-$TORCH.txt", "requirements-lock.txt", "requirements-model.txt"]
    assert arguments()["TORCH"] == "cpu"
    held = {source.name for source, _ in copied()}
    assert held >= {file.replace("$TORCH", build) for file in files for build in ("cpu", "cuda")}


def test_recipe_limits_the_container() -> None:
    page = (ROOT / "docs" / "hosting.md").read_text(encoding="utf-8")
    (recipe,) = re.findall(r"^    docker run (.*?)\n\n", page, re.DOTALL | re.MULTILINE)
    words = recipe.replace("\\\n", " ").split()
    assert {"--read-only", "--memory", "--pids-limit"} <= set(words)
    inputs = dict(pairwise(words))
    assert inputs["--cap-drop"] == "ALL" and inputs["--security-opt"] == "no-new-privileges"
    assert inputs["--tmpfs"].partition(":")[0] == "/tmp"
    assert int(inputs["--stop-timeout"]) >= 15


def test_image_files_exist_and_reach_docker() -> None:
    ignored, *rules = [
        line
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    assert ignored == "*"
    for source, _ in copied():
        assert source.exists(), source
        assert any(fnmatch(source.name, rule.removeprefix("!")) for rule in rules if rule.startswith("!"))


# a process, from the files of the image

DOCUMENTS = ["red cat", "green hat", "white mat", "black bat"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Callable[..., Any]) -> Iterator[ServedApp]:
    folder = tmp_path_factory.mktemp("hosted")
    tiny_llama(max_context_length=4096).save_pretrained(folder / "tiny")
    letter_tokenizer().save_pretrained(folder / "tiny")
    image = folder / "image"
    for source, target in copied():
        copy = shutil.copytree if source.is_dir() else shutil.copy2
        (image / target).parent.mkdir(parents=True, exist_ok=True)
        copy(source, image / target)
    flags = ("--max-active-runs=1", f"--model={folder / 'tiny'}")
    # As in a container that can be written nowhere but in its temporary folder.
    for name in ("home", "temporary"):
        (folder / name).mkdir()
    environment = {
        "PYTHONPATH": str(image),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": str(folder / "home"),
        "XDG_CACHE_HOME": str(folder / "home" / ".cache"),
        "TMPDIR": str(folder / "temporary"),
    }
    with started_app(folder / "app.log", *flags, environment=environment, folder=image) as served:
        deadline = time.monotonic() + 60
        while get_health(served).status_code != 200:
            assert time.monotonic() < deadline, served.log.read_text()
            time.sleep(0.2)
        yield served


def get_health(app: ServedApp) -> httpx.Response:
    return httpx.get(f"{app.url}health", timeout=10)


def wait_for(app: ServedApp, **state: int) -> None:
    """Wait until /health shows this state."""
    deadline = time.monotonic() + 30
    while not state.items() <= (record := get_health(app).json()).items():
        assert time.monotonic() < deadline, record
        time.sleep(0.05)


@pytest.mark.slow
def test_process_under_load_reports_rejects_and_ends(served: ServedApp) -> None:
    client = Client(served.url, verbose=False)
    long = {"documents": DOCUMENTS, "methods": ["pine", "vanilla"], "max_new_tokens": 500}
    running = client.submit("Which is green?", *long.values(), api_name="/shuffle")
    wait_for(served, running=1)
    waiting = client.submit("Which is not green?", *long.values(), api_name="/shuffle")
    wait_for(served, running=1, waiting=1)
    assert get_health(served).elapsed.total_seconds() < 1  # while the model runs
    call = f"{served.url}gradio_api/call/compare"
    data = {"data": ["Which?", 6 * DOCUMENTS, ["pine"], 3, "", [], {}]}
    event_id = httpx.post(call, json=data, timeout=10).json()["event_id"]
    assert "Too many documents: 24" in httpx.get(f"{call}/{event_id}", timeout=10).text

    served.process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    ended = [str(job.exception(timeout=30) or job.result()) for job in (running, waiting)]
    assert served.process.wait(20) == 0
    assert time.monotonic() - began < 15
    assert any("The server is shutting down" in message for message in ended)
    log = served.log.read_text()
    assert "Traceback" not in log and "green" not in log
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert [(line["operation"], line["outcome"]) for line in lines] == [
        ("api compare", "rejected"),
        ("api shuffle", "shutdown"),
        ("api shuffle", "shutdown"),
    ]


@pytest.mark.slow
def test_process_writes_to_temporary_folder_only(served: ServedApp) -> None:
    folder = served.log.parent
    assert not list((folder / "home").rglob("*"))
    image = folder / "image"
    assert [path for path in image.rglob("*") if not (ROOT / path.relative_to(image)).exists()] == []
