"""The command line: one JSON object on stdout and nothing else, one line on stderr for bad input."""

import contextlib
import dataclasses
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from safetensors.torch import load_file, save_file

from pine_engine import benchmark, catalog, catalog_command, cli, report, terminal
from pine_engine.methods import METHODS
from pine_engine.models import LoadableModel
from pine_engine.selftest import Check
from pine_engine.wrappers import WRAPPERS
from tests.commands import Outcome, Run

ROOT = Path(cli.__file__).parents[1]
GOLDEN = Path(__file__).parent / "golden" / "conformance"

COMPARISON = {
    "question": "Why?",
    "documents": ["Tides follow the moon.", {"title": "Sun", "text": "It shines."}],
}
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


def write(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


# bad input: a line, exit 2, no traceback


def assert_refused(outcome: Outcome, sentence: str) -> None:
    assert outcome.stdout == ""
    assert outcome.stderr == f"pine_engine: {sentence}\n"
    assert outcome.status == 2


@dataclasses.dataclass(frozen=True)
class Steps:
    """How many steps each progress bar announced, and what each step said."""

    announced: list[int] = dataclasses.field(default_factory=list)
    taken: list[str] = dataclasses.field(default_factory=list)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    """What progress bars are told, in place of showing it."""
    steps = Steps()

    @contextlib.contextmanager
    def progress(total: int) -> Iterator[Callable[[str], None]]:
        steps.announced.append(total)
        yield steps.taken.append

    monkeypatch.setattr(terminal, "progress", progress)
    return steps


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """What can be known before must be said before a model is loaded."""

    def load(*_: Any, **__: Any) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(terminal, "load", load)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, " cannot be read: No such file or directory; give the path of a file that exists"),
        ("{", " is not JSON: Expecting property name enclosed in double quotes at line 1 column 2"),
        ({"question": "Why?"}, ": documents: field required"),
        ({"documents": []}, ": documents: list should have at least 1 item after validation, not 0"),
        ({**COMPARISON, "questions": "x"}, ": questions: extra inputs are not permitted"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("no_model")
def test_compare_refuses_files_it_cannot_use(pine: Run, tmp_path: Path, content: Any, problem: str) -> None:
    path = tmp_path / "given.json"
    if content is not None:
        write(path, content)
    assert_refused(pine("compare", path, "--json"), f"{path}{problem}")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"question": ""}, "there is no question; write one"),
        ({"documents": ["a", " "]}, "document 2 is empty; write some text or remove it"),
        ({"documents": ["a" * 1000]},
         "the prompt has 1186 tokens and the answer may take 64, but the model reads 700 in all; "
         "shorten or remove documents, or ask for a shorter answer"),
        ({"task": "poetry"}, "unknown task 'poetry'; choose from: retrieval_qa, "
         "retrieval_qa_numbered, judge_pair, math_reasoning, molecule_generation, qm9, kv_retrieval"),
    ],
    ids=["no question", "empty document", "too long", "unknown task"],
)  # fmt: skip
def test_compare_refuses_what_no_prompt_can_be_made_of(
    pine: Run, tiny: Path, tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    path = write(tmp_path / "given.json", {**COMPARISON, **change})
    assert_refused(pine("compare", path, "--model", tiny), sentence)


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
        "dtype 'int8' is not supported; use one of float32, bfloat16, float16",
    )
    outcome = pine(verb, *file, "--model", "no/such/folder")
    assert outcome.stderr.startswith("pine_engine: 'no/such/folder' is not a model; expected a folder")
    assert (outcome.status, outcome.stdout, outcome.stderr.count("\n")) == (2, "", 1)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", " has no rows; expected one JSON object per line"),
        (f"{json.dumps(ROWS[0])}\n{{\n",
         ", line 2 is not JSON: Expecting property name enclosed in double quotes at line 1 column 2"),
        (f"{json.dumps(ROWS[0])}\n\n{{}}\n", ", line 3: id: field required"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("no_model")
def test_verify_refuses_files_it_cannot_use(pine: Run, tmp_path: Path, content: str, problem: str) -> None:
    path = write(tmp_path / "data.jsonl", content)
    assert_refused(pine("verify", path), f"{path}{problem}")


def test_verify_says_which_row_it_cannot_use(pine: Run, tmp_path: Path, tiny: Path) -> None:
    path = write(tmp_path / "data.jsonl", json.dumps({**ROWS[0], "task": "poetry"}))
    assert pine("verify", path, "--model", tiny).stderr.startswith("pine_engine: unknown task 'poetry'")


def test_conformance_refuses_a_folder_without_cases(pine: Run, tmp_path: Path) -> None:
    assert_refused(
        pine("conformance", tmp_path, "--json"),
        f"{tmp_path} holds no conformance case; expected folders with a case.json in them",
    )
    shutil.copytree(GOLDEN / "s1_llama_k2", tmp_path / "case")
    (tmp_path / "case" / "weights.safetensors").write_bytes(b"damaged")
    outcome = pine("conformance", tmp_path)
    assert outcome.stderr.startswith(f"pine_engine: {tmp_path}/case is not a complete conformance case: ")
    assert (outcome.status, outcome.stdout, outcome.stderr.count("\n")) == (2, "", 1)


@pytest.mark.parametrize(
    "arguments",
    [["compare"], ["nonsense"], ["verify", "f", "--limit", "0"], ["verify", "f", "--shuffles", "0"],
     ["bench", "--documents", "0"], ["bench", "--new-tokens", "1"], ["bench", "--repeats", "0"]],
    ids=" ".join,
)  # fmt: skip
@pytest.mark.usefixtures("no_model")
def test_wrong_usage_exits_with_2_and_leaves_stdout_empty(pine: Run, arguments: list[str]) -> None:
    outcome = pine(*arguments)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert "Traceback" not in outcome.stderr and "Error" in outcome.stderr


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


def test_brackets_in_an_answer_are_not_read_as_colours() -> None:
    """Answers are the model's text; the table must show them as they are."""
    table_text = subprocess.run(
        [
            sys.executable,
            "-c",
            "from pine_engine.terminal import *; print_report({}, False, [{'text': '[red]a[/x] [b]'}])",
        ],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ).stdout
    assert "[red]a[/x] [b]" in table_text


# verify


def test_verify_finds_promises_kept_and_vanilla_changed(pine: Run, data: Path, tiny: Path) -> None:
    options = ["--shuffles", 3, "--new-tokens", 2, "--methods", "all", "--json"]
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
            "distinct_texts",
            "max_abs_logit_diff",
            "bitwise_equal",
        ]
        assert row["orders"] == {"a-1": 4, "a-2": 2}[row["id"]]
        promises = METHODS[row["method"]].promises_invariance
        assert row["bitwise_equal"] == promises == (row["max_abs_logit_diff"] == 0)
        if promises:
            assert row["distinct_texts"] == 1
    summary = printed["summary"]
    assert list(summary) == list(METHODS)
    for name, values in summary.items():
        rows = [row for row in printed["rows"] if row["method"] == name]
        assert values == {
            "rows": 2,
            "orders": 6,
            "rows_with_one_text": sum(row["distinct_texts"] == 1 for row in rows),
            "max_abs_logit_diff": max(row["max_abs_logit_diff"] for row in rows),
            "bitwise_equal": METHODS[name].promises_invariance,
            "kept_promise": True if METHODS[name].promises_invariance else None,
        }


