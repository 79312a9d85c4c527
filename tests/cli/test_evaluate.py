"""`evaluate`: one JSON object on stdout, records that survive what kills the run, any number of processes."""

import io
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from pine_engine.cli import main as cli
from pine_engine.console import terminal
from pine_engine.engine import passes
from pine_engine.engine.engine import Engine
from pine_engine.evaluation import shards
from pine_engine.evaluation.records import Key, read_records, read_run
from pine_engine.evaluation.shards import Shard, lock_shard
from pine_engine.models import dtypes
from tests.support.commands import Forked, Outcome, Run, assert_refused, run_cli_forked, run_verb
from tests.support.forks import fork

ROOT = Path(cli.__file__).parents[2]

TIMES = {"prefill_s", "decode_s", "seconds"}

ROWS = [
    {
        "id": f"q{number}",
        "task": "retrieval_qa",
        "prefix": "Read.",
        "question": "Where?",
        "documents": [{"text": f"Tides {number}."}, {"title": "Sun", "text": "It shines."}, {"text": "No."}],
        "gold_index": number % 3,
        "answers": ["shines"],
    }
    for number in range(5)
]

OPTIONS = (
    *("--methods", "vanilla,pcw,pine", "--orders", "gold-all,shuffled:1"),
    *("--max-new-tokens", "4", "--json"),
)
NUM_RECORDS = 5 * 3 * 4


@dataclass
class Case:
    """A data file, a model and a folder for records."""

    data: Path
    model: Path
    out: Path
    invoke: Callable[..., Outcome]

    def run(self, *arguments: object) -> Outcome:
        """The command in this process; OPTIONS unless others are given."""
        return self.invoke("evaluate", *self.arguments(*arguments))

    def arguments(self, *arguments: object) -> list[str]:
        named = ("--output-dir", self.out, "--model", self.model)
        return [*map(str, (self.data, *named, *(arguments or OPTIONS)))]

    def outcomes(self, *left_out: str) -> dict[Key, dict[str, Any]]:
        """All of each record but the times, and what else is named."""
        return {
            record.key: record.model_dump(exclude={*TIMES, *left_out}) for record in read_records(self.out)
        }


@pytest.fixture(scope="module")
def loaded(tiny: Path) -> Engine:
    return Engine.load(str(tiny))


