"""Reproduction: an unchanged certificate is confirmed, a changed one is found, within the tolerances."""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from pine_engine.console import terminal
from pine_engine.engine.engine import Engine
from pine_engine.engine.options import RunOptions
from pine_engine.engine.orders import OrderRuns, orders_to_try
from pine_engine.invariance.certificate import ASPECTS, Certificate, read_certificate
from pine_engine.invariance.reproduction import (
    MODEL_FIELDS,
    TOLERANCES,
    Reproduction,
    Tolerance,
    compare_certificates,
    reproduce,
)
from pine_engine.prompts.layout import TokenLayout
from tests.invariance.conftest import MAX_NEW_TOKENS, METHODS, ORDERS, PINE, VANILLA, Changes, write_changes
from tests.support.commands import Run

LABELS = [
    *("the first answer", "orders with the first answer", "distinct answers", "equality to the last bit"),
    *("max |Δ logit|", "the log-probabilities", "the bits of the logits"),
]
OTHER_HARDWARE: Changes = {("platform", "hardware"): "Some CPU, AVX9"}
OTHER_HASHES: Changes = {("results", index, "logits_sha256"): "0" * 64 for index in range(len(METHODS))}


@pytest.fixture
def repeat(pine: Run) -> Run:
    """Run the subcommand."""
    return partial(pine, "reproduce")


def with_platform(certified: Certificate, **fields: str | int | None) -> Certificate:
    return certified.model_copy(update={"platform": certified.platform.model_copy(update=fields)})


def with_result(certified: Certificate, index: int, **fields: Any) -> Certificate:
    results = list(certified.results)
    results[index] = results[index].model_copy(update=fields)
    return certified.model_copy(update={"results": results})


def with_other_hashes(certified: Certificate) -> Certificate:
    results = [result.model_copy(update={"logits_sha256": "0" * 64}) for result in certified.results]
    return certified.model_copy(update={"results": results})


def unchecked(compared: Reproduction) -> dict[str, list[str | None]]:
    labels: dict[str, list[str | None]] = {}
    for check in compared.checks:
        if check.unchecked:
            labels.setdefault(check.label, []).append(check.method)
    return labels


def problem_labels(compared: Reproduction, method: str) -> list[str]:
    return [check.label for check in compared.checks_of(method) if check.problem]


# the same platform


def test_repeat_unchanged_certificate_confirms_all(repeat: Run, file: Path, tiny: Path) -> None:
    outcome = repeat(file, "--model", tiny, "--json")
    assert outcome.status == 0
    report = outcome.json
    assert report["repeated"] and report["elsewhere"] == [] and report["tolerance"] is None
    assert report["checked"] == dict.fromkeys(
        ("the model", "the revision", "the dtype", "the orders"), "exactly"
    )
    assert (report["problems"], report["replaced"], report["not_checked"]) == ([], [], [])
    for method in report["methods"]:
        assert method["found"] == method["certified"]
        assert (method["same_bits"], method["problems"]) == (True, [])
        assert list(method["checked"]) == LABELS and set(method["checked"].values()) == {"exactly"}
    assert [method["method"] for method in report["methods"]] == METHODS


def test_repeat_changed_certificate_fails_in_table(
    repeat: Run, file: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal.stdout, "width", 200)
    write_changes(file, {(*PINE, "max_abs_logit_diff"): 0.5})
    status, out, err = repeat(file, "--model", tiny)
    assert status == 1
    vanilla, sp, pine, _ = (line for line in out.splitlines() if any(f" {name} " in line for name in METHODS))
    assert "yes" in vanilla and "NO:" not in vanilla
    assert "6 of 6" in sp and "NO:" not in sp
    assert "NO: max |Δ logit|: got 0, expected 0.5" in pine
    assert err.splitlines()[-1].endswith(": pine")


