"""The command line: one JSON object on stdout and nothing else, one line on stderr for bad input."""

import inspect
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file, save_file

from pine_engine.benchmark import random_models
from pine_engine.benchmark.random_models import MARK, SHAPES
from pine_engine.cli import main as cli
from pine_engine.cli import verify as verify_command
from pine_engine.console import terminal
from pine_engine.engine.engine import Engine
from pine_engine.invariance import selftest
from pine_engine.invariance.kernel_checks import Check
from pine_engine.methods.table import METHODS
from pine_engine.models.load import load
from tests.support.commands import COMPARISON, Run, Steps, assert_refused, run_cli_forked, write
from viz.page.common.host_settings import DEFAULTS

ROOT = Path(cli.__file__).parents[2]
GOLDEN = Path(__file__).parents[1] / "golden" / "conformance"

ROWS = [
    {"id": "a-1", "task": "math_reasoning", "question": "How many?", "documents": [
        {"text": "Ann has 3."}, {"text": "Bob has twelve."}, {"text": "Cy none."}]},
    {"id": "a-2", "task": "kv_retrieval", "question": "k1", "documents": [
        {"title": "k1", "text": "v1"}, {"title": "k2", "text": "v22"}]},
]  # fmt: skip


@pytest.fixture
def comparison(tmp_path: Path) -> Path:
    return write(tmp_path / "comparison.json", COMPARISON)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write(tmp_path / "data.jsonl", "".join(json.dumps(row) + "\n" for row in ROWS))


# bad input: a line, exit 2, no traceback


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, " cannot be read: No such file or directory; give the path of a file that exists"),
        ("{", ": it is not JSON: Expecting property name enclosed in double quotes at line 1 column 2"),
        ({"question": "Why?"}, ": documents: it is missing; give it"),
        ({"documents": []}, ": documents: got 0 items, expected 1 or more"),
        ({**COMPARISON, "questions": "x"},
         ": questions: got the text 'x', but there is no such field; remove it, or correct its name"),
        ({**COMPARISON, "question": ""}, ": there is no question; write one"),
        (["a", "b"], ": there is no question; write one"),
        ({**COMPARISON, "documents": ["a", " "]}, ": document 2 is empty; write some text or remove it"),
        ({**COMPARISON, "task": "poetry"}, ": unknown task 'poetry'; choose from: retrieval_qa, "
         "retrieval_qa_numbered, judge_pair, math_reasoning, molecule_generation, qm9, kv_retrieval"),
        ({**COMPARISON, "documents": [1], "question": 2},
         " has 2 mistakes:\nquestion: got int 2, expected text;\n"
         'documents.0: got int 1, expected a text or {"text": ..., "title": ...}'),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("no_model")
def test_compare_refuses_files_it_cannot_use(pine: Run, tmp_path: Path, content: Any, problem: str) -> None:
    path = tmp_path / "given.json"
    if content is not None:
        write(path, content)
    assert_refused(pine("compare", path, "--json"), f"{path}{problem}")


def test_compare_refuses_a_prompt_that_is_too_long(pine: Run, tiny: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "given.json", {**COMPARISON, "documents": ["a" * 1000]})
    assert_refused(
        pine("compare", path, "--model", tiny),
        "the prompt has 1186 tokens and the answer may take 64, but the model reads 700 in all; "
        "shorten or remove documents, or ask for a shorter answer",
    )


@pytest.mark.parametrize("verb", ["compare", "verify", "bench"])
@pytest.mark.parametrize(
    ("methods", "sentence"),
    [
        ("pine,magic", f"unknown method 'magic'; choose from: {', '.join(METHODS)}, or 'all' alone"),
        ("", f"no method was chosen; choose at least one of: {', '.join(METHODS)}"),
        ("pine,pine", "a method was named twice in pine, pine; name each method once"),
    ],
    ids=["unknown", "none", "twice"],
)
@pytest.mark.usefixtures("no_model")
def test_every_verb_refuses_methods_that_are_not_there(
    pine: Run, comparison: Path, data: Path, verb: str, methods: str, sentence: str
) -> None:
    file = {"compare": [comparison], "verify": [data], "bench": []}[verb]
    assert_refused(pine(verb, *file, "--methods", methods), sentence)