@pytest.fixture
def case(
    tiny: Path,
    loaded: Engine,
    tmp_path: Path,
    pine: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> Case:
    monkeypatch.setattr(terminal, "load", lambda *_, **__: loaded)
    return Case(write(tmp_path / "data.jsonl", ROWS), tiny, tmp_path / "run", pine)


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_the_summary_is_one_object_and_every_record_is_in_the_folder(case: Case) -> None:
    outcome = case.run()
    assert (outcome.status, outcome.stderr) == (0, "")
    report = outcome.json
    records = read_records(case.out)
    assert (report["folder"], report["dtype"]) == (str(case.out), "float32")
    assert (report["records"], report["errors"], report["missing"]) == (NUM_RECORDS, 0, 0)
    assert report["computed"] == sum(record.computed for record in records) < NUM_RECORDS
    assert report["seconds"] == pytest.approx(sum(record.seconds for record in records))
    assert 0 < report["seconds"] <= report["wall_s"]
    assert report["run"] == read_run(case.out).model_dump(mode="json")
    assert report["run"]["data"] == "data.jsonl"
    (task,) = report["summary"]["tasks"]
    assert task["examples"] == 5
    assert [method["method"] for method in task["methods"]] == ["vanilla", "pcw", "pine"]
    assert {record.task for record in records} == {"retrieval_qa"}


def test_without_json_it_prints_a_table(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal.stdout, "width", 200)
    table = case.run("--methods", "vanilla,pine", "--orders", "as-is,gold-last", "--max-new-tokens", 3).stdout
    for words in ("vanilla", "pine", "generated", "logprob", "mean [95 %]", "worst", "gold-last", "changes"):
        assert words in table


def test_the_table_has_no_accuracy_where_no_verdict_can_be_read(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal.stdout, "width", 200)
    pair = {"documents": [{"text": "Sun."}, {"text": "No."}], "gold_index": 1, "answers": ["B"]}
    write(case.data, [{**ROWS[0], **pair, "system": "Judge."}])
    options = (
        "--task",
        "judge_pair",
        "--methods",
        "pine",
        "--orders",
        "as-is,swapped",
        "--metrics",
        "generate",
    )
    table = case.run(*options, "--max-new-tokens", 3).stdout
    assert "none read" in table and "unparsed" in table and "0.5" not in table


def test_one_run_has_all_that_the_tables_of_judges_need(case: Case) -> None:
    pairs = [
        {
            **ROWS[0],
            "id": f"p{index}",
            "system": "Judge.",
            "documents": [{"text": f"Sun {index}."}, {"text": "No."}],
            "gold_index": index % 2,
            "answers": ["AB"[index % 2]],
            "meta": {"subset": ("math-prm", "hep-go", "donotanswer")[index]},
        }
        for index in range(3)
    ]
    write(case.data, pairs)
    options = (
        "--task",
        "judge_pair",
        "--methods",
        "vanilla,pine",
        "--orders",
        "judge",
        "--max-new-tokens",
        3,
    )
    report = case.run(*options, "--json").json
    assert (report["records"], report["missing"]) == (3 * 3 * 2, 0)
    assert {record.order_name for record in read_records(case.out)} == {
        "gold-first", "gold-last", "shuffled:0"
    }  # fmt: skip
    assert read_run(case.out).order_names == ("judge",)
    measures = report["summary"]["tasks"][0]["methods"][0]["measures"]
    scenarios = {one["name"]: one for one in measures[1]["scenarios"]}
    assert len(scenarios) == 5 and {one["value"]["n"] for one in scenarios.values()} == {3}
    for one in scenarios.values():
        assert [section["name"] for section in one["sections"]] == ["Safety", "Reasoning"]
    assert case.run(*options, "--json").json["records"] == 18


@dataclass
class Bar:
    """What the progress bar was told."""

    total: int = 0
    done: int = 0
    steps: list[str] = field(default_factory=list)


@pytest.fixture
def bar(monkeypatch: pytest.MonkeyPatch) -> Bar:
    told = Bar()

    @contextmanager
    def progress(total: int, done: int = 0) -> Iterator[Callable[[str], None]]:
        told.total, told.done, told.steps = total, done, []
        yield told.steps.append

    monkeypatch.setattr(terminal, "progress", progress)
    return told


def test_a_run_that_is_complete_computes_nothing_and_says_the_same(case: Case, bar: Bar) -> None:
    first = case.run().json
    assert (bar.total, bar.done, len(bar.steps)) == (NUM_RECORDS, 0, NUM_RECORDS)
    assert "q0: vanilla, gold-at:0" in bar.steps
    before = (case.out / "records.0.jsonl").read_bytes()
    again = case.run().json
    assert (bar.total, bar.done, bar.steps) == (NUM_RECORDS, NUM_RECORDS, [])
    assert (case.out / "records.0.jsonl").read_bytes() == before
    assert again["summary"] == first["summary"]


def test_a_terminal_shows_what_was_done_before_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    console = Console(file=io.StringIO(), force_terminal=True, width=100, get_time=lambda: now[0])
    monkeypatch.setattr(terminal, "stderr", console)
    with terminal.progress(9, done=4) as advance:
        for _ in range(3):
            now[0] += 60
            advance("q1: pine, as-is")
    assert isinstance(console.file, io.StringIO)
    shown = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", console.file.getvalue())
    assert "7/9 0:02:00 left, 0:03:00 q1: pine, as-is" in shown


def test_more_rows_may_be_measured_in_the_same_folder(case: Case, bar: Bar) -> None:
    case.run(*OPTIONS, "--limit", 2)
    assert bar.total == NUM_RECORDS // 5 * 2
    whole = case.run().json
    assert (bar.done, whole["records"]) == (NUM_RECORDS // 5 * 2, NUM_RECORDS)
    some = case.run(*OPTIONS, "--limit", 3).json
    assert (some["records"], some["missing"]) == (NUM_RECORDS // 5 * 3, 0)


@pytest.mark.parametrize("kept", [0.1, 0.47, 0.9])
def test_what_a_killed_run_left_is_kept_and_completed(case: Case, kept: float) -> None:
    case.run()
    whole, file = case.outcomes("computed"), case.out / "records.0.jsonl"
    content = file.read_bytes()
    torn = content[: int(kept * len(content))]
    file.write_bytes(torn)
    finished = len(read_records(case.out))
    assert 0 < finished < NUM_RECORDS
    assert case.run().json["missing"] == 0
    assert case.outcomes("computed") == whole
    assert file.read_bytes().startswith(torn[: torn.rindex(b"\n") + 1])
    assert file.read_bytes().count(b"\n") == NUM_RECORDS


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_being_stopped_is_said_and_loses_no_record(
    case: Case, loaded: Engine, monkeypatch: pytest.MonkeyPatch, ending: signal.Signals
) -> None:
    whole = dict(case.run().json)
    expected = case.outcomes("computed")
    case.out = case.out.with_name("stopped")
    extend, steps = passes.extend, iter(range(1000))

    def stopped(*arguments: Any, **options: Any) -> Any:
        if next(steps) == 20:
            os.kill(os.getpid(), ending)
        return extend(*arguments, **options)

    monkeypatch.setattr(passes, "extend", stopped)
    outcome = case.run()
    found = len(read_records(case.out))
    assert 0 < found < NUM_RECORDS
    assert outcome.status == 130 and outcome.stdout == ""
    assert outcome.stderr == (
        f"stopped: {found} of {NUM_RECORDS} records are in {case.out}; the same command goes on from there\n"
    )
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert case.run().json["records"] == whole["records"]
    assert case.outcomes("computed") == expected


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """As on a disk that is nearly full: what goes beyond is not written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [0, 300, 5_000, 12_345])
def test_a_full_disk_is_said_and_loses_no_record(case: Case, room: int) -> None:
    case.run()
    expected = case.outcomes("computed")
    whole = (case.out / "records.0.jsonl").stat().st_size
    case.out = case.out.with_name("full")
    case.run(*OPTIONS, "--limit", 1)
    file = case.out / "records.0.jsonl"
    before = file.read_bytes()
    assert len(before) + room < whole
    with files_no_larger_than(len(before) + room):
        outcome = case.run()
        again = case.run()
    kept = len(read_records(case.out))
    assert file.read_bytes().startswith(before) and NUM_RECORDS // 5 <= kept < NUM_RECORDS
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr == again.stderr
    assert outcome.stderr == (
        f"{file} cannot be written: File too large; {kept} of {NUM_RECORDS} records are in {case.out}, "
        "and the same command goes on from there once it can be written again\n"
    )
    assert case.run().json["records"] == NUM_RECORDS
    assert case.outcomes("computed") == expected


def test_a_disk_that_is_full_from_the_start_is_said_and_nothing_is_left_on_it(case: Case) -> None:
    with files_no_larger_than(400):  # what is said has room there, and the settings have none
        outcome = case.run()
    assert outcome.status == 2
    assert f"{case.out} cannot be written: File too large; give another folder" in outcome.stderr
    assert [file.name for file in case.out.iterdir() if file.suffix != ".lock"] == []


def test_errors_are_counted_and_the_other_examples_measured(case: Case) -> None:
    write(case.data, [{**ROWS[0], "id": "long", "documents": [{"text": "a" * 900}]}, *ROWS[:2]])
    outcome = case.run("--methods", "pine", "--max-new-tokens", 3, "--json")
    assert outcome.status == 0
    assert (outcome.json["records"], outcome.json["errors"]) == (3, 1)
    assert outcome.stderr.startswith("1 of 3 records have an error, such as: the prompt has 9")
    write(case.data, [{**ROWS[0], "documents": [{"text": "a" * 900}]}])
    case.out = case.out.with_name("none")
    outcome = case.run("--methods", "pine", "--json")
    assert outcome.status == 1 and outcome.json["summary"] is None
    assert "no example of retrieval_qa has been measured" in outcome.stderr


def test_rows_are_asked_as_another_task_if_so_told(case: Case) -> None:
    two: dict[str, Any] = {
        "documents": [{"text": "Sun."}, {"text": "No."}],
        "gold_index": 1,
        "answers": ["B"],
    }
    row = {**ROWS[0], **two, "system": "Judge."}
    write(case.data, [row])
    options = ("--methods", "pine", "--orders", "swapped", "--metrics", "logprob", "--json")
    case.run("--task", "judge_pair", *options)
    (record,) = read_records(case.out)
    assert (record.task, record.answers, record.text) == ("judge_pair", ("A",), None)
    assert record.choice_logprobs is not None
    assert read_run(case.out).task == "judge_pair"


@pytest.mark.parametrize(
    ("rows", "arguments", "sentence"),
    [
        ([ROWS[0], {"id": "x"}], (), "data.jsonl, line 2: documents: it is missing; give it"),
        ([{**ROWS[0], "id": "\ud800"}], (), "line 1: it holds half of a surrogate pair"),
        ([ROWS[0], {**ROWS[1], "task": "kv_retrieval"}], (),
         "has rows of retrieval_qa and kv_retrieval; give --task, or a file for each"),
        (ROWS, ("--task", "poetry"), "unknown task 'poetry'"),
        (ROWS, ("--orders", "sideways"), "unknown order 'sideways'; choose from: as-is, reversed"),
        (ROWS, ("--orders", "swapped"), "swapped needs documents with labels"),
        (ROWS, ("--methods", "pines"), "unknown method 'pines'"),
        (ROWS, ("--metrics", "guess"), "unknown metric 'guess'; choose from: generate, logprob"),
        (ROWS, ("--metrics", ","), "nothing is to be measured; ask for generated answers"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_is_refused_before_a_model_is_loaded(
    case: Case,
    monkeypatch: pytest.MonkeyPatch,
    rows: list[Any],
    arguments: tuple[str, ...],
    sentence: str,
) -> None:
    def load(*_: Any, **__: Any) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(terminal, "load", load)
    write(case.data, rows)
    outcome = case.run(*arguments, "--json")
    assert (outcome.status, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith("pine_engine: ") and outcome.stderr.count("\n") == 1
    assert sentence in outcome.stderr


def test_evaluate_without_dtype_keeps_that_of_the_folder(
    case: Case, loaded: Engine, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was started in bfloat16, and continued where `auto` is float32."""
    dtypes_loaded: list[str] = []

    def load(_model: str, dtype: str, *_: Any, **__: Any) -> Engine:
        dtypes_loaded.append(dtype)
        return loaded if dtype in ("auto", "float32") else Engine.load(str(tiny), dtype=dtype)

    monkeypatch.setattr(terminal, "load", load)
    options = (*OPTIONS, "--limit", 1)
    assert case.run(*options, "--dtype", "bfloat16").status == 0
    for dtype in ((), ("--dtype", "auto")):
        assert case.run(*options, *dtype).status == 0
    refused = case.run(*options, "--dtype", "float32")
    assert refused.status == 2 and "dtype bfloat16, not float32" in refused.stderr
    assert dtypes_loaded == ["bfloat16", "bfloat16", "bfloat16", "float32"]


def test_a_folder_of_another_run_is_refused(case: Case) -> None:
    case.run(*OPTIONS, "--limit", 1)
    outcome = case.run(*OPTIONS, "--limit", 1, "--recompute")
    assert outcome.status == 2
    assert outcome.stderr == (
        f"pine_engine: {case.out} belongs to a run with recompute no, not yes; give its settings to go on "
        "with it, or another folder\n"
    )


def test_a_folder_in_which_a_run_is_writing_is_refused(case: Case) -> None:
    case.run(*OPTIONS, "--limit", 2)
    file = case.out / "records.0.jsonl"
    before = file.read_bytes()
    with lock_shard(case.out, Shard()):
        outcome = case.run()
    assert (outcome.status, outcome.stdout) == (2, "")
    assert f"another `evaluate` is writing {case.out}" in outcome.stderr
    assert file.read_bytes() == before
    assert case.run().json["records"] == NUM_RECORDS == file.read_bytes().count(b"\n")


def test_a_file_system_without_locks_is_told(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "try_lock", lambda *_, **__: None)
    outcome = case.run()
    assert outcome.json["records"] == NUM_RECORDS
    assert outcome.stderr == (
        f"{case.out} is on a file system without locks; start no second run in it while this one writes\n"
    )


# several processes


def environment(**variables: str) -> dict[str, str]:
    """With the threads of this process, whose number decides a product's last bits."""
    threads = str(torch.get_num_threads())
    return {**os.environ, "OMP_NUM_THREADS": threads, "HF_HUB_OFFLINE": "1", **variables}


def run_twofold(case: Case, *options: str) -> subprocess.CompletedProcess[str]:
    """The case's run by two processes."""
    # Where there is no GPU --multi_gpu starts processes on the CPU; --cpu would start a single one.
    launch = "--multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no"
    command = ["-m", "accelerate.commands.launch", *launch.split(), "--main_process_port", "0"]
    verb = ["-m", "pine_engine", "evaluate", *case.arguments("--device", "cpu", *options)]
    return subprocess.run(
        [sys.executable, *command, *verb],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.timeout(600)  # three processes that all load torch
def test_two_processes_make_the_records_of_one(case: Case) -> None:
    case.run()
    alone = case.outcomes()
    case.out = case.out.with_name("two")
    done = run_twofold(case, *OPTIONS)
    assert done.returncode == 0, done.stderr
    assert Outcome(0, done.stdout, done.stderr).json["records"] == NUM_RECORDS
    assert case.outcomes() == alone
    shares = [
        {
            json.loads(line)["example"]
            for line in (case.out / f"records.{process}.jsonl").read_text().splitlines()
        }
        for process in (0, 1)
    ]
    assert shares == [{"q0", "q2", "q4"}, {"q1", "q3"}]


def two_environments() -> list[dict[str, str]]:
    """What a launcher tells each of two processes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    return [
        {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
        }
        for rank in (0, 1)
    ]  # fmt: skip


def start_two(case: Case, *options: str) -> list[Forked]:
    """Two processes of one run, without a launcher."""
    return [
        run_cli_forked(case.data.parent, "evaluate", *case.arguments(*options), environment=environment)
        for environment in two_environments()
    ]


def run_verb_on_processor(words: list[str], *, bf16: bool) -> None:
    """Run the verb as on a processor with instructions for bfloat16, or without."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dtypes, "multiplies_in", lambda _dtype: bf16)
        run_verb(words)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_processes_on_unequal_processors_use_one_dtype(case: Case) -> None:
    """The second process alone would select float32 for weights that are stored in bfloat16."""
    model = case.data.with_name("bf16")
    shutil.copytree(case.model, model)
    Engine.load(str(case.model)).model.bfloat16().save_pretrained(model)
    options = ("--model", model, "--methods", "vanilla", "--max-new-tokens", 1, "--json")
    words = ["pine_engine", "evaluate", *case.arguments(*options)]
    started = []
    for rank, environment in enumerate(two_environments()):
        out, err = (case.data.with_name(f"{rank}.{stream}") for stream in ("out", "err"))
        run = partial(run_verb_on_processor, words, bf16=rank == 0)
        started.append(Forked(fork(run, stdout=out, stderr=err, environment=environment), out, err))
    main, other = [process.outcome() for process in started]
    assert (main.status, other.status) == (0, 0), main.stderr + other.stderr
    assert main.json["records"] == len(ROWS)
    assert read_run(case.out).platform.dtype == "bfloat16"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_process_that_dies_is_reported_and_loses_only_its_example(case: Case) -> None:
    """Without a launcher, which would end the others: the main process itself must notice."""
    write(case.data, [{**ROWS[number % 5], "id": f"q{number:02}"} for number in range(24)])
    options = ("--methods", "vanilla", "--max-new-tokens", "40", "--json")
    started = start_two(case, *options)
    main, worker = started
    try:
        theirs = case.out / "records.1.jsonl"
        deadline = time.monotonic() + 200
        while not (theirs.exists() and theirs.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.01)
        worker.process.kill()
        outcome = main.outcome()
    finally:
        for verb in started:
            verb.process.kill()
            verb.process.join()
    records = read_records(case.out)
    missing = 24 - len(records)
    assert outcome.status == 1, outcome.stderr
    assert 0 < missing < 12 and {record.example for record in records} >= {
        f"q{n:02}" for n in range(0, 24, 2)
    }
    assert outcome.json["missing"] == missing
    assert (
        f"{missing} records are missing because a process died; run the same command again to make them"
        in outcome.stderr
    )
    again = case.run(*options)
    assert (again.status, again.json["records"], again.json["missing"]) == (0, 24, 0)


def test_a_model_is_not_split_where_examples_are(case: Case) -> None:
    assert_refused(
        case.run(*OPTIONS, "--device", "tp"),
        "device 'tp' splits one model among processes, and `evaluate` splits its examples among them; name "
        "another device, such as auto, which spreads a model over the GPUs of one process",
    )


def test_shards_without_a_launcher_make_the_records_of_one_process(case: Case) -> None:
    case.run()
    alone = case.outcomes()
    case.out = case.out.with_name("shards")
    reports = [case.run(*OPTIONS, "--shard", f"{index}/2").json for index in range(2)]
    assert [report["records"] for report in reports] == [NUM_RECORDS * 3 // 5, NUM_RECORDS * 2 // 5]
    assert case.outcomes() == alone


@pytest.mark.parametrize(("index", "speaks"), [("0", True), ("1", False)])
def test_one_process_says_what_is_wrong(
    case: Case, monkeypatch: pytest.MonkeyPatch, index: str, speaks: bool
) -> None:
    """Each knows its place from its launcher, before they have joined."""
    monkeypatch.setenv("LOCAL_RANK", index)
    monkeypatch.setattr(terminal.stderr, "quiet", False)  # a process is quiet to its end; this one goes on
    outcome = case.run(*OPTIONS, "--orders", "sideways")
    assert outcome.status == 2
    assert ("unknown order" in outcome.stderr) == speaks
