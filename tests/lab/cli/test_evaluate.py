"""`evaluate` and `reproduce-paper`: interrupted runs, any number of processes, wrapped methods."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pine_engine import Engine
from pine_engine.cli import output
from pine_engine.engine import passes
from pine_engine.lab.cli.report import GENERATED_STUDIES, STUDIES
from pine_engine.lab.data.registry import PUBLIC_SETS
from pine_engine.lab.debias.plan import is_learned_example
from pine_engine.lab.debias.wrappers import DEBIASERS
from pine_engine.lab.evaluation import learning, measure, shards
from pine_engine.lab.evaluation.record import Key
from pine_engine.lab.evaluation.run_files import read_records, read_run
from pine_engine.lab.evaluation.shards import Shard, lock_shard
from pine_engine.prompts.chat_templates import CLOCK
from tests.support.commands import Outcome, Run, Steps, max_file_size
from tests.support.measured_rows import QUESTION, TIMES, pairs
from tests.support.molecule_rows import write_rows
from tests.support.tiers import first_daily
from tests.support.tokenizers import DATED, THINKING, on_day

ROOT = Path(__file__).parents[3]

ROW = QUESTION.model_dump(mode="json")
EXAMPLES = [
    {**ROW, "id": f"q{n}", "question": f"Where {n}?", "documents": ROW["documents"][:3], "gold_index": n % 3}
    for n in range(5)
]
OPTIONS = "--methods vanilla,pcw,pine --orders gold-all,shuffled:1 --max-new-tokens 4 --json"
NUM_RECORDS = 5 * 3 * 4

WRAPPED_OPTIONS = (
    "--methods vanilla,pine,permutation_full,permutation_cyclic:pine,pride,pride:pine,calibraeval,"
    "calibration_labels,calibration_first:nia,calibration_every --orders as-is,swapped "
    "--max-new-tokens 4 --json"
)
PAIRS = pairs(4)
NUM_WRAPPED = 4 * 10 * 2


@dataclass
class Case:
    data: Path
    model: Path
    folder: Path
    options: str
    pine: Run

    def arguments(self, more: str = "") -> list[str]:
        line = f"{self.data} --output-dir {self.folder} --model {self.model} {self.options} {more}"
        return line.split()

    def run(self, more: str = "") -> Outcome:
        return self.pine("evaluate", *self.arguments(more))

    def records(self) -> dict[Key, dict[str, Any]]:
        excluded = {*TIMES, "was_computed"}
        return {record.key: record.model_dump(exclude=excluded) for record in read_records(self.folder)}

    def moved(self, name: str) -> "Case":
        return replace(self, folder=self.folder.with_name(name))


@pytest.fixture(scope="module")
def loaded(tiny: Path) -> Engine:
    return Engine.load(str(tiny))


@pytest.fixture
def case(tiny: Path, loaded: Engine, tmp_path: Path, pine: Run, monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.setattr(output, "load", lambda *_, **__: loaded)
    return Case(write_rows(tmp_path / "data.jsonl", EXAMPLES), tiny, tmp_path / "run", OPTIONS, pine)


@pytest.fixture
def wrapped(case: Case) -> Case:
    return replace(case, data=write_rows(case.data, PAIRS), options=WRAPPED_OPTIONS)


def test_complete_run_is_summarized_without_the_model(
    case: Case, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = case.run().json
    records = read_records(case.folder)
    assert (report["records"], report["errors"], report["missing"]) == (NUM_RECORDS, 0, 0)
    assert report["computed"] == sum(record.was_computed for record in records) < NUM_RECORDS
    assert report["seconds"] == pytest.approx(sum(record.seconds for record in records))
    assert 0 < report["seconds"] <= report["wall_s"]
    assert report["run"] == read_run(case.folder).model_dump(mode="json")
    (task,) = report["summary"]["tasks"]
    assert (task["examples"], len(task["methods"])) == (5, 3)
    before = (case.folder / "records.0.jsonl").read_bytes()
    assert {text for text in steps.within if "prefill" in text} == {
        f"{method}: prefill, layer {layer} of 2" for method in ("vanilla", "pcw", "pine") for layer in (1, 2)
    }
    monkeypatch.setattr(output, "load", lambda *_, **__: pytest.fail("a model was loaded"))
    monkeypatch.setitem(sys.modules, measure.__name__, None)  # it imports torch
    assert case.run().json["summary"] == report["summary"]
    assert case.run("--shard 1/2").json["records"] == NUM_RECORDS * 2 // 5
    assert steps.announced == [NUM_RECORDS] and len(steps.taken) == NUM_RECORDS
    assert (case.folder / "records.0.jsonl").read_bytes() == before


@pytest.mark.parametrize("case_name", first_daily(["case", "wrapped"]))
def test_resumed_run_and_shards_equal_one_run(
    case_name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    case: Case = request.getfixturevalue(case_name)
    monkeypatch.setattr(learning, "is_learned_example", lambda example, _: example == "p1")
    num_records = case.run("--limit 3").json["records"]
    expected = case.records()

    shards = case.moved("shards")
    counts = [shards.run(f"--limit 3 --shard {index}/2").json["records"] for index in range(2)]
    assert counts == [num_records * 2 // 3, num_records // 3]

    resumed = case.moved("resumed")
    assert resumed.run("--limit 2").json["records"] == num_records * 2 // 3
    file = resumed.folder / "records.0.jsonl"
    truncated = file.read_bytes()[: file.stat().st_size // 2]
    file.write_bytes(truncated)
    assert resumed.run("--limit 3").json["missing"] == 0
    assert file.read_bytes().startswith(truncated[: truncated.rindex(b"\n") + 1])
    assert resumed.records() == shards.records() == expected


@pytest.mark.parametrize("number", first_daily([signal.SIGTERM, signal.SIGINT]))
def test_signal_keeps_records(case: Case, monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    extend, steps = passes.extend, iter(range(1000))

    def stop_at_step_20(*arguments: Any, **options: Any) -> Any:
        if next(steps) == 20:
            os.kill(os.getpid(), number)
        return extend(*arguments, **options)

    monkeypatch.setattr(passes, "extend", stop_at_step_20)
    outcome = case.run()
    num_kept = len(read_records(case.folder))
    assert 0 < num_kept < NUM_RECORDS
    assert (outcome.status, outcome.stdout) == (130, "")
    _, announced, kept = outcome.stderr.split("\n", 2)
    assert "Ctrl-C again" in announced and f"{num_kept} of {NUM_RECORDS} records" in kept
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert case.run().json["records"] == NUM_RECORDS


def test_full_disk_exits_1_and_keeps_records(case: Case) -> None:
    case.run("--limit 1")
    file = case.folder / "records.0.jsonl"
    before = file.read_bytes()
    with max_file_size(len(before) + 12_345):
        outcome = case.run()
    num_kept = len(read_records(case.folder))
    assert file.read_bytes().startswith(before) and NUM_RECORDS // 5 <= num_kept < NUM_RECORDS
    assert (outcome.status, outcome.stdout) == (1, "")
    assert str(file) in outcome.stderr and f"{num_kept} of {NUM_RECORDS} records" in outcome.stderr


def test_folder_without_space_is_refused_and_left_empty(case: Case) -> None:
    with max_file_size(400):  # enough for messages, not for the settings
        outcome = case.run()
    assert outcome.status == 2 and str(case.folder) in outcome.stderr
    assert not [file for file in case.folder.iterdir() if file.suffix != ".lock"]


def test_examples_with_errors_are_counted(case: Case) -> None:
    long = {**EXAMPLES[0], "id": "long", "documents": [{"text": "a" * 900}]}
    write_rows(case.data, [long, *EXAMPLES[:2]])
    case.options = "--methods pine --max-new-tokens 3 --json"
    outcome = case.run()
    assert (outcome.status, outcome.json["records"], outcome.json["errors"]) == (0, 3, 1)
    assert "1 of 3 records have an error" in outcome.stderr
    write_rows(case.data, [long])
    outcome = case.moved("none").run()
    assert (outcome.status, outcome.json["summary"]) == (1, None)
    write_rows(case.data, [{**EXAMPLES[0], "answers": []}])
    unscored = case.moved("unscored")
    assert f"{unscored.folder} has records" in unscored.run().stderr
    unscored = replace(case.moved("unscored-orders"), options=f"{case.options} --orders as-is,reversed")
    outcome = unscored.run("--fail-above changed=0.9")
    assert outcome.status == 0 and "has records" not in outcome.stderr
    assert outcome.json["limits"]["outcome"] == "passed"


def test_task_option_overrides_task_of_examples(case: Case) -> None:
    write_rows(case.data, [{**PAIRS[1], "task": "retrieval_qa"}])
    case.options = "--task judge --methods pine --orders swapped --metrics logprob --json"
    case.run()
    (record,) = read_records(case.folder)
    assert (record.task, record.answers, record.text) == ("judge", ("A",), None)
    assert record.choice_logprobs is not None and read_run(case.folder).task == "judge"


def test_auto_is_of_folder(case: Case, loaded: Engine, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that began in bfloat16 is resumed where `auto` is float32."""
    requested: list[str] = []

    def load(_model: str, dtype: str, *_: Any, **__: Any) -> Engine:
        requested.append(dtype)
        return loaded if dtype in ("auto", "float32") else Engine.load(str(tiny), dtype=dtype)

    monkeypatch.setattr(output, "load", load)
    assert case.run("--limit 1 --dtype bfloat16").status == 0
    assert case.run("--limit 2").status == case.run("--limit 3 --dtype auto").status == 0
    refused = case.run("--limit 1 --dtype float32")
    assert refused.status == 2 and "bfloat16" in refused.stderr
    assert requested == ["bfloat16", "bfloat16", "bfloat16", "float32"]


