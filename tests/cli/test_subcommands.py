"""Each subcommand: exit status, JSON keys, progress, one table, and refusals without torch."""

import inspect
import io
import json
import math
import re
import runpy
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from rich.console import Console

import pine_engine
from pine_engine import METHODS, Engine
from pine_engine.benchmark import shapes, times
from pine_engine.cli import main as cli, output, verify as verify_module
from pine_engine.cli.output import print_rows
from pine_engine.invariance import selftest
from pine_engine.invariance.kernel_checks import Check
from pine_engine.models import listing
from pine_engine.models.listing import LoadableModel
from pine_engine.models.load import load
from tests.support.commands import COMPARISON, Outcome, Run, Steps, load_once, write
from tests.support.harm import no_harm
from tests.support.junk import CONTENTS, REQUESTS, ROWS as ROWS_OF_SETS, TEXTS, json_lines
from tests.support.molecule_rows import SMILES, row, write_rows
from viz.page.common.host_settings import DEFAULTS

ROOT = Path(__file__).parents[2]

EXAMPLES: list[dict[str, Any]] = [
    {"id": "a-1", "task": "math_reasoning", "question": "How many?", "documents": [
        {"text": "Ann has 3."}, {"text": "Bob has twelve."}, {"text": "Cy none."}]},
    {"id": "a-2", "task": "kv_retrieval", "question": "k1", "answers": ["v1"], "gold_index": 0, "documents": [
        {"title": "k1", "text": "v1"}, {"title": "k2", "text": "v22"}]},
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    load_once(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PINE_MODEL", str(tiny))
    monkeypatch.setattr(times, "peak_memory", lambda *_: 123.4)
    write(tmp_path / "request.json", COMPARISON)
    # The default instruction of the judge is longer than the context of the model.
    write(tmp_path / "labeled.json", {**COMPARISON, "task": "judge", "instruction": "Judge."})
    write_rows(tmp_path / "data.jsonl", EXAMPLES)
    write_rows(tmp_path / "one.jsonl", EXAMPLES[1:])
    (tmp_path / "data.csv").write_text("question,document1,document2\nWho?,red,green\n", encoding="utf-8")
    write_rows(tmp_path / "train.jsonl", map(row, SMILES))
    write_rows(tmp_path / "molecules.jsonl", map(row, ("CC(C)CO", "CC(C)CN")))
    return tmp_path


def run(pine: Run, line: str) -> Outcome:
    return pine(*line.split())


SMALL = "--model random:tiny --documents 3 --document-tokens 5 --max-new-tokens 2 --methods vanilla,pine"

MOLECULES = "molecules molecules.jsonl --predictor-data train.jsonl --methods vanilla,pine --orders 2"
JOBS = "--model random:tiny --documents 3 --document-tokens 5 --max-new-tokens 2 --repeats 1"
RUNS = [
    ("compare request.json --max-new-tokens 2", "model dtype results", "prefill, s"),
    ("compare data.jsonl --max-new-tokens 2", "model dtype results", "a-2"),
    ("verify data.csv --num-orders 2 --max-new-tokens 1", "model dtype rows summary", "invariance held"),
    ("debias labeled.json --wrapper permutation_cyclic --labels A,B",
     "model dtype wrapper base prompts results", "Vanilla alone"),
    ("evaluate one.jsonl --output-dir run --orders as-is,reversed --max-new-tokens 2",
     "folder model dtype run records computed errors missing repeated wall_s seconds summary recommendations",
     "mean over orders"),
    (f"bench {SMALL} --repeats 1", "n documents model dtype stock methods together", "all together"),
    pytest.param(
        f"bench --end-to-end {JOBS}",
        "n documents new_tokens model dtype threads stock_s jobs orders generate_over_run beside_over_run",
        "stock model, one answer", marks=pytest.mark.slow),
    pytest.param(
        f"{MOLECULES} --model molecules",
        "model data predictor_data requests orders seed dtype methods references", "PINE less Vanilla",
        marks=pytest.mark.slow),
    ("methods", "methods wrappers", "permutation_full"),
    ("models", "models", "unsupported"),
    ("models --types", "types", "nemotron_h"),
    ("download-data", "sets", "29856825"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "keys", "words"), RUNS)
def test_subcommand_prints(
    pine: Run, folder: Path, steps: Steps, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    line: str, keys: str, words: str,
) -> None:  # fmt: skip
    """JSON and table of a result, which is computed once."""
    results: list[output.CommandResult] = []
    print_result = output.print_result

    def keep(result: output.CommandResult, *, as_json: bool) -> None:
        results.append(result)
        print_result(result, as_json=as_json)

    monkeypatch.setattr(output, "print_result", keep)
    model = LoadableModel("bloom", "hub", 98_000_000, None, "bloom", supported=False, reason="unsupported")
    monkeypatch.setattr(listing, "list_models", lambda: [model])
    outcome = pine(*line.split(), "--json")
    assert outcome.status == 0
    notes = " ".join(results[0].notes).split()
    assert (
        outcome.stderr.split()[-len(notes) or None :] == notes
    )  # `evaluate` prints a note before the run, too
    assert list(outcome.json) == keys.split()
    assert steps.announced == [len(steps.taken)] * len(steps.announced)
    monkeypatch.setattr(output.stdout, "width", 200)
    print_result(results[0], as_json=False)
    table = capfd.readouterr()
    assert words in table.out
    names = {key: outcome.json.get(key) for key in ("model", "dtype")}
    assert (f"model: {names['model']}, dtype: {names['dtype']}\n" in table.err) == ("dtype" in keys)


def test_every_subcommand_and_option_has_help(pine: Run) -> None:
    for name in (*cli.SUBCOMMANDS, *cli.EARLIER_NAMES):
        command = cli.import_subcommand(name)
        options: list[Any] = [option for option in command.params if option.name != "help"]
        assert options and all(option.help for option in options) and "Args:" not in str(command.help), name
        assert not any(option.secondary_opts for option in options)  # a flag has no --no-flag
        assert [option.default for option in options if option.name == "dtype"] in ([], ["auto"], [None])
        assert (name, "as_json") in [(name, option.name) for option in options]


@pytest.mark.parametrize("name", cli.SUBCOMMANDS)
def test_counts_are_checked_before_loading(name: str) -> None:
    options: list[Any] = list(cli.import_subcommand(name).params)
    numbers = [option for option in options if option.type_descriptor.annotation in (int, float)]
    unlimited = {option.name for option in numbers if option.min is None}
    assert unlimited <= {"seed", "sample_seed"}


def test_dtype_default_is_auto_everywhere() -> None:
    functions: list[Any] = [load, shapes.load_engine, Engine.load]
    defaults = {inspect.signature(function).parameters["dtype"].default for function in functions}
    assert defaults == {DEFAULTS.dtype} == {"auto"}


REFUSALS = {
    "nonsense": "No such command", "compare": "Missing argument",
    "compare mixed.jsonl": "line 2", "evaluate - --output-dir run": "file",
    "compare request.json --nonsense": "No such option", "compare absent.json": "absent.json",
    "compare request.json --methods magic": "'magic'", "compare request.json --dtype int8": "'int8'",
    "compare request.json --model no/such/folder": "'no/such/folder'",
    "compare request.json --model random:tiny": "random:tiny", "compare long.json": "1186 tokens",
    "verify data.jsonl --limit 0": "--limit",
    "verify data.jsonl --methods permutation_full:vanilla": "'permutation_full:vanilla'",
    "verify data.jsonl --threads 2": "--threads", "verify data.jsonl --self-test": "--self-test",
    "verify": "--self-test", "verify --self-test --threads 2,many": "'2,many'",
    "verify --self-test --threads 2,0": "--threads", "verify --self-test --model random:magic": "random:tiny",
    "debias request.json": "--wrapper", "debias request.json --wrapper magic": "'magic'",
    "debias labeled.json --wrapper permutation_full --labels A,B --max-orders 1": "at most 1",
    "debias labeled.json --wrapper permutation_full --labels one,two": "'one'",
    "reproduce absent.json": "absent.json",
    "bench --methods magic": "'magic'", "bench --max-new-tokens 1": "--max-new-tokens",
    "bench --end-to-end --trace": "--trace",
    "bench --device tp": "--device", "evaluate absent.jsonl --output-dir run": "absent.jsonl",
    "evaluate data.jsonl --output-dir run": "--task",
    "evaluate one.jsonl --output-dir run --orders sideways": "'sideways'",
    "evaluate one.jsonl --output-dir run --metrics guess": "'guess'",
    "evaluate one.jsonl --output-dir run --device tp": "'tp'", "download-data magic": "'magic'",
    "download-data r-gsm": "docs/data.md", "report --output-dir report": "--molecules",
    "reproduce-paper --output-dir papers": "download-data rewardbench",
    "reproduce-paper squad --output-dir papers": "'squad'",
    "molecules absent.jsonl --predictor-data absent.jsonl": "absent.jsonl",
    "molecules train.jsonl --predictor-data train.jsonl": "m-CO", "methods --into absent.md": "absent.md",
    "models --into absent.md": "--types", "models --types --into absent.md": "absent.md",
    "compare request.json --max-new-tokens -3": "--max-new-tokens",
    "debias labeled.json --wrapper permutation_full --max-new-tokens -3": "--max-new-tokens",
    "debias labeled.json --wrapper permutation_sampled --samples 0": "--samples",
    "download-data facts-3 --output-dir one.jsonl": "one.jsonl",
    "download-data facts-3 --output-dir one.jsonl/data": "one.jsonl",
    "evaluate one.jsonl --output-dir one.jsonl": "one.jsonl",
    "evaluate one.jsonl --output-dir one.jsonl/run": "one.jsonl",
    "report run --output-dir one.jsonl": "one.jsonl", "reproduce-paper --output-dir one.jsonl": "one.jsonl",
    "methods --into .": ".",
}  # fmt: skip

LOADS_MODEL = ("compare long.json", "--labels one,two")
CHECKED_BY_LOADER = ("--dtype", "--model", *LOADS_MODEL)
LOADS_PACKAGES = ("molecules train.jsonl", "models --types", *LOADS_MODEL)


@pytest.mark.parametrize("line", REFUSALS)
def test_refusal_names_argument(pine: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    write(folder / "long.json", {**COMPARISON, "documents": ["a" * 1000]})
    write(folder / "mixed.jsonl", f"{json.dumps(COMPARISON)}\n[]\n")
    if not any(words in line for words in CHECKED_BY_LOADER):
        monkeypatch.setattr(output, "load", lambda *_, **__: pytest.fail("a model was loaded"))
    outcome = run(pine, line)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert REFUSALS[line] in outcome.stderr and "Traceback" not in outcome.stderr
    is_usage_error = "Usage: " in outcome.stderr
    assert is_usage_error or (outcome.stderr.startswith("pine_engine: ") and outcome.stderr.count("\n") == 1)


ON_FILES = (
    "compare {file} --methods vanilla,pine --max-new-tokens 2",
    "verify {file} --methods pine --num-orders 1 --max-new-tokens 1",
    "debias {file} --wrapper permutation_sampled --labels A,B --max-new-tokens 2",
    "evaluate {file} --methods pine,calibration_first --max-new-tokens 2 --output-dir {run}",
    "report {file} --output-dir {run}", "reproduce {file}", "download-data {file}",
)  # fmt: skip
OPTIONS = ("--methods", "--max-new-tokens", "--dtype", "--labels", "--seed", "--limit", "--orders", "--json")


@pytest.mark.slow
@settings(max_examples=75, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    line=st.sampled_from(ON_FILES),
    rows=st.lists(ROWS_OF_SETS | REQUESTS, min_size=1, max_size=2),
    content=st.none() | CONTENTS,
    option=st.none() | st.sampled_from(OPTIONS),
    value=TEXTS,
)
def test_any_file_and_value_are_accepted_or_refused(
    pine: Run, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    line: str, rows: list[Any], content: bytes | None, option: str | None, value: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(output, "load", lambda *_, **__: engine)
    monkeypatch.chdir(tmp_path)
    Path("input.jsonl").write_bytes(json_lines(rows) if content is None else content)
    words = line.format(file="input.jsonl", run=tempfile.mkdtemp(dir=tmp_path)).split()
    if option:  # the arguments of a process have no NUL, and no surrogate that does not represent a byte
        words += [option, value.replace("\0", "").encode("utf-8", "replace").decode()]
    with no_harm() as stderr:
        outcome = pine(*words)
    assert outcome.status in (0, 1) or (outcome.status == 2 and stderr.getvalue().strip())


WITHOUT_TORCH = """
import contextlib, io, json, sys
from pine_engine.cli.main import main
slow = {"torch", "transformers", "accelerate", "sklearn", "rdkit", "pooch", "pyarrow"}
for line, status in json.loads(sys.stdin.read()):
    sys.argv = ["pine_engine", *line.split()]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            main()
        except SystemExit as ended:
            assert (ended.code or 0) == status, (line, ended.code)
    assert not slow & set(sys.modules), (line, slow & set(sys.modules))
"""


def test_help_lists_and_refusals_load_no_torch(folder: Path) -> None:
    names = list(cli.SUBCOMMANDS)
    lines = ["--help", *(f"{name} --help" for name in names), "methods", "models --json", "download-data"]
    refused = [line for line in REFUSALS if not any(words in line for words in LOADS_PACKAGES)]
    statuses = [(line, 0) for line in lines] + [(line, 2) for line in refused]
    environment = {"PYTHONPATH": str(ROOT), "HF_HUB_CACHE": str(folder / "none"), "PATH": "/usr/bin:/bin"}
    subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH], input=json.dumps(statuses), env=environment, text=True,
        timeout=200, check=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ("", ["vanilla", "nia", "pcw", "pine"]),
        ("--methods all", [name for name, row in METHODS.items() if not row.needs_scores]),
    ],
)
def test_compare_uses_methods_and_dtype(pine: Run, folder: Path, options: str, names: list[str]) -> None:
    line = f"compare request.json --dtype bfloat16 --max-new-tokens 1 --json {options}"
    report = run(pine, line).json
    assert (report["model"], report["dtype"]) == ("tiny", "bfloat16")
    assert [result["method"] for result in report["results"]] == names


def test_compare_reads_requests_and_rows_on_stdin(
    pine: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"\n{json.dumps(COMPARISON)}\n{json.dumps(EXAMPLES[1])}\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    report = run(pine, "compare - --methods pine --max-new-tokens 1 --json").json
    assert [result["id"] for result in report["results"]] == ["line 2", "a-2"]


def test_verify_finds_invariance_by_method_and_example(pine: Run, folder: Path) -> None:
    names = ("vanilla", "pcw", "pine", "in_context_reranking")
    line = f"verify data.jsonl --num-orders 3 --max-new-tokens 2 --methods {','.join(names)} --json"
    report = run(pine, line).json
    entries = report["rows"]
    expected = [(example["id"], method) for example in EXAMPLES for method in names]
    assert [(one["id"], one["method"]) for one in entries] == expected
    for one in entries:
        assert one["orders"] == {"a-1": 4, "a-2": 2}[one["id"]]
        is_invariant = METHODS[one["method"]].is_order_invariant
        assert one["bitwise_identical"] == (one["max_abs_logit_diff"] == 0)
        assert one["bitwise_identical"] == is_invariant or METHODS[one["method"]].score
        assert one["num_distinct_answers"] == 1 or not is_invariant
    for name, total in report["summary"].items():
        own = [one for one in entries if one["method"] == name]
        assert (total["rows"], total["orders"]) == (2, 6)
        assert total["rows_with_one_text"] == sum(one["num_distinct_answers"] == 1 for one in own)
        assert total["max_abs_logit_diff"] == max(one["max_abs_logit_diff"] for one in own)
        assert total["invariance_held"] == (METHODS[name].is_order_invariant or None)


def test_verify_of_single_documents_has_no_verdict(pine: Run, folder: Path) -> None:
    row = {"question": "Who?", "documents": ["Ada."]}
    (folder / "single.jsonl").write_text(json.dumps(row))
    outcome = run(pine, "verify single.jsonl --methods pine --max-new-tokens 1 --json")
    assert outcome.json["summary"]["pine"]["invariance_held"] is None
    assert "1 of 1 rows" in outcome.stderr and outcome.status == 0


def test_verify_total_with_nan_is_nan() -> None:
    same = {"orders": 2, "num_distinct_answers": 1, "bitwise_identical": False}
    total = verify_module._total("pine", [{**same, "max_abs_logit_diff": one} for one in (0.5, math.nan)])
    assert math.isnan(total["max_abs_logit_diff"]) and total["invariance_held"] is False


def test_verify_exits_1_if_method_changes(pine: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_module, "METHODS", {**METHODS, "vanilla": METHODS["pine"]})
    line = "verify data.jsonl --limit 1 --num-orders 1 --methods vanilla,pcw --max-new-tokens 1 --json"
    outcome = run(pine, line)
    assert outcome.status == 1 and "vanilla" in outcome.stderr and "pcw" not in outcome.stderr
    held = {name: (one["rows"], one["invariance_held"]) for name, one in outcome.json["summary"].items()}
    assert held == {"vanilla": (1, False), "pcw": (1, True)}


def test_self_test_runs_checks_with_every_thread_count(pine: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()

    def check() -> Check:
        threads = torch.get_num_threads()
        return Check("layers", holds=threads != 3, found=f"{threads} threads", meaning="")

    monkeypatch.setattr(selftest, "plan_checks", lambda *_, **__: [check])
    line = "verify --self-test --model random:tiny"
    outcome = pine(*line.split(), "--threads", "12,3,1", "--json")
    assert (outcome.status, torch.get_num_threads()) == (1, before)
    assert list(outcome.json) == ["model", "dtype", "device", "checks", "passed"]
    assert [(one["name"], one["found"]) for one in outcome.json["checks"]] == [
        (f"threads {count}: layers", f"{count} threads") for count in (12, 3, 1)
    ]
    assert "threads 3: layers" in outcome.stderr and "threads 12" not in outcome.stderr
    table = pine(*line.split(), "--threads", "3").stdout
    assert "FAIL" in table and "3 threads" in table
    assert pine(*line.split(), "--json").json["passed"] is True


@pytest.mark.parametrize(
    ("options", "num_prompts", "labels"),
    [
        ("permutation_cyclic --majority --max-new-tokens 2 --base pcw", 4, ["A", "B"]),
        ("calibration_labels --labels x,y", 8, ["x", "y"]),
        ("calibration_every --max-new-tokens 2", 8, []),
    ],
)
def test_debias_has_an_answer_for_each_file(
    pine: Run, folder: Path, options: str, num_prompts: int, labels: list[str]
) -> None:
    labeled = {**COMPARISON, "task": "judge", "instruction": "Judge.", "labels": ["A", "B"]}
    files = [str(write(folder / name, labeled)) for name in ("one.json", "two.json")]
    report = pine("debias", *files, "--wrapper", *options.split(), "--json").json
    assert (report["prompts"], report["base"]) == (num_prompts, "pcw" if "pcw" in options else "vanilla")
    assert [result["file"] for result in report["results"]] == files
    for result in report["results"]:
        assert list(result["scores"]) == labels
        if labels and "majority" not in options:
            assert result["answer"] == max(labels, key=result["scores"].get)


def test_methods_writes_tables_between_markers(pine: Run, tmp_path: Path) -> None:
    from pine_engine.cli.methods import BEGIN, END

    begin, end = BEGIN.format(name="methods", command="methods"), END.format(name="methods")
    file = write(tmp_path / "page.md", f"# Before\n\n{begin}\nold\n{end}\n\nAfter.\n")
    assert pine("methods", "--into", file).status == pine("methods", "--into", file).status == 0
    tables = pine("methods", "--markdown").stdout
    assert file.read_text() == f"# Before\n\n{begin}\n\n{tables}\n{end}\n\nAfter.\n"
    for content in ("no markers", f"{end}\n{begin}\n"):
        file.write_text(content)
        assert pine("methods", "--into", file).status == 2 and file.read_text() == content
    by_name = {one["name"]: one for one in pine("methods", "--json").json["methods"]}
    assert list(by_name) == list(METHODS)
    values = [by_name["sp"][key] for key in ("sees", "positions", "weight")]
    assert values == ["none", "all start together", "1/k for documents"]


Row = dict[str, Any]

WORD = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=40)
TEXT = st.lists(WORD, min_size=1, max_size=12).map(" ".join)
ROWS = st.lists(st.fixed_dictionaries({"method": WORD, "a text": TEXT, "path": WORD}), min_size=1, max_size=3)


def printed(rows: list[Row], width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_rows(console, rows)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@given(ROWS, st.integers(20, 200))
def test_no_word_of_titles_and_cells_is_broken(rows: list[Row], width: int) -> None:
    words = re.split(r"[\s│┃]+", printed(rows, width))
    cells = {word for row in rows for value in row.values() for word in value.split()}
    titles = {word for title in list(rows[0])[1:] for word in title.split()}  # a block has no first title
    assert cells | titles <= set(words)


SCORES: list[Row] = [{"method": "pine", "max |Δ logit|": 0.0}, {"method": "vanilla", "max |Δ logit|": 3.25}]
CHECKS: list[Row] = [{"check": "rows", "meaning": "a row does not depend on others in the same batch"}]
CASES: list[Row] = [{"case": "a", "problem": "one two three four\nfive", "path": "/a/path", "none": None}]


@pytest.mark.parametrize(
    ("rows", "width", "part"),
    [
        (SCORES, 27, "│ vanilla │ 3.25          │"),
        (SCORES, 17, "pine\n  max |Δ logit|  0\n\nvanilla\n  max |Δ logit|  3.25\n"),
        (CHECKS, 47, "│ rows  │ a row does not depend on others in  │"),  # only the widest column wraps
        (CASES, 24, "  problem  one two three\n           four\n           five\n  path     /a/path\n"),
        (CASES, 80, "│ /a/path │ -    │"),
    ],
)
def test_rows_are_blocks_where_no_table_fits(rows: list[Row], width: int, part: str) -> None:
    assert part in printed(rows, width)


def test_report_is_printed_without_markup_and_nan(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_result(output.CommandResult({}, [{"text": "[red]a[/x] [b]"}]), as_json=False)
    assert "[red]a[/x] [b]" in capsys.readouterr().out
    report = {"a": float("nan"), "b": [{"c": float("inf")}, (1.5, None)]}
    output.print_result(output.CommandResult(report, []), as_json=True)
    assert capsys.readouterr().out == '{"a": null, "b": [{"c": null}, [1.5, null]]}\n'


def test_version_is_printed_without_a_subcommand(pine: Run) -> None:
    outcome = pine("--version")
    assert (outcome.status, outcome.stdout) == (0, f"pine-explorer {pine_engine.__version__}\n")


INTERRUPTED = """
import time
from pine_engine.cli.main import ends_on_interrupt
with ends_on_interrupt():
    try:
        print("begun", flush=True)
        time.sleep(60)
    finally:
        time.sleep(60)  # as in a layer of a large model
"""


def test_interrupt_ends_command_within_a_second() -> None:
    assert cli.MAX_CLEANUP_S < 1
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 130


def test_exhausted_memory_is_named_without_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = ImportError("libtorch_cpu.so: failed to map segment from shared object")
    monkeypatch.setattr(cli, "app", Mock(side_effect=error))
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    assert "not enough memory" in capsys.readouterr().err


def test_interrupt_during_imports_has_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    main = SimpleNamespace(main=Mock(side_effect=KeyboardInterrupt))
    monkeypatch.setitem(sys.modules, "pine_engine.cli.main", main)
    with pytest.raises(SystemExit, match="130"):
        runpy.run_module("pine_engine", run_name="__main__")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> tuple[io.StringIO, list[float]]:
    shown, now = io.StringIO(), [0.0]
    console = Console(file=shown, force_terminal=True, width=100, get_time=lambda: now[0])
    monkeypatch.setattr(output, "stderr", console)
    return shown, now


def test_progress_shows_steps_and_remaining_time(terminal: tuple[io.StringIO, list[float]]) -> None:
    shown, now = terminal
    with output.progress(9, done=4) as advance:
        for _ in range(3):
            now[0] += 60
            advance("q1: pine, as-is")
    text = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", shown.getvalue())
    assert "7/9 0:02:00 left, 0:03:00 q1: pine, as-is" in text


def test_load_shows_conversion_and_warning(
    terminal: tuple[io.StringIO, list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load_engine(name: str, *, dtype: str, device: str, progress: Any) -> Any:
        progress(0.25, f"converting {name}")
        return SimpleNamespace(arguments=(name, dtype, device), invariance_warning="not invariant here")

    monkeypatch.setattr(shapes, "load_engine", load_engine)
    loaded: Any = output.load("tiny", "float32", "cpu")
    assert loaded.arguments == ("tiny", "float32", "cpu")
    assert "converting tiny" in terminal[0].getvalue() and "not invariant here" in terminal[0].getvalue()


def test_compare_keeps_instruction_of_request_in_jsonl(pine: Run, folder: Path) -> None:
    request = {**COMPARISON, "instruction": "Say one word."}
    write(folder / "request.json", request)
    write_rows(folder / "one.jsonl", [request, EXAMPLES[1]])
    alone, several = (
        run(pine, f"compare {name} --methods pine --max-new-tokens 3 --limit 1 --json").json["results"]
        for name in ("request.json", "one.jsonl")
    )
    assert [found["text"] for found in several] == [alone[0]["text"]]
    assert [found["id"] for found in (*alone, *several)] == ["request.json", "line 1"]


def test_debias_leaves_out_columns_without_values(pine: Run, folder: Path) -> None:
    printed = run(pine, "debias labeled.json --wrapper calibration_every --max-new-tokens 1").stdout
    assert "answer" in printed and "scores" not in printed and "alone" not in printed


def test_debias_names_rows_of_files(pine: Run, folder: Path) -> None:
    labeled = {**COMPARISON, "task": "judge", "instruction": "Judge."}
    write_rows(folder / "rows.jsonl", [{**labeled, "id": 7}, labeled])
    line = "debias rows.jsonl labeled.json --wrapper permutation_full --labels A,B --json"
    results = run(pine, line).json["results"]
    assert [result["file"] for result in results] == ["rows.jsonl, 7", "rows.jsonl, line 2", "labeled.json"]
    assert len({tuple(result["scores"].values()) for result in results}) == 1