@pytest.mark.parametrize("traced", [True, False])
def test_reproduce_records_attention_as_certified(
    traced: bool, certified: Certificate, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[RunOptions] = []
    run_orders = engine.run_orders

    def spy(layout: TokenLayout, options: RunOptions, orders: Sequence[tuple[int, ...]]) -> OrderRuns:
        requests.append(options)
        return run_orders(layout, options, orders)

    monkeypatch.setattr(engine, "run_orders", spy)
    steps: list[str] = []
    reproduce(engine, certified.model_copy(update={"traced": traced}), on_order=steps.append)
    assert [bool(options.trace) for options in requests] == [traced]
    assert len(steps) == len(ORDERS)


@pytest.mark.parametrize(
    ("changes", "label"),
    [
        ({("comparison", "question"): "Which is blue?"}, "the bits of the logits"),
        ({("comparison", "documents", 1): "green is Varo"}, "the bits of the logits"),
        ({("max_new_tokens",): 5}, "the first answer"),
    ],
)
def test_reproduce_changed_request_is_found(changes: Changes, label: str, file: Path, engine: Engine) -> None:
    changed = read_certificate(write_changes(file, changes))
    compared = compare_certificates(changed, reproduce(engine, changed, on_order=lambda _: None))
    assert not compared.holds and label in problem_labels(compared, "vanilla")


CHANGED_RESULTS: list[tuple[tuple[str | int, ...], Any, str]] = [
    ((*VANILLA, "first_token_ids", 0), 3, "the first answer"),
    ((*VANILLA, "first_token_ids"), [3] * 5, "the first answer"),
    ((*PINE, "first_token_ids"), [], "the first answer"),
    ((*VANILLA, "first_answer"), "better", "the first answer"),
    ((*VANILLA, "same_answers"), 5, "orders with the first answer"),
    ((*PINE, "same_answers"), 7, "orders with the first answer"),
    ((*VANILLA, "distinct_answers"), 99, "distinct answers"),
    ((*PINE, "distinct_answers"), 2, "distinct answers"),
    ((*VANILLA, "bitwise_equal"), True, "equality to the last bit"),
    ((*PINE, "bitwise_equal"), False, "equality to the last bit"),
    ((*VANILLA, "max_abs_logit_diff"), 1e-7, "max |Δ logit|"),
    ((*VANILLA, "max_abs_logit_diff"), -1.0, "max |Δ logit|"),
    ((*PINE, "max_abs_logit_diff"), 1e-30, "max |Δ logit|"),
    ((*PINE, "max_abs_logit_diff"), math.nan, "max |Δ logit|"),
    ((*VANILLA, "logprobs"), [-1.0] * 6, "the log-probabilities"),
    ((*PINE, "logprobs"), [0.5] * 6, "the log-probabilities"),
    ((*PINE, "logprobs"), [math.nan] * 6, "the log-probabilities"),
    ((*VANILLA, "logprob_spread"), 0.0, "the log-probabilities"),
    ((*PINE, "logprob_spread"), 1e-9, "the log-probabilities"),
    ((*PINE, "logits_sha256"), "0" * 64, "the bits of the logits"),
]
"""Changes of one value each, most of which contradict the other values of the certificate."""


@pytest.mark.parametrize(("path", "value", "label"), CHANGED_RESULTS)
def test_reproduction_finds_each_changed_result(
    path: tuple[str | int, ...], value: Any, label: str, file: Path, certified: Certificate
) -> None:
    changed = read_certificate(write_changes(file, {path: value}))
    compared = compare_certificates(changed, certified)
    assert not compared.holds
    method = METHODS[int(path[1])]
    assert problem_labels(compared, method) == [label]
    assert [name for name in METHODS if compared.problems_of(name)] == [method]


def test_reproduction_accepts_equal_nan_and_infinity(certified: Certificate) -> None:
    values = {"max_abs_logit_diff": math.nan, "logprobs": [-math.inf] * 6, "logprob_spread": math.nan}
    infinite = with_result(certified, 0, **values)
    assert compare_certificates(infinite, infinite).holds


def test_logprobs_of_other_answer_are_unchecked(certified: Certificate) -> None:
    compared = compare_certificates(with_result(certified, 0, first_token_ids=[3, 3, 3, 3]), certified)
    assert problem_labels(compared, "vanilla") == ["the first answer"]
    assert unchecked(compared) == {"the log-probabilities": ["vanilla"]}


# other platforms

PLATFORM_FIELDS = [field for field in ASPECTS if field not in MODEL_FIELDS]


@pytest.mark.parametrize("field", PLATFORM_FIELDS)
def test_other_logits_on_other_platform_are_unchecked(field: str, certified: Certificate) -> None:
    other = 99 if field == "threads" else "other"
    compared = compare_certificates(with_other_hashes(with_platform(certified, **{field: other})), certified)
    values = getattr(certified.platform, field), other
    assert compared.platform_differences == ["{}: got {}, expected {}".format(ASPECTS[field], *values)]
    assert compared.holds and unchecked(compared) == {
        "the bits of the logits": METHODS,
        "where it was computed": [None],
        "the weights": [None],
    }


@pytest.mark.parametrize("field", PLATFORM_FIELDS)
def test_same_logits_on_other_platform_require_equal_numbers(field: str, certified: Certificate) -> None:
    there = with_platform(certified, **{field: 99 if field == "threads" else "other"})
    compared = compare_certificates(there, certified)
    assert compared.holds and compared.tolerance is None
    assert list(unchecked(compared)) == ["where it was computed"]
    diff = certified.results[0].max_abs_logit_diff
    compared = compare_certificates(with_result(there, 0, max_abs_logit_diff=diff + 1e-5), certified)
    assert [name for name in METHODS if compared.problems_of(name)] == ["vanilla"]


@pytest.mark.parametrize("field", MODEL_FIELDS)
def test_other_model_is_a_problem_without_override(field: str, certified: Certificate) -> None:
    there = with_other_hashes(with_platform(certified, **{field: "other"}))
    here = getattr(certified.platform, field) or "unknown"
    difference = f"{ASPECTS[field]}: got {here}, expected other"
    compared = compare_certificates(there, certified)
    assert not compared.holds and not compared.platform_differences
    assert compared.problems_of(None) == [difference]
    compared = compare_certificates(there, certified, overrides=[field])
    assert compared.holds and compared.overrides == [difference]
    assert {f"the {ASPECTS[field]}", "the bits of the logits"} <= set(unchecked(compared))


def test_revision_missing_in_certificate_is_unchecked(certified: Certificate) -> None:
    compared = compare_certificates(certified, with_platform(certified, revision="c0ffee"))
    assert compared.holds and list(unchecked(compared)) == ["the revision"]


@pytest.mark.parametrize(
    ("seed", "orders", "holds"),
    [
        (None, [(1, 0, 2, 3, 4), (1, 0, 2, 4, 3)], True),
        (None, [(0, 1, 2, 3, 4), (1, 0, 2, 3, 4)], False),
        (7, orders_to_try(5, 3, 7), True),
        (7, orders_to_try(5, 9, 7)[:2], True),
        (7, orders_to_try(5, 120, 7), True),
        (7, orders_to_try(5, 3, 8), False),
        (7, orders_to_try(5, 3, 7)[::2], False),
    ],
)
def test_selected_orders_are_found(
    seed: int | None, orders: list[tuple[int, ...]], holds: bool, certified: Certificate
) -> None:
    selected = certified.model_copy(update={"seed": seed, "orders": list(map(list, orders))})
    compared = compare_certificates(selected, certified)
    assert (compared.holds, len(compared.problems_of(None))) == (holds, not holds)


@pytest.mark.parametrize(
    ("theirs", "ours", "tolerance"),
    [
        ("float32", "float32", Tolerance(1e-3, 3e-4)),
        ("float32", "bfloat16", Tolerance(1.0, 0.3)),
        ("float16", "float32", Tolerance(0.2, 0.06)),
        ("4bit", "4bit", Tolerance(1.0, 0.3)),
    ],
)
def test_other_platform_has_tolerance_of_coarser_dtype(
    theirs: str, ours: str, tolerance: Tolerance, certified: Certificate
) -> None:
    there = with_other_hashes(with_platform(certified, dtype=theirs))
    here = with_platform(certified, dtype=ours, torch="9")
    vanilla = certified.results[0]
    for factor, holds in ((0.99, True), (1.01, False), (-0.99, True), (-1.01, False)):
        logprob = vanilla.logprobs[-1] + factor * tolerance.logprob * MAX_NEW_TOKENS
        for changes in (
            {"max_abs_logit_diff": vanilla.max_abs_logit_diff + factor * tolerance.logit_diff},
            {"logprobs": [*vanilla.logprobs[:-1], logprob]},
            {"logprob_spread": vanilla.logprob_spread + factor * 2 * tolerance.logprob * MAX_NEW_TOKENS},
        ):
            found = with_result(here, 0, **changes)
            compared = compare_certificates(there, found, overrides=["dtype"])
            assert (compared.tolerance, compared.holds) == (tolerance, holds), compared.checks
    assert set(TOLERANCES) == {"float32", "float16", "bfloat16", "4bit"}


def test_lost_invariance_on_other_platform_is_found(certified: Certificate) -> None:
    lost = with_result(certified, 2, bitwise_equal=False, max_abs_logit_diff=1e-6)
    compared = compare_certificates(with_other_hashes(certified), with_platform(lost, torch="9"))
    assert problem_labels(compared, "pine") == ["equality to the last bit"]


# the subcommand on another platform


def test_repeat_names_unchecked_comparisons(
    repeat: Run, file: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal.stdout, "width", 200)
    write_changes(file, {**OTHER_HARDWARE, **OTHER_HASHES})
    status, out, err = repeat(file, "--model", tiny)
    assert status == 0
    table = [line for line in out.splitlines() if any(f" {name} " in line for name in METHODS)]
    assert len(table) == len(METHODS)
    assert all("not checked" in line and "as far as checked" in line for line in table)
    _, platform, tolerance, *reasons, verdict = err.splitlines()
    assert "hardware: got " in platform and platform.endswith("expected Some CPU, AVX9")
    assert "0.001" in tolerance and "0.0003" in tolerance and verdict.endswith("as far as checked")
    assert len(reasons) == 3 and reasons[2].startswith(
        "not checked: the bits of the logits of vanilla, sp, pine, pcw: "
    )
    report = repeat(file, "--model", tiny, "--json").json
    assert [(entry["what"], entry["methods"]) for entry in report["not_checked"]] == [
        ("where it was computed", []),
        ("the weights", []),
        ("the bits of the logits", METHODS),
    ]
    assert all(entry["why"] for entry in report["not_checked"])
    for method in report["methods"]:
        assert method["same_bits"] is None and list(method["checked"]) == LABELS[:-1]
        within = [method["checked"][name] for name in ("max |Δ logit|", "the log-probabilities")]
        assert within == ["within 0.001", "within 0.0012"]


def test_repeat_other_model_name_fails(
    repeat: Run, file: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny.parent)
    outcome = repeat(write_changes(file, {("platform", "model"): "Llama-3.3-70B"}), "--json")
    assert outcome.status == 1
    assert outcome.json["problems"] == ["model: got tiny, expected Llama-3.3-70B"]
    assert any("--model" in line for line in outcome.stderr.splitlines())


def test_repeat_escapes_control_characters(repeat: Run, file: Path, tiny: Path) -> None:
    write_changes(file, {("platform", "hardware"): "x\x1b[2K\nequal to the certificate"})
    lines = repeat(file, "--model", tiny).stderr.splitlines()
    assert lines.count("equal to the certificate") == 0 and all(line.isprintable() for line in lines)
    assert "'x\\x1b[2K\\nequal to the certificate'" in lines[1]


@pytest.mark.parametrize("missing_cores", [0, 1])
def test_repeat_uses_certified_threads_up_to_cores(
    missing_cores: int, repeat: Run, file: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = torch.get_num_threads()
    monkeypatch.setattr("pine_engine.cli.reproduce.os.cpu_count", lambda: before + 1)
    threads = before + 1 + missing_cores
    report = repeat(write_changes(file, {("platform", "threads"): threads}), "--model", tiny, "--json").json
    expected = [f"threads: got {before}, expected {threads}"] if missing_cores else []
    assert report["elsewhere"] == expected
    assert torch.get_num_threads() == before


def test_repeat_other_dtype_is_an_override(repeat: Run, file: Path, tiny: Path) -> None:
    report = repeat(file, "--model", tiny, "--dtype", "bfloat16", "--json").json
    assert report["replaced"] == ["dtype: got bfloat16, expected float32"]
    assert (report["elsewhere"], report["tolerance"]) == ([], {"logit_diff": 1.0, "logprob": 0.3})
    assert all(method["same_bits"] is None for method in report["methods"])
    assert report["methods"][2]["found"]["bitwise_equal"] is True


@pytest.mark.parametrize(
    "changes",
    [
        {("address",): "my tiny"},
        {("orders", 1): [0, 1]},
        {("platform", "dtype"): "float8"},
        {("format",): ""},
    ],
)
def test_repeat_invalid_certificate_exits_2(
    changes: Changes, repeat: Run, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = repeat(write_changes(file, changes))
    assert (status, out) == (2, "") and "Traceback" not in err
