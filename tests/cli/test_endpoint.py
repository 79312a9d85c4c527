"""Subcommands with --endpoint: results are those of the model itself, and runs resume."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from pine_engine import Engine
from pine_engine.cli import main as cli, output
from pine_engine.cli.output import BAD_INPUT, FAILED, STOPPED
from pine_engine.endpoint import client as client_module
from pine_engine.endpoint.client import Endpoint
from pine_engine.errors import EndpointError
from pine_engine.lab.evaluation.record import Key
from pine_engine.lab.evaluation.run_files import read_records
from tests.support.api_server import running_app, running_server, server_process
from tests.support.commands import Outcome, Run, Steps, write
from tests.support.measured_rows import TIMES
from tests.support.molecule_rows import write_rows
from tests.support.scripted_endpoint import ScriptedServer, answer, failure
from tests.support.serving import free_port
from tests.support.tiers import first_daily

DOCUMENTS = ["Ann has the bell.", "Ben has the key.", "Cy has the map."]
ROWS = [
    {"id": f"q{n}", "question": f"Who {n}?", "prefix": "Read.", "documents": DOCUMENTS, "answers": ["Ben"],
     "gold_index": 1}
    for n in range(2)
]  # fmt: skip
METHODS = "--methods vanilla,reorder_content,permutation_cyclic"
OPTIONS = f"{METHODS} --orders as-is,reversed --max-new-tokens 3 --metrics generate --json"
NUM_RECORDS, NUM_REQUESTS = 2 * 3 * 2, 2 * (6 + 1 + 1)
"""Requests: each prompt of an example once, and one of them again."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "data.jsonl", ROWS)