@pytest.mark.parametrize("verb", ["compare", "verify", "bench"])
def test_every_verb_refuses_a_dtype_or_model_that_is_not_there(
    pine: Run, comparison: Path, data: Path, tiny: Path, verb: str
) -> None:
    file = {"compare": [comparison], "verify": [data], "bench": []}[verb]
    assert_refused(
        pine(verb, *file, "--model", tiny, "--dtype", "int8"),
        "dtype 'int8' is not supported; use one of auto, float32, bfloat16, float16, 4bit",
    )
    outcome = pine(verb, *file, "--model", "no/such/folder")
    assert outcome.stderr.startswith("pine_engine: 'no/such/folder' is not a model; expected a folder")
    assert (outcome.status, outcome.stdout, outcome.stderr.count("\n")) == (2, "", 1)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", " has no rows; expected one JSON object per line"),
        (f"{json.dumps(ROWS[0])}\n{{\n",
         ", line 2: it is not JSON: Expecting property name enclosed in double quotes at column 2"),
        (f"{json.dumps(ROWS[0])}\n\n{{}}\n", ", line 3: documents: it is missing; give it"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("no_model")
def test_verify_refuses_files_it_cannot_use(pine: Run, tmp_path: Path, content: str, problem: str) -> None:
    path = write(tmp_path / "data.jsonl", content)
    assert_refused(pine("verify", path), f"{path}{problem}")


@pytest.mark.usefixtures("no_model")
def test_verify_says_which_row_it_cannot_use(pine: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "data.jsonl", json.dumps({**ROWS[0], "task": "poetry"}))
    assert pine("verify", path).stderr.startswith(f"pine_engine: {path}, line 1: unknown task 'poetry'")


def test_conformance_refuses_a_folder_without_cases(pine: Run, tmp_path: Path) -> None:
    assert_refused(
        pine("conformance", tmp_path, "--json"),
        f"{tmp_path} has no conformance case: expected folders with a case.json",
    )
    shutil.copytree(GOLDEN / "s1_llama_k2", tmp_path / "case")
    (tmp_path / "case" / "weights.safetensors").write_bytes(b"damaged")
    outcome = pine("conformance", tmp_path)
    assert outcome.stderr.startswith(f"pine_engine: {tmp_path}/case is not a complete conformance case: ")
    assert (outcome.status, outcome.stdout, outcome.stderr.count("\n")) == (2, "", 1)


@pytest.mark.parametrize(
    "arguments",
    [["compare"], ["nonsense"], ["verify", "f", "--limit", "0"], ["verify", "f", "--num-orders", "0"],
     ["bench", "--documents", "0"], ["bench", "--max-new-tokens", "1"], ["bench", "--repeats", "0"]],
    ids=" ".join,
)  # fmt: skip
@pytest.mark.usefixtures("no_model")
def test_wrong_usage_exits_with_2_and_leaves_stdout_empty(pine: Run, arguments: list[str]) -> None:
    outcome = pine(*arguments)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert "Traceback" not in outcome.stderr and "Error" in outcome.stderr


def test_dtype_has_one_default_in_library_cli_and_page() -> None:
    subcommands = [command.callback for command in cli.app.registered_commands]
    loaders: list[Any] = [load, random_models.load_engine, Engine.load, *subcommands]
    parameters = [inspect.signature(loader).parameters.get("dtype") for loader in loaders]
    # `repeat` has none: it takes the dtype of its certificate.
    defaults = {parameter.default for parameter in parameters if parameter and parameter.default is not None}
    assert defaults == {DEFAULTS.dtype} == {"auto"}


# compare


def test_compare_prints_answers_and_times(pine: Run, comparison: Path, tiny: Path) -> None:
    outcome = pine(
        "compare",
        comparison,
        "--model",
        tiny,
        "--methods",
        "pine,vanilla",
        "--max-new-tokens",
        3,
        "--json",
    )
    assert (outcome.status, outcome.stderr) == (0, "")
    printed = outcome.json
    assert {key: printed[key] for key in ("model", "dtype")} == {"model": "tiny", "dtype": "float32"}
    assert list(printed) == ["model", "dtype", "results"]
    assert [result["method"] for result in printed["results"]] == ["pine", "vanilla"]
    for result in printed["results"]:
        assert list(result) == ["method", "text", "tokens", "prefill_s", "decode_s_per_token"]
        assert 0 <= result["tokens"] <= 3
        assert isinstance(result["text"], str)
        assert 0 < result["prefill_s"] < 60 and 0 <= result["decode_s_per_token"] < 60


@pytest.mark.parametrize(
    ("asked", "answered"),
    [([], ["vanilla", "nia", "pcw", "pine"]), (["--methods", "all"], list(METHODS))],
    ids=["by default", "all"],
)
def test_compare_answers_with_the_methods_in_the_dtype_asked_for(
    pine: Run, comparison: Path, tiny: Path, asked: list[str], answered: list[str]
) -> None:
    options = ["--model", tiny, "--dtype", "bfloat16", "--max-new-tokens", 1, "--json", *asked]
    printed = pine("compare", comparison, *options).json
    assert [result["method"] for result in printed["results"]] == answered
    assert printed["dtype"] == "bfloat16"


def test_the_model_may_be_named_in_the_environment(
    pine: Run, comparison: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PINE_MODEL", str(tiny))
    printed = pine("compare", comparison, "--methods", "pcw", "--max-new-tokens", 1, "--json").json
    assert printed["model"] == "tiny"


def test_without_json_a_table_is_printed(pine: Run, comparison: Path, tiny: Path) -> None:
    outcome = pine("compare", comparison, "--model", tiny, "--methods", "nia", "--max-new-tokens", 2)
    assert outcome.status == 0
    assert "method" in outcome.stdout and "nia" in outcome.stdout
    with pytest.raises(json.JSONDecodeError):
        json.loads(outcome.stdout)


def test_brackets_in_an_answer_are_not_read_as_colours(capsys: pytest.CaptureFixture[str]) -> None:
    """Answers are the model's text; the table must show them as they are."""
    terminal.print_report({}, as_json=False, rows=[{"text": "[red]a[/x] [b]"}])
    assert "[red]a[/x] [b]" in capsys.readouterr().out


# verify


def test_verify_finds_promises_kept_and_vanilla_changed(pine: Run, data: Path, tiny: Path) -> None:
    options = ["--num-orders", 3, "--max-new-tokens", 2, "--methods", "all", "--json"]
    outcome = pine("verify", data, "--model", tiny, *options)
    assert (outcome.status, outcome.stderr) == (0, "")
    printed = outcome.json
    assert list(printed) == ["model", "dtype", "rows", "summary"]
    assert [(row["id"], row["method"]) for row in printed["rows"]] == [
        (id_, method) for id_ in ("a-1", "a-2") for method in METHODS
    ]
    for row in printed["rows"]:
        assert list(row) == [
            "id",
            "method",
            "orders",
            "num_distinct_answers",
            "max_abs_logit_diff",
            "bitwise_identical",
        ]
        assert row["orders"] == {"a-1": 4, "a-2": 2}[row["id"]]
        promises = METHODS[row["method"]].is_order_invariant
        assert row["bitwise_identical"] == promises == (row["max_abs_logit_diff"] == 0)
        if promises:
            assert row["num_distinct_answers"] == 1
    summary = printed["summary"]
    assert list(summary) == list(METHODS)
    for name, values in summary.items():
        rows = [row for row in printed["rows"] if row["method"] == name]
        assert values == {
            "rows": 2,
            "orders": 6,
            "rows_with_one_text": sum(row["num_distinct_answers"] == 1 for row in rows),
            "max_abs_logit_diff": max(row["max_abs_logit_diff"] for row in rows),
            "bitwise_identical": METHODS[name].is_order_invariant,
            "invariance_held": True if METHODS[name].is_order_invariant else None,
        }


def test_verify_reads_no_more_rows_than_asked_for(pine: Run, data: Path, tiny: Path) -> None:
    options = ["--limit", 1, "--num-orders", 1, "--methods", "pcw", "--max-new-tokens", 1, "--json"]
    printed = pine("verify", data, "--model", tiny, *options).json
    assert [(row["id"], row["method"], row["orders"]) for row in printed["rows"]] == [("a-1", "pcw", 2)]


def test_verify_exits_with_1_if_a_promise_is_broken(
    pine: Run, data: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if vanilla promised what PINE does."""
    monkeypatch.setattr(verify_command, "METHODS", {**METHODS, "vanilla": METHODS["pine"]})
    options = [
        "--model",
        tiny,
        "--num-orders",
        1,
        "--methods",
        "vanilla,pcw",
        "--max-new-tokens",
        1,
        "--json",
    ]
    outcome = pine("verify", data, *options)
    assert outcome.status == 1
    assert outcome.stderr == "the order of the documents changed the output of: vanilla\n"
    summary = outcome.json["summary"]
    assert (summary["vanilla"]["invariance_held"], summary["pcw"]["invariance_held"]) == (False, True)


def test_self_test_needs_no_data_and_prints_every_check(pine: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def every_fifth(*arguments: Any, **options: Any) -> list[Any]:
        """All are tried in tests/invariance/test_selftest.py."""
        return planned(*arguments, **options)[::5]

    planned = selftest.plan_checks
    monkeypatch.setattr(selftest, "plan_checks", every_fifth)
    outcome = pine("verify", "--self-test", "--model", "random:tiny", "--num-orders", 1, "--json")
    assert (outcome.status, outcome.stderr) == (0, "")
    printed = outcome.json
    assert list(printed) == ["model", "dtype", "device", "checks", "passed"]
    assert (printed["model"], printed["device"], printed["passed"]) == ("random:tiny", "cpu", True)
    for check in printed["checks"]:
        assert list(check) == ["name", "holds", "found", "meaning"]
        assert check["holds"]


def test_self_test_failed_check_exits_1(pine: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    passed = Check("few rows", holds=True, found="7 rows", meaning="batch size")
    failed = Check("many rows", holds=False, found="64 rows", meaning="row index")
    monkeypatch.setattr(selftest, "plan_checks", lambda *_, **__: [lambda: passed, lambda: failed])
    outcome = pine("verify", "--self-test", "--model", "random:tiny")
    assert outcome.status == 1
    assert "many rows" in outcome.stderr and "few rows" not in outcome.stderr
    assert "FAIL" in outcome.stdout and "64 rows" in outcome.stdout and "row index" in outcome.stdout
    monkeypatch.setattr(selftest, "plan_checks", lambda *_, **__: [lambda: passed])
    assert pine("verify", "--self-test", "--model", "random:tiny").status == 0


def test_self_test_runs_with_every_thread_count(pine: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()

    def count() -> Check:
        threads = torch.get_num_threads()
        return Check("layers", holds=threads != 3, found=f"{threads}", meaning="")

    monkeypatch.setattr(selftest, "plan_checks", lambda *_, **__: [count])
    outcome = pine("verify", "--self-test", "--model", "random:tiny", "--threads", "12,3,1", "--json")
    assert (outcome.status, torch.get_num_threads()) == (1, before)
    assert [(check["name"], check["found"]) for check in outcome.json["checks"]] == [
        (f"threads {number}: layers", f"{number}") for number in (12, 3, 1)
    ]
    assert "threads 3: layers" in outcome.stderr and "threads 12" not in outcome.stderr


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    ("threads", "sentence"),
    [
        ("2,many", "the numbers of threads '2,many' are not numbers; give whole numbers separated by commas"),
        ("2,0", "0 threads cannot compute; give whole numbers from 1 on"),
    ],
)
def test_threads_are_whole_numbers_from_one_on(pine: Run, threads: str, sentence: str) -> None:
    assert sentence in pine("verify", "--self-test", "--threads", threads).stderr


@pytest.mark.usefixtures("no_model")
def test_threads_belong_to_the_self_test(pine: Run, data: Path) -> None:
    sentence = "--threads belong to the self-test; give --self-test, or set OMP_NUM_THREADS"
    assert_refused(pine("verify", data, "--threads", 2), sentence)


@pytest.mark.usefixtures("no_model")
def test_verify_takes_data_or_tests_itself(pine: Run, data: Path) -> None:
    sentence = "verify needs one of two things: a file of data, or --self-test; give one of them"
    assert_refused(pine("verify"), sentence)
    assert_refused(pine("verify", data, "--self-test"), sentence)


# models with random weights


@pytest.mark.parametrize("verb", ["compare", "verify"])
def test_a_model_with_random_weights_reads_no_text(
    pine: Run, comparison: Path, data: Path, verb: str
) -> None:
    assert_refused(
        pine(verb, {"compare": comparison, "verify": data}[verb], "--model", "random:tiny"),
        "random:tiny has random weights and no tokenizer, so it cannot read text; it is for `bench` and "
        "`verify --self-test`: give a real model here",
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["random:huge"], "there is no model 'random:huge' with random weights; choose from: "
         + ", ".join(MARK + shape for shape in SHAPES)),
        (["random:tiny", "--device", "auto"],
         "a model with random weights is made on one device; name one, such as cuda"),
        (["random:tiny", "--device", "tp"],
         "`bench` times what one process computes; name another device than 'tp'"),
        (["random:tiny", "--dtype", "int8"],
         "dtype 'int8' is not supported; use one of auto, float32, bfloat16, float16, 4bit"),
    ],
    ids=["unknown", "no device", "split", "dtype"],
)  # fmt: skip
def test_a_model_with_random_weights_that_cannot_be_made_is_refused(
    pine: Run, options: list[str], sentence: str
) -> None:
    assert_refused(pine("bench", "--model", *options), sentence)


# conformance


def test_conformance_of_all_recorded_cases(pine: Run) -> None:
    outcome = pine("conformance", GOLDEN, "--json")
    assert (outcome.status, outcome.stderr) == (0, "")
    printed = outcome.json
    assert list(printed) == ["cases", "conforms"]
    assert printed["conforms"] is True
    assert [case["case"] for case in printed["cases"]] == [
        "s1_llama_k2",
        "s2_llama_k3",
        "s3_qwen2_k5",
        "s4_llama_k8",
    ]
    for case in printed["cases"]:
        assert list(case) == [
            "case", "runs", "max_logits_diff", "max_vanilla_logits_diff", "max_importance_diff",
            "shifts_equal", "decoded_ids_equal", "conforms",
        ]  # fmt: skip
        assert case["conforms"] is True


def test_conformance_exits_with_1_beyond_tolerance(pine: Run, tmp_path: Path) -> None:
    for name in ("s1_llama_k2", "s2_llama_k3"):
        shutil.copytree(GOLDEN / name, tmp_path / name)
    file = tmp_path / "s2_llama_k3" / "weights.safetensors"
    weights = load_file(file)
    weights["model.layers.0.self_attn.v_proj.weight"][0, 0] += 0.5
    save_file(weights, file)
    outcome = pine("conformance", tmp_path, "--json")
    assert outcome.status == 1
    assert [case["conforms"] for case in outcome.json["cases"]] == [True, False]
    assert outcome.json["conforms"] is False


def test_a_bad_case_does_not_keep_the_others_from_being_checked(pine: Run, tmp_path: Path) -> None:
    for name in ("s1_llama_k2", "s2_llama_k3", "s3_qwen2_k5"):
        shutil.copytree(GOLDEN / name, tmp_path / name)
    (tmp_path / "s2_llama_k3" / "weights.safetensors").write_bytes(b"damaged")
    outcome = pine("conformance", tmp_path, "--json")
    assert outcome.status == 2
    assert [case["conforms"] for case in outcome.json["cases"]] == [True, False, True]
    assert outcome.json["conforms"] is False
    bad = outcome.json["cases"][1]
    assert list(bad) == ["case", "problem", "conforms"]
    assert bad["case"] == "s2_llama_k3"
    assert bad["problem"].startswith(f"{tmp_path}/s2_llama_k3 is not a complete conformance case: ")
    assert outcome.stderr == f"pine_engine: {bad['problem']}\n"

    in_table = pine("conformance", tmp_path)
    assert (in_table.status, in_table.stderr) == (2, outcome.stderr)
    assert in_table.stdout.count("yes") == 3 * 2 and "no" not in in_table.stdout.split()

    # What was checked and does not hold says more than what could not be.
    weights = load_file(file := tmp_path / "s3_qwen2_k5" / "weights.safetensors")
    save_file({**weights, "model.norm.weight": weights["model.norm.weight"] + 1}, file)
    assert pine("conformance", tmp_path, "--json").status == 1


@pytest.mark.parametrize(
    ("verb", "announced"), [("compare", 4), ("verify", 6), ("conformance", 4)]
)  # fmt: skip
def test_progress_ends_where_it_was_announced_to(
    pine: Run,
    comparison: Path,
    data: Path,
    tiny: Path,
    steps: Steps,
    verb: str,
    announced: int,
) -> None:
    methods = ["--model", tiny, "--methods", "pcw,nia"]
    given: dict[str, list[Any]] = {
        "compare": [comparison, *methods, "--max-new-tokens", 1],
        "verify": [data, *methods, "--num-orders", 3, "--max-new-tokens", 1],
        "conformance": [GOLDEN],
    }
    pine(verb, *given[verb])
    assert steps.announced == [len(steps.taken)] == [announced]


def test_a_terminal_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr(terminal, "stderr", console)
    with terminal.progress(3) as advance:
        advance("pine has read 12 tokens")
        advance("pine has answered")
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "2/3" in shown and "pine has answered" in shown


def test_loading_shows_how_far_unpacking_is(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr(terminal, "stderr", console)

    def unpack(name: str, *, dtype: str, device: str, progress: Callable[[float, str], None]) -> Any:
        progress(0.25, f"unpacking {name}")
        return SimpleNamespace(given=(name, dtype, device), invariance_warning=None)

    monkeypatch.setattr(random_models, "load_engine", unpack)
    loaded: Any = terminal.load("tiny", "float32", "cpu")
    assert loaded.given == ("tiny", "float32", "cpu")
    assert isinstance(console.file, io.StringIO)
    assert "unpacking tiny" in console.file.getvalue()


def test_json_has_null_where_a_number_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    report = {"a": float("nan"), "b": [{"c": float("inf")}, (1.5, None)]}
    terminal.print_report(report, as_json=True, rows=[])
    assert capsys.readouterr().out == '{"a": null, "b": [{"c": null}, [1.5, null]]}\n'


# as it is started


def start(*arguments: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pine_engine", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_a_newcomer_compares_on_the_embedded_model_from_any_folder(
    embedded_folder: Path, comparison: Path, tmp_path: Path
) -> None:
    done = start(
        "compare", comparison.name, "--methods", "vanilla,pine", "--max-new-tokens", 4, "--json", cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1
    printed = json.loads(done.stdout)
    assert printed["model"] == "SmolLM2-135M-Instruct"
    assert [(result["method"], result["tokens"]) for result in printed["results"]] == [
        ("vanilla", 4),
        ("pine", 4),
    ]


def test_too_long_a_prompt_is_one_line_on_the_embedded_model(embedded_folder: Path, tmp_path: Path) -> None:
    """The tokenizer has a warning of its own for long texts, which must not be a second line."""
    file = write(tmp_path / "long.json", {"question": "Why?", "documents": ["word " * 9000]})
    done = run_cli_forked(tmp_path, "compare", file).outcome()
    assert (done.status, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "but the model reads 8192 in all; shorten or remove documents" in done.stderr


def test_bad_input_is_one_line_without_traceback(tmp_path: Path) -> None:
    done = start("verify", "absent.jsonl", "--json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "pine_engine: absent.jsonl cannot be read: No such file or directory; "
        "give the path of a file that exists\n"
    )


def test_help_names_every_verb(tmp_path: Path) -> None:
    done = start("--help", cwd=tmp_path)
    assert done.returncode == 0
    for verb in ("compare", "verify", "reproduce", "debias", "conformance", "bench"):
        assert verb in done.stdout