def test_verify_reads_no_more_rows_than_asked_for(pine: Run, data: Path, tiny: Path) -> None:
    options = ["--limit", 1, "--shuffles", 1, "--methods", "pcw", "--new-tokens", 1, "--json"]
    printed = pine("verify", data, "--model", tiny, *options).json
    assert [(row["id"], row["method"], row["orders"]) for row in printed["rows"]] == [("a-1", "pcw", 2)]


def test_verify_exits_with_1_if_a_promise_is_broken(
    pine: Run, data: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if vanilla promised what PINE does."""
    monkeypatch.setattr(report, "METHODS", {**METHODS, "vanilla": METHODS["pine"]})
    options = [
        "--model",
        tiny,
        "--shuffles",
        1,
        "--methods",
        "vanilla,pcw",
        "--new-tokens",
        1,
        "--json",
    ]
    outcome = pine("verify", data, *options)
    assert outcome.status == 1
    assert outcome.stderr == "the order of the documents changed the output of: vanilla\n"
    summary = outcome.json["summary"]
    assert (summary["vanilla"]["kept_promise"], summary["pcw"]["kept_promise"]) == (False, True)


# debias

LABELLED = {**COMPARISON, "task": "judge_pair", "labels": ["A", "B"]}


@pytest.mark.parametrize(
    ("fields", "options", "sentence"),
    [
        ({}, ["--wrapper", "magic"],
         "unknown wrapper 'magic'; choose from: permutation_full, permutation_cyclic, permutation_sampled, "
         "pride, calibration_labels, calibration_first, calibration_every"),
        ({}, ["--wrapper", "permutation_full", "--labels", "A,B,C"],
         "there are 3 labels for 2 documents; give one label per document"),
        ({}, ["--wrapper", "permutation_full", "--labels", " , "],
         "permutation_full needs the labels that the model may answer; give some, such as A and B"),
        ({"documents": ["x"] * 8}, ["--wrapper", "permutation_full", "--labels", "A,B,C,D,E,F,G,H"],
         "all orders of 8 documents are 8! = 4.032e+4 runs, more than the limit of 720; run the 8 cyclic "
         "orders or sampled ones, or raise the limit"),
        ({}, ["--wrapper", "permutation_full", "--max-orders", "1"],
         "all orders of 2 documents are 2! = 2 runs, more than the limit of 1; run the 2 cyclic orders or "
         "sampled ones, or raise the limit"),
        ({}, ["--wrapper", "permutation_sampled", "--samples", "0"],
         "the number of sampled orders is 0; give 1 or more"),
        ({}, ["--wrapper", "pride", "--majority"],
         "pride takes no majority of answers; choose from: permutation_full, permutation_cyclic, "
         "permutation_sampled"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("no_model")
def test_debias_refuses_what_cannot_be_run(
    pine: Run, tmp_path: Path, fields: dict[str, Any], options: list[str], sentence: str
) -> None:
    path = write(tmp_path / "given.json", {**LABELLED, **fields})
    assert_refused(pine("debias", path, *options), sentence)


@pytest.mark.usefixtures("no_model")
def test_debias_checks_method_and_file_before_a_model_is_loaded(pine: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "given.json", LABELLED)
    outcome = pine("debias", path, "--wrapper", "pride", "--base", "magic")
    assert outcome.stderr.startswith("pine_engine: unknown method 'magic'; choose from: vanilla, ")
    write(path, {**LABELLED, "labels": "AB"})
    outcome = pine("debias", path, "--wrapper", "pride")
    assert_refused(outcome, f"{path}: labels: input should be a valid list")
    outcome = pine("debias", path)
    assert (outcome.status, outcome.stdout) == (2, "") and "Missing option '--wrapper'" in outcome.stderr


def test_debias_refuses_labels_of_several_tokens(pine: Run, tmp_path: Path, tiny: Path) -> None:
    path = write(tmp_path / "given.json", {**LABELLED, "instruction": "Judge.", "labels": ["one", "two"]})
    assert_refused(
        pine("debias", path, "--wrapper", "permutation_full", "--model", tiny, "--json"),
        "the label 'one' has 3 tokens; give labels of one token, such as A and B",
    )


@pytest.mark.parametrize(
    ("options", "prompts"),
    [
        (["permutation_full"], 4),
        (["permutation_cyclic", "--majority", "--max-new-tokens", "2", "--base", "pcw"], 4),
        (["pride"], 3),
        (["calibration_labels", "--labels", "x,y"], 8),
        (["calibration_every", "--max-new-tokens", "2"], 8),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_debias_answers_every_file_and_announces_the_prompts_it_reads(
    pine: Run, tmp_path: Path, tiny: Path, steps: Steps, options: list[str], prompts: int
) -> None:
    # The judge's instruction alone is longer than the tiny model reads.
    short = {**LABELLED, "instruction": "Judge."}
    files = [write(tmp_path / name, short) for name in ("one.json", "two.json")]
    outcome = pine("debias", *files, "--wrapper", *options, "--model", tiny, "--json")
    assert (outcome.status, outcome.stderr) == (0, "")
    assert steps.announced == [len(steps.taken)] == [prompts]
    printed = outcome.json
    assert list(printed) == ["model", "dtype", "wrapper", "base", "prompts", "results"]
    assert (printed["model"], printed["wrapper"], printed["prompts"]) == ("tiny", options[0], prompts)
    assert printed["base"] == ("pcw" if "pcw" in options else "vanilla")
    assert [result["file"] for result in printed["results"]] == list(map(str, files))
    for result in printed["results"]:
        assert list(result) == ["file", "answer", "scores", "base_answers"]
        labels = {"calibration_labels": ["x", "y"], "calibration_every": []}.get(options[0], ["A", "B"])
        assert list(result["scores"]) == labels
        if "--majority" not in options and labels:
            assert result["answer"] == max(labels, key=result["scores"].get)


def test_debias_without_json_prints_a_table(pine: Run, tmp_path: Path, tiny: Path) -> None:
    path = write(tmp_path / "a.json", {**LABELLED, "instruction": "Judge."})
    outcome = pine("debias", path, "--wrapper", "permutation_cyclic", "--model", tiny)
    assert outcome.status == 0
    assert "vanilla alone" in outcome.stdout and "scores" in outcome.stdout


def test_self_test_needs_no_data_and_prints_every_check(pine: Run) -> None:
    outcome = pine("verify", "--self-test", "--model", "random:tiny", "--shuffles", 1, "--json")
    assert (outcome.status, outcome.stderr) == (0, "")
    printed = outcome.json
    assert list(printed) == ["model", "dtype", "device", "checks", "passed"]
    assert (printed["model"], printed["device"], printed["passed"]) == ("random:tiny", "cpu", True)
    for check in printed["checks"]:
        assert list(check) == ["name", "is_promised", "holds", "found", "meaning"]
        assert check["holds"] or not check["is_promised"]


def test_self_test_exits_with_1_if_a_check_fails(pine: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    info = Check("of few rows", is_promised=False, holds=False, found="7 rows", meaning="none are fed")
    broken = Check("of many rows", is_promised=True, holds=False, found="64 rows", meaning="bits change")
    monkeypatch.setattr(cli, "plan_checks", lambda *_, **__: [lambda: info, lambda: broken])
    outcome = pine("verify", "--self-test", "--model", "random:tiny")
    assert outcome.status == 1
    assert outcome.stderr == "exactness cannot be promised here: of many rows\n"
    assert "FAIL" in outcome.stdout and "64 rows" in outcome.stdout and "bits change" in outcome.stdout
    monkeypatch.setattr(cli, "plan_checks", lambda *_, **__: [lambda: info])
    assert pine("verify", "--self-test", "--model", "random:tiny").status == 0


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
        (["random:huge"], "there is no model 'random:huge' with random weights; choose from: random:tiny, "
         "random:llama-8b"),
        (["random:tiny", "--device", "auto"],
         "a model with random weights is made on one device; name one, such as cuda"),
        (["random:tiny", "--dtype", "int8"],
         "dtype 'int8' is not supported; use one of float32, bfloat16, float16"),
    ],
    ids=["unknown", "no device", "dtype"],
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


# bench


def test_bench_prints_times_and_ratios_and_announces_as_many_steps_as_it_takes(
    pine: Run, tiny: Path, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "peak_memory", lambda *_: 123.4)
    sizes = ["--documents", 3, "--document-tokens", 5, "--new-tokens", 3, "--repeats", 2]
    outcome = pine("bench", *sizes, "--methods", "vanilla,pine", "--model", tiny, "--json")
    assert (outcome.status, outcome.stderr) == (0, "")
    assert steps.announced == [len(steps.taken)]
    printed = outcome.json
    assert list(printed) == ["n", "documents", "dtype", "stock", "methods", "together"]
    assert (printed["n"], printed["documents"], printed["dtype"]) == (30 + 15 + 28, 3, "float32")
    assert list(printed["stock"]) == ["prefill_s", "decode_s_per_token", "peak_rss_mb"]
    assert list(printed["methods"]) == ["vanilla", "pine"]
    for values in printed["methods"].values():
        assert list(values) == [
            "prefill_s", "decode_s_per_token", "prefill_ratio", "decode_ratio", "end_to_end_ratio",
            "peak_rss_mb", "memory_over_stock_mb",
        ]  # fmt: skip
        assert values.pop("memory_over_stock_mb") == 0
        assert all(value > 0 for value in values.values())
    assert list(printed["together"]) == ["methods", "decode_s_per_step", "decode_ratio"]
    assert printed["together"]["methods"] == ["vanilla", "pine"]


SMALL = ["--model", "random:tiny", "--documents", 4, "--document-tokens", 20, "--new-tokens", 3]


def test_bench_sweeps_over_sizes(pine: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "peak_memory", lambda *_: 123.4)
    options = [*SMALL, "--methods", "pine", "--repeats", 1, "--trace"]
    printed = pine("bench", *options, "--sweep", "documents", "--sizes", "2,5", "--json").json
    assert list(printed) == ["sweep", "points"]
    assert printed["sweep"] == "documents"
    assert [(point["documents"], point["n"]) for point in printed["points"]] == [(2, 138), (5, 138)]
    assert all(point["methods"]["pine"]["trace_prefill_ratio"] > 0 for point in printed["points"])
    table = pine("bench", *options, "--sweep", "tokens", "--sizes", "130").stdout
    assert "118" in table and "traced" in table  # 30 + 3 x 20 + 28


def test_bench_profiles_where_time_goes(pine: Run) -> None:
    printed = pine("bench", *SMALL, "--methods", "pine", "--profile", "--json").json
    assert [(profile["method"], profile["part"]) for profile in printed["profiles"]] == [
        ("pine", "prefill"),
        ("pine", "decode"),
    ]
    for profile in printed["profiles"]:
        shares = {place["where"]: place["share"] for place in profile["places"]}
        assert sum(shares.values()) == pytest.approx(1)
        assert {"linear layers", "rest of the model", "attention.suffix_weights"} <= set(shares)
    prefill, decode = ({place["where"] for place in profile["places"]} for profile in printed["profiles"])
    assert "attention.document_importance" in prefill - decode
    table = pine("bench", *SMALL, "--methods", "pine", "--profile").stdout
    assert "linear layers" in table and "%" in table


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--sweep", "documents", "--sizes", "2,x"],
         "the sizes '2,x' are not numbers; give whole numbers separated by commas, such as 2,5,10"),
        (["--sweep", "documents", "--sizes", "500"],
         "a sweep over documents cannot have the size 500: with 2 documents of 200 tokens it leaves 500 "
         "documents of 0 tokens; give other --sizes, or other --documents and --document-tokens"),
        (["--sizes", "2,5"], "--sizes belong to a sweep; give --sweep tokens or --sweep documents"),
    ],
    ids=["no number", "too many", "no sweep"],
)  # fmt: skip
@pytest.mark.usefixtures("no_model")
def test_bench_refuses_sizes_it_cannot_use(pine: Run, options: list[str], sentence: str) -> None:
    assert_refused(pine("bench", *options), sentence)


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
    pine(verb, *{
        "compare": [comparison, *methods, "--max-new-tokens", 1],
        "verify": [data, *methods, "--shuffles", 3, "--new-tokens", 1],
        "conformance": [GOLDEN],
    }[verb])  # fmt: skip
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


# methods and models


def test_methods_prints_every_row_of_both_tables(pine: Run) -> None:
    printed = pine("methods", "--json").json
    assert list(printed) == ["methods", "wrappers"]
    assert [row["name"] for row in printed["methods"]] == list(METHODS)
    assert [row["name"] for row in printed["wrappers"]] == list(WRAPPERS)
    by_name = {row["name"]: row for row in printed["methods"]}
    assert by_name["sp"] == {
        "name": "sp",
        "label": "SP",
        "sees": "none",
        "positions": "all start together",
        "weight": "1/k for documents",
        "promise": "yes",
        "cost": METHODS["sp"].cost,
        "source": METHODS["sp"].source,
        "meaning": METHODS["sp"].meaning,
    }
    assert (by_name["vanilla"]["sees"], by_name["pine"]["sees"]) == ("earlier ones", "all")
    assert (by_name["pine"]["positions"], by_name["vanilla"]["promise"]) == ("important ones closest", "no")


def test_methods_without_json_is_a_table_that_loses_nothing(
    pine: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "stdout", Console(width=300))
    wide = pine("methods").stdout
    monkeypatch.setattr(terminal, "stdout", Console(width=80))
    narrow = pine("methods").stdout
    for row in (*METHODS.values(), *WRAPPERS.values()):
        assert f" {row.name} " in wide
    assert "…" not in wide + narrow
    # Nothing is cut off: the same letters, in more lines.
    assert sorted(filter(str.isalnum, narrow)) == sorted(filter(str.isalnum, wide))


def test_methods_writes_the_tables_between_the_markers_of_a_file(pine: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "page.md", f"# Before\n\n{catalog.BEGIN}\nold\n{catalog.END}\n\nAfter.\n")
    assert (pine("methods", "--into", file).status, pine("methods", "--into", file).stdout) == (0, "")
    markdown = pine("methods", "--markdown").stdout
    assert file.read_text() == f"# Before\n\n{catalog.BEGIN}\n\n{markdown}\n{catalog.END}\n\nAfter.\n"
    assert f"| PINE | `pine` | {METHODS['pine'].meaning} | yes |" in markdown
    assert f"| PriDe | `pride` | {WRAPPERS['pride'].meaning} | no: " in markdown


@pytest.mark.parametrize(
    "content", ["no markers", f"{catalog.END}\n{catalog.BEGIN}\n"], ids=["none", "swapped"]
)
def test_methods_refuses_a_file_without_markers(pine: Run, tmp_path: Path, content: str) -> None:
    file = write(tmp_path / "page.md", content)
    assert_refused(
        pine("methods", "--into", file),
        f"{file} has no place for the tables; expected a line {catalog.BEGIN} and later one {catalog.END}",
    )
    assert file.read_text() == content
    assert_refused(
        pine("methods", "--into", tmp_path / "absent.md"),
        f"{tmp_path}/absent.md cannot be read: No such file or directory; give a file that exists",
    )


def test_models_says_what_loads_and_why_others_do_not(pine: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        LoadableModel("Tiny", "embedded", 98_000_000, 8192, "llama", supported=True, reason=""),
        LoadableModel(
            "some/bloom",
            "hub",
            5_000_000,
            None,
            "bloom",
            supported=False,
            reason="it uses ALiBi; use a Llama",
        ),
    ]
    monkeypatch.setattr(catalog_command, "list_models", lambda: found)
    assert pine("models", "--json").json == {"models": [dataclasses.asdict(model) for model in found]}
    shown = " ".join(pine("models").stdout.split())
    assert "98 MB" in shown and "8192" in shown
    assert "some/bloom" in shown and "ALiBi" in shown


def test_loading_shows_how_far_unpacking_is(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr(terminal, "stderr", console)

    def unpack(name: str, *, dtype: str, device: str, progress: Callable[[float, str], None]) -> Any:
        progress(0.25, f"unpacking {name}")
        return (name, dtype, device)

    monkeypatch.setattr(terminal, "load_engine", unpack)
    assert terminal.load("tiny", "float32", "cpu") == ("tiny", "float32", "cpu")
    assert isinstance(console.file, io.StringIO)
    assert "unpacking tiny" in console.file.getvalue()


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


@pytest.mark.embedded
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


@pytest.mark.embedded
def test_too_long_a_prompt_is_one_line_on_the_embedded_model(embedded_folder: Path, tmp_path: Path) -> None:
    """The tokenizer has a warning of its own for long texts, which must not be a second line."""
    file = write(tmp_path / "long.json", {"question": "Why?", "documents": ["word " * 9000]})
    done = start("compare", file, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
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
    for verb in ("compare", "verify", "repeat", "debias", "conformance", "bench"):
        assert verb in done.stdout