@pytest.fixture
def on_model(pine: Run, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs a subcommand with the model itself."""
    monkeypatch.setattr(output, "load", lambda *_, **__: engine)
    return lambda *arguments: pine(*arguments, "--model", "model")


@pytest.fixture
def on_endpoint(pine: Run, engine: Engine) -> Iterator[Run]:
    """Return a function that runs a subcommand with the model on the server."""
    with running_server(engine) as (address, _):
        yield lambda *arguments: pine(*arguments, "--endpoint", f"{address}/v1", "--model", "model")


def records_of(folder: Path) -> dict[Key, dict[str, Any]]:
    excluded = {*TIMES, "is_repeatable"}
    return {record.key: record.model_dump(exclude=excluded) for record in read_records(folder)}


def evaluate(run: Run, data: Path, folder: Path, options: str = OPTIONS) -> Outcome:
    return run("evaluate", data, "--output-dir", folder, *options.split())


def test_records_are_those_of_the_model(
    pine: Run, on_model: Run, on_endpoint: Run, data: Path, tmp_path: Path, steps: Steps
) -> None:
    evaluate(on_model, data, tmp_path / "model")
    outcome = evaluate(on_endpoint, data, tmp_path / "endpoint")
    assert outcome.status == 0
    records = records_of(tmp_path / "endpoint")
    assert records == records_of(tmp_path / "model") and len(records) == NUM_RECORDS
    assert outcome.json["repeated"] == {"requests": 2, "changed": 0}
    assert outcome.stderr.splitlines()[1].startswith(f"requests: {NUM_REQUESTS}, of which 2 repeat")
    assert steps.announced[-1] == NUM_RECORDS
    again = evaluate(on_endpoint, data, tmp_path / "endpoint")
    assert again.json["summary"] == outcome.json["summary"] and "requests: " not in again.stderr
    changed = evaluate(on_endpoint, data, tmp_path / "endpoint", f'{OPTIONS} --extra-body {{"n":1}}')
    assert changed.status == BAD_INPUT and "extra-body" in changed.stderr
    assert pine("report", tmp_path / "endpoint", "--output-dir", tmp_path / "report").status == 0
    text = (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    assert "repeated: 0 of 2" in text and "--endpoint http" in text


def likely_letters(engine: Engine, **request: Any) -> list[str]:
    """Return all letters as answers to a request, most likely first."""
    run = engine.run(**request, methods="vanilla", max_new_tokens=1, return_logits=True)
    logits = run.logits["vanilla"][-1].tolist()
    letters = [chr(code) for code in range(33, 123)]
    return sorted(letters, key=lambda letter: -logits[engine.tokenize_answer(letter)[0]])


def test_choices_have_the_log_probabilities_of_the_model(
    on_model: Run, on_endpoint: Run, engine: Engine, tmp_path: Path
) -> None:
    first, second, *_, last = likely_letters(engine, question="Who 0?", documents=DOCUMENTS)
    rows = [{**ROWS[0], "prefix": "", "choices": [first, second], "answers": [second]}]
    rows.append({**rows[0], "id": "q1", "choices": [first, last]})
    data = write_rows(tmp_path / "choices.jsonl", rows)
    options = "--methods vanilla --metrics logprob --json"
    complete = evaluate(on_model, data, tmp_path / "model", options)
    outcome = evaluate(on_endpoint, data, tmp_path / "endpoint", options)
    expected, found = (read_records(tmp_path / name) for name in ("model", "endpoint"))
    assert found[0].choice_logprobs == pytest.approx(expected[0].choice_logprobs, abs=1e-4)
    assert found[0].answer_logprob == pytest.approx(expected[0].answer_logprob, abs=1e-4)
    assert (found[0].choice_score, found[0].text) == (0.0, None)
    assert found[1].choice_logprobs is None and found[1].answer_logprob is None
    assert "1 of 2 records" in outcome.stderr and "no log-probabilities" not in complete.stderr


@pytest.mark.parametrize(
    ("task", "methods"),
    [("options", "vanilla,permutation_cyclic"), ("ranking", "vanilla,capcal,permutation_kemeny")],
)
def test_letters_have_the_probabilities_of_the_model(
    on_model: Run,
    pine: Run,
    engine: Engine,
    tmp_path: Path,
    tiny_llama: Callable[..., Any],
    task: str,
    methods: str,
) -> None:
    """The server has the log-probabilities of letters, which are rarely likely tokens of a random model.

    It returns them as tokens with and without a blank, as the model scores both spellings.
    """
    stock, tokenizer = tiny_llama(max_context_length=900, head_dim=32), engine.tokenizer
    letters = dict(zip("ABC", tokenizer("ABC")["input_ids"], strict=True))

    def respond(body: dict[str, Any]) -> dict[str, Any]:
        ids = tokenizer.apply_chat_template(body["messages"], add_generation_prompt=True, return_dict=False)
        (blank,) = tokenizer(" ")["input_ids"]
        first, second = stock(torch.tensor([[*ids, blank]])).logits[0, -2:].log_softmax(-1)
        spellings = {letter: float(first[token]) for letter, token in letters.items()}
        spaced = {f" {letter}": float(first[blank] + second[token]) for letter, token in letters.items()}
        return answer("A", spellings | spaced)

    fields = ("documents", "gold_index") if task == "ranking" else ("options", "answer")
    rows = [
        {"task": task, "question": f"What {n}?", fields[0]: [f"x{n}", f"{n} y", "z"], fields[1]: n % 3}
        for n in range(20)
    ]
    data = write_rows(tmp_path / "rows.jsonl", rows)
    options = f"--methods {methods} --orders as-is,reversed --json"
    evaluate(on_model, data, tmp_path / "model", options)
    server = ScriptedServer()
    server.respond = respond
    with running_app(server.app) as address:
        flags = f"{options} --endpoint {address}/v1 --model m"
        outcome = evaluate(pine, data, tmp_path / "endpoint", flags)
        if task == "ranking":
            debias = ("debias", data, "--wrapper", "capcal", "--json")
            served = pine(*debias, "--endpoint", f"{address}/v1", "--model", "m").json["results"]
            for one, other in zip(served, on_model(*debias).json["results"], strict=True):
                # Here the model counts no spelling of two tokens.
                assert one.pop("scores") == pytest.approx(other.pop("scores"), abs=0.01)
                assert one == other
    assert outcome.status == 0, outcome
    expected, found = (
        {record.key: record for record in read_records(tmp_path / name)} for name in ("model", "endpoint")
    )
    assert len(found) == 20 * 2 * len(methods.split(","))
    assert ("recall per letter" in outcome.stderr) == (task == "options")
    for key, record in found.items():
        assert record.choice_score == expected[key].choice_score
        assert record.choice_logprobs == pytest.approx(expected[key].choice_logprobs, abs=1e-4)
    assert {record.choice_score for record in found.values()} >= {0.0 if task == "options" else 0.5, 1.0}


def test_task_without_chat_template_equals_the_model(
    on_model: Run, on_endpoint: Run, engine: Engine, tmp_path: Path
) -> None:
    parts: Any = {
        "question": "warm",
        "documents": [{"title": "x", "text": "hot"}, {"title": "y", "text": "icy"}],
    }
    choices = likely_letters(engine, task="few_shot", **parts)[:2]
    row = {"id": "f", "task": "few_shot", **parts, "choices": choices, "answers": choices[:1]}
    data = write_rows(tmp_path / "few.jsonl", [row])
    for run, name in ((on_model, "model"), (on_endpoint, "endpoint")):
        evaluate(run, data, tmp_path / name, "--methods vanilla --metrics generate,logprob --json")
    (expected,), (found,) = (read_records(tmp_path / name) for name in ("model", "endpoint"))
    assert (found.text, found.prompt_tokens) == (expected.text, expected.prompt_tokens)
    assert found.choice_logprobs == pytest.approx(expected.choice_logprobs, abs=1e-4)


def test_answers_and_labels_are_those_of_the_model(
    on_model: Run, on_endpoint: Run, data: Path, tmp_path: Path, engine: Engine
) -> None:
    compare = ["compare", data, "--methods", "vanilla,reorder_content", "--max-new-tokens", "3", "--json"]
    answers, expected = ({(row["id"], row["method"]): row["text"] for row in run(*compare).json["results"]}
                         for run in (on_endpoint, on_model))  # fmt: skip
    assert answers == expected and len(answers) == 4

    request: dict[str, Any] = {"question": "Who?", "documents": DOCUMENTS[:2], "instruction": "Read."}
    file = write(tmp_path / "labeled.json", {**request, "labels": likely_letters(engine, **request)[:2]})
    for options in (["--wrapper", "permutation_full"], ["--wrapper", "permutation_cyclic", "--majority"]):
        found, result = (
            run("debias", file, *options, "--json").json["results"] for run in (on_endpoint, on_model)
        )
        assert found[0]["scores"] == pytest.approx(result[0].pop("scores"), abs=1e-4)
        assert {**found[0], "scores": 0} == {**result[0], "scores": 0}

    line = "--methods vanilla,reorder_content --num-orders 2 --max-new-tokens 4 --json"
    verified = on_endpoint("verify", data, *line.split())
    summary = verified.json["summary"]
    assert (verified.status, summary["vanilla"]["invariance_held"]) == (0, None)
    in_order = summary["reorder_content"]
    assert in_order["invariance_held"] and in_order["rows_with_one_text"] == 2
    assert summary["vanilla"]["rows_with_one_text"] < 2


@pytest.mark.parametrize("stop", first_daily(["failure", "interrupt"]))
def test_stopped_run_resumes(
    on_endpoint: Run, on_model: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: str
) -> None:
    evaluate(on_model, data, tmp_path / "whole")
    sent: list[int] = []
    complete: Callable[..., Any] = Endpoint._complete

    async def complete_six(self: Endpoint, client: Any, request: Any) -> Any:
        sent.append(1)
        if len(sent) == 6 and stop == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
        if len(sent) == 6 and stop == "failure":
            raise EndpointError("the server stopped")
        return await complete(self, client, request)

    with monkeypatch.context() as patched:
        patched.setattr(Endpoint, "_complete", complete_six)
        stopped = evaluate(on_endpoint, data, tmp_path / "resumed", f"{OPTIONS} --max-concurrency 1")
    assert stopped.status == (STOPPED if stop == "interrupt" else FAILED) and "resume" in stopped.stderr
    assert 0 < len(read_records(tmp_path / "resumed")) < NUM_RECORDS
    assert evaluate(on_endpoint, data, tmp_path / "resumed").json["repeated"]["requests"] == 2
    assert records_of(tmp_path / "resumed") == records_of(tmp_path / "whole")
    assert (tmp_path / "resumed" / "records.0.jsonl").read_bytes().count(b"\n") == NUM_RECORDS


@pytest.fixture
def provider() -> Iterator[tuple[ScriptedServer, str]]:
    """Return a server that answers with its prompt's first document, and its address."""
    server = ScriptedServer()
    server.respond = lambda body: answer("Ben")
    with running_app(server.app) as address:
        yield server, f"{address}/v1"


def test_same_order_again_is_measured_for_each_method(
    pine: Run, provider: tuple[ScriptedServer, str], data: Path, tmp_path: Path
) -> None:
    server, address = provider
    texts = iter(["Ann", "Ann", "Ben", "Ann"])  # both methods as stored, and again
    server.respond = lambda body: answer(next(texts) if "Who 0" in str(body) else "Cy")
    options = "--methods vanilla,reorder_content --orders as-is,again --max-concurrency 1 --json"
    arguments = ("evaluate", data, "--output-dir", tmp_path / "run", *options.split())
    outcome = pine(*arguments, "--endpoint", address, "--model", "m")
    assert outcome.status == 0 and len(server.bodies) == 2 * 2 * 2
    (task,) = outcome.json["summary"]["tasks"]
    means = {one["method"]: one["measures"][0]["again_changed"]["mean"] for one in task["methods"]}
    assert means == {"vanilla": 0.5, "reorder_content": 0.0}


def refuse(server: ScriptedServer, words: str) -> None:
    """Let a server refuse the prompts that contain these words."""
    server.respond = lambda body: (
        failure(403, "flagged: violence") if words in str(body["messages"]) else answer("Ben")
    )


def run_at(pine: Run, url: str, line: str) -> Outcome:
    return pine(*line.split(), "--endpoint", url, "--model", "m")


def test_refused_rows_are_records_and_can_be_retried(
    pine: Run, provider: tuple[ScriptedServer, str], data: Path, tmp_path: Path
) -> None:
    server, url = provider
    refuse(server, "Who 0")
    line = f"evaluate {data} --output-dir {tmp_path / 'run'} --methods vanilla --orders as-is,reversed --json"
    outcome = run_at(pine, url, line)
    assert outcome.status == 0 and outcome.json["errors"] == 2 and outcome.json["missing"] == 0
    assert "2 of 4 records" in outcome.stderr and "q0" in outcome.stderr
    assert "flagged: violence" in outcome.stderr and "--retry-errors" in outcome.stderr
    by_example = {record.example: record for record in read_records(tmp_path / "run")}
    assert by_example["q0"].error == "refused (status 403): flagged: violence"
    assert by_example["q0"].score is None and by_example["q1"].score == 1.0
    num_sent = len(server.bodies)
    assert run_at(pine, url, line).json["errors"] == 2 and len(server.bodies) == num_sent
    server.respond = lambda _: answer("Ben")
    again = run_at(pine, url, f"{line} --retry-errors")
    assert again.json["errors"] == 0 and len(server.bodies) == num_sent + 3
    assert run_at(pine, url, line).json["errors"] == 0 and len(server.bodies) == num_sent + 3
    assert len(read_records(tmp_path / "run")) == 4


def test_wrong_parameter_ends_soon_without_records(
    pine: Run, provider: tuple[ScriptedServer, str], tmp_path: Path
) -> None:
    server, url = provider
    server.respond = lambda _: failure(400, "Unsupported value: 'temperature' does not support 0")
    rows = [{**ROWS[0], "id": f"q{number}"} for number in range(300)]
    data = write_rows(tmp_path / "many.jsonl", rows)
    line = f"evaluate {data} --output-dir {tmp_path / 'run'} --methods vanilla --json"
    outcome = run_at(pine, url, line)
    assert outcome.status == FAILED and len(server.bodies) < 20
    assert "does not support 0" in outcome.stderr and '{"temperature": null}' in outcome.stderr
    server.respond = lambda body: failure(400, "no") if "temperature" in body else answer("Ben")
    outcome = run_at(pine, url, f'{line} --limit 1 --extra-body {{"temperature":null}}')
    assert outcome.status == 0 and "not greedy" in outcome.stderr
    (record,) = read_records(tmp_path / "run")
    assert not record.is_greedy and '"is_greedy":false' in record.json_line()
    assert pine("report", tmp_path / "run", "--output-dir", tmp_path / "report").status == 0
    assert "not greedy" in (tmp_path / "report" / "report.md").read_text(encoding="utf-8")


def test_other_answers_of_a_command_are_shown(
    pine: Run, provider: tuple[ScriptedServer, str], data: Path, tmp_path: Path
) -> None:
    server, url = provider
    refuse(server, "Who 0")
    outcome = run_at(pine, url, f"compare {data} --methods vanilla --json")
    assert outcome.status == FAILED and "flagged: violence" in outcome.stderr
    assert [row["text"] for row in outcome.json["results"]] == [None, "Ben"]
    assert "flagged" in outcome.json["results"][0]["error"] and len(outcome.json["refused"]) == 1
    shown = run_at(pine, url, f"compare {data} --methods vanilla")
    assert "Ben" in shown.stdout and "q0, vanilla: refused" in shown.stderr

    verified = run_at(pine, url, f"verify {data} --methods vanilla,reorder_content --num-orders 2 --json")
    assert verified.status == FAILED and "requests have no answer" in verified.stderr
    sorted_documents = verified.json["summary"]["reorder_content"]
    assert sorted_documents["invariance_held"] is None and sorted_documents["rows_with_one_text"] == 1

    files = [
        write(tmp_path / f"{name}.json", {"question": name, "documents": DOCUMENTS[:2], "labels": ["A", "B"]})
        for name in ("Who 0", "Who 1")
    ]
    server.respond = lambda body: failure(400, "flagged") if "Who 0" in str(body) else answer("A")
    debiased = pine("debias", *files, "--wrapper", "permutation_full", "--majority", "--json",
                    "--endpoint", url, "--model", "m")  # fmt: skip
    first, second = debiased.json["results"]
    assert debiased.status == FAILED and "flagged" in first["error"] and "answer" not in first
    assert second["base_answers"] == {"A": 1, "B": 1}


def test_answers_before_a_failure_are_shown(
    pine: Run, provider: tuple[ScriptedServer, str], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, url = provider
    monkeypatch.setattr(client_module, "MAX_RETRIES", 0)
    server.respond = lambda body: failure(429, "quota") if "Who 1" in str(body) else answer("Ben")
    outcome = run_at(pine, url, f"compare {data} --methods vanilla --json --max-concurrency 1")
    assert outcome.status == FAILED and "quota" in outcome.stderr
    assert [row["text"] for row in outcome.json["results"]] == ["Ben", None]


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Send Ctrl-C in place of the question `Who 1`."""
    complete: Callable[..., Any] = Endpoint._complete

    async def interrupt_second(self: Endpoint, client: Any, request: Any) -> Any:
        if b"Who 1" in bytes(token for token in request.layout.ids if token < 256):
            await asyncio.sleep(0.5)  # the first answer is taken
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(60)
        return await complete(self, client, request)

    monkeypatch.setattr(Endpoint, "_complete", interrupt_second)
    monkeypatch.setattr(cli, "ends_on_interrupt", nullcontext)  # which ends the process
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a worker of pytest-xdist ignores it
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupted")
@pytest.mark.parametrize(
    ("command", "rows", "key", "found"),
    [
        ("compare {data} --methods vanilla", ROWS, "results", {"id": "q0"}),
        ("verify {data} --methods vanilla --num-orders 2", ROWS, "rows", {"id": "q0"}),
        ("debias {data} --wrapper permutation_full --majority",
         [{"question": f"Who {n}?", "documents": DOCUMENTS[:2], "labels": ["A", "B"]} for n in range(2)],
         "results", {"base_answers": {"A": 1, "B": 1}}),
    ],
)  # fmt: skip
def test_interrupt_prints_the_answers_before_it(
    pine: Run, provider: tuple[ScriptedServer, str], tmp_path: Path,
    command: str, rows: list[Any], key: str, found: dict[str, Any],
) -> None:  # fmt: skip
    server, url = provider
    server.respond = lambda _: answer("A")
    data = write_rows(tmp_path / "rows.jsonl", rows)
    outcome = run_at(pine, url, f"{command.format(data=data)} --json --max-concurrency 1")
    assert outcome.status == STOPPED and "stopped" in outcome.stderr
    (row,) = outcome.json[key]
    assert found.items() <= row.items() and outcome.json["refused"] == []


def test_arguments_of_the_chat_template_are_sent(on_endpoint: Run, data: Path) -> None:
    outcome = on_endpoint("compare", data, "--chat-template-kwargs", '{"enable_thinking": false}')
    assert outcome.status == BAD_INPUT and "enable_thinking" in outcome.stderr and "400" in outcome.stderr


def test_wrong_address_leaves_the_folder_free(
    pine: Run, on_endpoint: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "MAX_RETRIES", 0)
    wrong = evaluate(pine, data, tmp_path / "run", f"{OPTIONS} --endpoint http://127.0.0.1:1/v1 --model m")
    assert wrong.status == FAILED and "cannot be reached" in wrong.stderr
    assert evaluate(on_endpoint, data, tmp_path / "run", "--limit 1 --max-new-tokens 1").status == 0


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("evaluate {data} --output-dir run --methods vanilla,pine", "pine"),
        ("evaluate {data} --output-dir run --methods pride", "pride"),
        ("evaluate {data} --output-dir run --methods routing:vanilla", "routing"),
        ("evaluate {data} --output-dir run --metrics logprob", "choices"),
        ("evaluate {data} --output-dir run --dtype float32", "--dtype"),
        ("compare {data} --methods nbce", "nbce"),
        ("compare {data} --extra-body []", "--extra-body"),
        ("verify --self-test", "--self-test"),
        ("verify {data} --methods all", "nia"),
    ],
)
def test_refusal_states_the_reason(pine: Run, data: Path, line: str, words: str) -> None:
    outcome = pine(*line.format(data=data).split(), "--endpoint", "http://127.0.0.1:1/v1", "--model", "m")
    assert outcome.status == BAD_INPUT and words in outcome.stderr
    assert outcome.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "missing"),
    [("--max-concurrency 2", "--endpoint"), ("--extra-body {}x", "--endpoint"),
     ("--endpoint http://127.0.0.1:1/v1", "--model")],
)  # fmt: skip
def test_options_without_endpoint_or_model_are_refused(
    pine: Run, data: Path, option: str, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PINE_MODEL", raising=False)
    outcome = pine("compare", data, *option.split())
    assert outcome.status == BAD_INPUT and missing in outcome.stderr


@pytest.fixture(scope="module")
def llama_cpp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Return the address of a server of llama-cpp-python, and the tiny model that it serves."""
    from tests.support.gguf_files import write_tiny_gguf

    python = os.environ.get("LLAMA_CPP_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import llama_cpp.server.app"], capture_output=True).returncode:
        pytest.skip("llama-cpp-python[server] is not installed; set LLAMA_CPP_PYTHON to a Python that has it")
    folder = tmp_path_factory.mktemp("llama")
    model, port = write_tiny_gguf(folder / "tiny.gguf"), free_port()
    options = "--n_ctx 2048 --n_threads 1 --logits_all true --type_k 0 --type_v 0"  # float32 KV cache
    command = [python, "-m", "llama_cpp.server", "--model", model, "--port", port, *options.split()]
    url = f"http://127.0.0.1:{port}/v1"
    with server_process(command, f"{url}/models", folder):
        yield url, model


@pytest.mark.slow
def test_records_on_llama_cpp_are_those_of_the_model(
    pine: Run, llama_cpp: tuple[str, Path], data: Path, tmp_path: Path
) -> None:
    url, model = llama_cpp
    evaluate(pine, data, tmp_path / "model", f"{OPTIONS} --model {model}")
    # This server penalizes repeated tokens by default, also at temperature 0.
    options = f"{OPTIONS} --endpoint {url} --model tiny --extra-body " + json.dumps(
        {"repeat_penalty": 1.0}, separators=(",", ":")
    )
    outcome = evaluate(pine, data, tmp_path / "endpoint", options)
    assert outcome.json["repeated"]["changed"] == 0
    assert records_of(tmp_path / "endpoint") == records_of(tmp_path / "model")