def test_folder_of_another_run_or_writer_is_refused(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.run("--limit 1")
    before = (case.folder / "records.0.jsonl").read_bytes()
    outcome = case.run("--limit 1 --recompute")
    assert outcome.status == 2 and "recompute" in outcome.stderr
    with lock_shard(case.folder, Shard()):
        outcome = case.run()
    assert (outcome.status, outcome.stdout) == (2, "") and str(case.folder) in outcome.stderr
    assert (case.folder / "records.0.jsonl").read_bytes() == before
    monkeypatch.setattr(shards, "try_lock", lambda *_, **__: None)
    outcome = case.run()
    assert outcome.json["records"] == NUM_RECORDS and "without locks" in outcome.stderr


def test_resumed_run_prints_the_date_of_its_begin(
    case: Case, loaded: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loaded.tokenizer, "chat_template", DATED)
    on_day("2026-11-26", monkeypatch)
    case.run("--limit 1")
    whole = case.moved("whole")
    assert whole.run("--limit 2").status == 0
    on_day("2026-11-27", monkeypatch)
    assert case.run("--limit 2").status == 0
    assert read_run(case.folder).chat_template_kwargs == {CLOCK: "2026-11-26"}
    assert case.records() == whole.records()
    later = case.moved("later")
    later.run("--limit 2")
    assert [one["answer_logprob"] for one in later.records().values()] != [
        one["answer_logprob"] for one in whole.records().values()
    ]
    refused = case.run('--chat-template-kwargs {"strftime_now":"2026-11-27"}')
    assert refused.status == 2 and "2026-11-26" in refused.stderr


def test_template_arguments_are_settings_of_the_run(
    case: Case, loaded: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loaded.tokenizer, "chat_template", THINKING)
    with_argument = case.moved("argument")
    assert with_argument.run('--limit 1 --chat-template-kwargs {"enable_thinking":false}').status == 0
    case.run("--limit 1")
    assert with_argument.records() != case.records()
    refused = with_argument.run("--limit 1")
    assert refused.status == 2 and "enable_thinking" in refused.stderr
    for wrong in ('{"enable":1}', "[1]", "{"):
        unknown = case.moved("unknown").run(f"--limit 1 --chat-template-kwargs {wrong}")
        assert unknown.status == 2 and "chat_template_kwargs" in unknown.stderr


def launched(rank: int) -> dict[str, str]:
    return {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}


@pytest.mark.parametrize("rank", [0, 1])
def test_only_main_process_prints_errors(case: Case, monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    monkeypatch.setenv("LOCAL_RANK", str(rank))
    outcome = case.run("--orders sideways")
    assert outcome.status == 2 and ("sideways" in outcome.stderr) == (rank == 0)


def test_missing_records_of_ended_process_exit_1(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in launched(0).items():
        monkeypatch.setenv(name, value)
    outcome = case.run()
    assert (outcome.status, outcome.json["missing"]) == (1, NUM_RECORDS * 2 // 5)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_accelerate_launch_computes_records_of_one_process(case: Case) -> None:
    case.run()
    shared = case.moved("two")
    # Without a GPU, --multi_gpu starts processes on the CPU; --cpu would start a single one.
    launch = "--multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no"
    command = f"-m accelerate.commands.launch {launch} --main_process_port 0 -m pine_engine evaluate"
    threads = {"OMP_NUM_THREADS": str(torch.get_num_threads())}  # logits may depend on it
    done = subprocess.run(
        [sys.executable, *command.split(), *shared.arguments("--device cpu")], cwd=ROOT,
        env={**os.environ, **threads}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["records"] == NUM_RECORDS
    assert shared.records() == case.records()
    lines = [(shared.folder / f"records.{index}.jsonl").read_text().splitlines() for index in (0, 1)]
    examples = [{json.loads(line)["example"] for line in own} for own in lines]
    assert examples == [{"q0", "q2", "q4"}, {"q1", "q3"}]


def test_wrapped_methods_have_records_metrics_and_costs(wrapped: Case) -> None:
    report = wrapped.run().json
    assert (report["records"], report["errors"], report["missing"]) == (NUM_WRAPPED, 0, 0)
    by_name = {method["method"]: method for method in report["summary"]["tasks"][0]["methods"]}
    assert set(read_run(wrapped.folder).methods) == set(by_name) and len(by_name) == 10
    kinds = {name: [measure["kind"] for measure in one["measures"]] for name, one in by_name.items()}
    assert kinds["permutation_full:vanilla"] == kinds["vanilla"] == ["generated", "chosen", "logprob"]
    assert kinds["pride:pine"] == kinds["calibration_labels:vanilla"] == ["chosen"]
    assert kinds["calibration_every:vanilla"] == ["generated"]
    prompts = {name: one["cost"]["prompts"]["mean"] for name, one in by_name.items()}
    assert prompts["permutation_full:vanilla"] == 2 and prompts["calibration_every:vanilla"] == 4
    for name in ("pride", "calibraeval"):
        share = DEBIASERS[name].learned_share
        num_learned = sum(is_learned_example(pair["id"], share) for pair in PAIRS[1:]) + 1
        assert prompts[f"{name}:vanilla"] == pytest.approx((4 + num_learned) / 4)


DOCUMENTS = [{"text": f"It is {place}."} for place in range(10)]
PAPER_ROW = {**QUESTION.model_dump(mode="json"), "documents": DOCUMENTS, "answers": ["1"]}


@pytest.fixture
def folder(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    loaded = Engine.load(str(tiny))
    monkeypatch.setattr(output, "load", lambda *_, **__: loaded)
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "llmbar.jsonl", pairs(2))
    return tmp_path


def test_runs_have_methods_and_orders_of_the_paper_and_are_resumed(folder: Path, pine: Run) -> None:
    methods, orders = STUDIES["llmbar"]
    run = folder / "runs" / "llmbar"
    line = "reproduce-paper llmbar --data . --output-dir runs --max-new-tokens 1"
    assert pine(*line.split(), "--limit", 1).status == 0
    first = read_records(run)
    assert pine(*line.split()).status == 0
    records = read_records(run)
    assert records[: len(first)] == first and len(records) == 2 * len(first)
    assert len(read_run(run).methods) == len(methods.split(","))
    assert {record.method for record in records} == set(read_run(run).methods)
    assert {record.order_name for record in records} > {*orders.split(",")} - {"judge"}  # several orders
    assert (folder / "runs" / "report" / "report.html").stat().st_size > 0


def test_report_leaves_out_unfinished_dataset(folder: Path, pine: Run) -> None:
    name = "lost-in-the-middle-20"
    write_rows(folder / f"{name}.jsonl", [{**PAPER_ROW, "documents": [{"text": "very long " * 5000}] * 20}])
    line = f"reproduce-paper {name} llmbar --data . --output-dir runs --max-new-tokens 1 --limit 1"
    outcome = pine(*line.split(), "--methods", "rotor,nbce")
    assert outcome.status == 1 and f": {name}\n" in outcome.stderr
    page = (folder / "runs" / "report" / "report.md").read_text(encoding="utf-8")
    assert "llmbar" in page and name not in page
    assert {record.method for record in read_records(folder / "runs" / "llmbar")} == {"rotor", "nbce"}


def test_missing_datasets_are_named_with_download_commands(folder: Path, pine: Run) -> None:
    outcome = pine(
        *["reproduce-paper", "llmbar", "key-value-75", "mt-bench", "--data", ".", "--output-dir", "runs"]
    )
    assert outcome.status == 2 and not (folder / "runs").exists() and "llmbar" not in outcome.stderr
    for name in ("key-value-75", "mt-bench"):
        assert f"python -m pine_engine download-data {name} --output-dir ." in outcome.stderr
    assert set(STUDIES | GENERATED_STUDIES) <= set(PUBLIC_SETS)


def test_generated_dataset_is_tried_without_a_network(folder: Path, pine: Run) -> None:
    assert not any(PUBLIC_SETS[name].files for name in GENERATED_STUDIES)
    assert pine("download-data", "facts-3", "--limit", 1).status == 0
    line = "reproduce-paper facts-3 --output-dir runs --max-new-tokens 1 --limit 1 --methods vanilla,pine"
    assert pine(*line.split()).status == 0
    records = read_records(folder / "runs" / "facts-3")
    assert not any(record.error for record in records)
    assert {record.order_name for record in records} == {*GENERATED_STUDIES["facts-3"][1].split(",")}
    assert (folder / "runs" / "report" / "report.html").stat().st_size > 0
