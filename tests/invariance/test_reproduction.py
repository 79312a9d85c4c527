"""Reproduction: an unchanged certificate is confirmed, a changed one is found, within the tolerances."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from pine_engine import Certificate, Engine, read_certificate, sample_orders
from pine_engine.invariance.platform_facts import ASPECTS
from pine_engine.invariance.reproduction import (
    MODEL_FIELDS,
    TOLERANCES,
    Reproduction,
    compare_certificates,
    reproduce,
)
from tests.invariance.conftest import MAX_NEW_TOKENS, METHODS, PINE, VANILLA, Changes, write_changes
from tests.support.commands import Run

LABELS = [
    *("the first answer", "orders with the first answer", "distinct answers", "bitwise identity"),
    *("max |Δ logit|", "the log-probabilities", "the logits"),
]
LOGITS = LABELS[-1]


@pytest.fixture
def reproduced(pine: Run) -> Run:
    """Run the subcommand."""
    return partial(pine, "reproduce")


def with_platform(certified: Certificate, **fields: str | int | None) -> Certificate:
    return certified.model_copy(update={"platform": certified.platform.model_copy(update=fields)})


def with_results(certified: Certificate, *indices: int, **fields: Any) -> Certificate:
    """Change fields of some results, or of all."""
    results = list(certified.results)
    for index in indices or range(len(results)):
        results[index] = results[index].model_copy(update=fields)
    return certified.model_copy(update={"results": results})


def unchecked(compared: Reproduction) -> dict[str, list[str | None]]:
    labels: dict[str, list[str | None]] = {}
    for check in compared.checks:
        if check.unchecked:
            labels.setdefault(check.label, []).append(check.method)
    return labels


def problems(compared: Reproduction) -> dict[str | None, list[str]]:
    """Labels of the differences by method."""
    labels: dict[str | None, list[str]] = {}
    for check in compared.checks:
        if check.problem:
            labels.setdefault(check.method, []).append(check.label)
    return labels


def test_reproduce_unchanged_certificate_confirms_all(reproduced: Run, file: Path, tiny: Path) -> None:
    outcome = reproduced(file, "--model", tiny, "--json")
    report = outcome.json
    assert (outcome.status, report["bitwise_reproduced"], report["tolerance"]) == (0, True, None)
    certificate = ("the model", "the revision", "the dtype", "the orders")
    assert report["checked"] == dict.fromkeys(certificate, "exactly")
    assert [report[key] for key in ("problems", "platform_differences", "overrides", "unchecked")] == [[]] * 4
    for method in report["methods"]:
        assert method["found"] == method["certified"]
        assert (method["logits_identical"], method["problems"]) == (True, [])
        assert method["checked"] == dict.fromkeys(LABELS, "exactly")
    assert [method["method"] for method in report["methods"]] == METHODS


def test_reproduce_changed_certificate_fails(reproduced: Run, file: Path, tiny: Path) -> None:
    write_changes(file, {(*PINE, "max_abs_logit_diff"): 0.5})
    status, out, err = reproduced(file, "--model", tiny)
    assert status == 1 and "0.5" in out and err.splitlines()[-1].endswith(": pine")


@pytest.mark.parametrize(
    ("changes", "label"),
    [
        ({("traced",): False}, None),
        ({("request", "question"): "Which is blue?"}, LOGITS),
        ({("request", "documents", 1): "green is Varo"}, LOGITS),
        ({("max_new_tokens",): 5}, "the first answer"),
    ],
)
def test_changed_request_is_found(changes: Changes, label: str | None, file: Path, engine: Engine) -> None:
    changed = read_certificate(write_changes(file, changes))
    steps: list[str] = []
    found = reproduce(engine, changed, on_order=steps.append)
    assert len(steps) == len(changed.orders) and found.traced == changed.traced
    labels = problems(compare_certificates(changed, found)).get("vanilla", [])
    assert label in labels if label else LOGITS not in labels


@pytest.mark.parametrize(
    ("path", "value", "label"),
    [
        ((*VANILLA, "first_token_ids", 0), 3, "the first answer"),
        ((*PINE, "first_token_ids"), [], "the first answer"),
        ((*VANILLA, "first_answer"), "better", "the first answer"),
        ((*VANILLA, "num_matching_answers"), 5, "orders with the first answer"),
        ((*PINE, "num_distinct_answers"), 2, "distinct answers"),
        ((*VANILLA, "bitwise_identical"), True, "bitwise identity"),
        ((*PINE, "bitwise_identical"), False, "bitwise identity"),
        ((*VANILLA, "max_abs_logit_diff"), -1.0, "max |Δ logit|"),
        ((*PINE, "max_abs_logit_diff"), 1e-30, "max |Δ logit|"),
        ((*PINE, "max_abs_logit_diff"), math.nan, "max |Δ logit|"),
        ((*VANILLA, "logprobs"), [-1.0] * 6, "the log-probabilities"),
        ((*PINE, "logprobs"), [math.nan] * 6, "the log-probabilities"),
        ((*VANILLA, "logprob_spread"), 0.0, "the log-probabilities"),
        ((*PINE, "logprob_spread"), 1e-9, "the log-probabilities"),
        ((*PINE, "logits_sha256"), "0" * 64, "the logits"),
    ],
)
def test_reproduction_finds_each_changed_result(
    path: tuple[str | int, ...], value: Any, label: str, file: Path, certified: Certificate
) -> None:
    changed = read_certificate(write_changes(file, {path: value}))
    method = METHODS[path[1]] if isinstance(path[1], int) else ""
    assert problems(compare_certificates(changed, certified)) == {method: [label]}


def test_equal_nan_holds_and_other_answers_are_unchecked(certified: Certificate) -> None:
    values = {"max_abs_logit_diff": math.nan, "logprobs": [-math.inf] * 6, "logprob_spread": math.nan}
    infinite = with_results(certified, 0, **values)
    assert compare_certificates(infinite, infinite).holds
    compared = compare_certificates(with_results(certified, 0, first_token_ids=[3, 3, 3, 3]), certified)
    assert problems(compared) == {"vanilla": ["the first answer"]}
    assert unchecked(compared) == {"the log-probabilities": ["vanilla"]}


PLATFORM_FIELDS = [field for field in ASPECTS if field not in MODEL_FIELDS]


@pytest.mark.parametrize("field", PLATFORM_FIELDS)
def test_other_platform_is_tolerated_only_with_other_logits(field: str, certified: Certificate) -> None:
    other = 99 if field == "threads" else "other"
    there = with_platform(certified, **{field: other})
    compared = compare_certificates(there, certified)
    values = getattr(certified.platform, field), other
    assert compared.platform_differences == ["{}: got {}, expected {}".format(ASPECTS[field], *values)]
    assert compared.holds and compared.bitwise_reproduced and compared.tolerance is None
    assert unchecked(compared) == {"where it was computed": [None]}
    diff = certified.results[0].max_abs_logit_diff
    compared = compare_certificates(with_results(there, 0, max_abs_logit_diff=diff + 1e-5), certified)
    assert list(problems(compared)) == ["vanilla"]
    compared = compare_certificates(with_results(there, logits_sha256="0" * 64), certified)
    assert compared.holds and not compared.bitwise_reproduced  # holds within a tolerance only
    assert unchecked(compared) == {
        "the logits": METHODS,
        "where it was computed": [None],
        "the weights": [None],
    }


@pytest.mark.parametrize("field", MODEL_FIELDS)
def test_other_model_is_a_problem_without_override(field: str, certified: Certificate) -> None:
    there = with_results(with_platform(certified, **{field: "other"}), logits_sha256="0" * 64)
    here = getattr(certified.platform, field) or "unknown"
    difference = f"{ASPECTS[field]}: got {here}, expected other"
    compared = compare_certificates(there, certified)
    assert not compared.holds and not compared.platform_differences
    assert compared.problems_of(None) == [difference]
    compared = compare_certificates(there, certified, overrides=[field])
    assert compared.holds and compared.overrides == [difference]
    assert {f"the {ASPECTS[field]}", "the logits"} <= set(unchecked(compared))
    compared = compare_certificates(certified, with_platform(certified, revision="c0ffee"))
    assert compared.holds and list(unchecked(compared)) == ["the revision"]  # of a certificate without one


@pytest.mark.parametrize(
    ("seed", "orders", "holds"),
    [
        (None, [(1, 0, 2, 3, 4), (1, 0, 2, 4, 3)], True),
        (None, [(0, 1, 2, 3, 4), (1, 0, 2, 3, 4)], False),
        (7, sample_orders(5, 3, 7), True),
        (7, sample_orders(5, 9, 7)[:2], True),
        (7, sample_orders(5, 120, 7), True),
        (7, sample_orders(5, 3, 8), False),
        (7, sample_orders(5, 3, 7)[::2], False),
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
        ("float32", "float32", (1e-3, 3e-4)),
        ("float32", "bfloat16", (1.0, 0.3)),
        ("float16", "float32", (0.2, 0.06)),
        ("4bit", "4bit", (1.0, 0.3)),
    ],
)
def test_tolerance_follows_dtype(
    theirs: str, ours: str, tolerance: tuple[float, float], certified: Certificate
) -> None:
    there = with_results(with_platform(certified, dtype=theirs), logits_sha256="0" * 64)
    here = with_platform(certified, dtype=ours, torch="9")
    vanilla = certified.results[0]
    logit_diff, logprob_diff = tolerance
    for factor, holds in ((0.99, True), (1.01, False), (-0.99, True), (-1.01, False)):
        logprob = vanilla.logprobs[-1] + factor * logprob_diff * MAX_NEW_TOKENS
        for changes in (
            {"max_abs_logit_diff": vanilla.max_abs_logit_diff + factor * logit_diff},
            {"logprobs": [*vanilla.logprobs[:-1], logprob]},
            {"logprob_spread": vanilla.logprob_spread + factor * 2 * logprob_diff * MAX_NEW_TOKENS},
        ):
            found = with_results(here, 0, **changes)
            compared = compare_certificates(there, found, overrides=["dtype"])
            assert compared.tolerance == {"logit_diff": logit_diff, "logprob": logprob_diff}
            assert compared.holds == holds, compared.checks
    assert set(TOLERANCES) == {"float32", "float16", "bfloat16", "4bit"}


def test_lost_invariance_on_other_platform_is_found(certified: Certificate) -> None:
    lost = with_results(certified, 2, bitwise_identical=False, max_abs_logit_diff=1e-6)
    other = with_results(lost, 2, logits_sha256="0" * 64)  # the logits of one method are enough to differ
    compared = compare_certificates(certified, with_platform(other, torch="9"))
    assert problems(compared) == {"pine": ["bitwise identity"]}
    assert unchecked(compared)["the logits"] == ["pine"]


def test_reproduce_on_other_platform_names_unchecked(reproduced: Run, file: Path, tiny: Path) -> None:
    hardware = "x\x1b[2K\nequal to the certificate"
    hashes: Changes = {("results", index, "logits_sha256"): "0" * 64 for index in range(len(METHODS))}
    write_changes(file, {("platform", "hardware"): hardware, **hashes})
    outcome = reproduced(file, "--model", tiny)
    assert outcome.status == 0
    lines = outcome.stderr.splitlines()
    assert all(line.isprintable() for line in lines) and "equal to the certificate" not in lines
    report = reproduced(file, "--model", tiny, "--json").json
    assert [(entry["what"], entry["methods"]) for entry in report["unchecked"]] == [
        ("where it was computed", []),
        ("the weights", []),
        ("the logits", METHODS),
    ]
    assert all(entry["why"] for entry in report["unchecked"])
    for method in report["methods"]:
        assert method["logits_identical"] is None and list(method["checked"]) == LABELS[:-1]
        within = [method["checked"][name] for name in ("max |Δ logit|", "the log-probabilities")]
        assert within == ["within 0.001", "within 0.0012"]


@pytest.mark.parametrize("missing_cores", [0, 1])
def test_reproduce_uses_certified_threads_up_to_cores(
    missing_cores: int, reproduced: Run, file: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = torch.get_num_threads()
    monkeypatch.setattr("pine_engine.cli.reproduce.os.cpu_count", lambda: before + 1)
    threads = before + 1 + missing_cores
    report = reproduced(
        write_changes(file, {("platform", "threads"): threads}), "--model", tiny, "--json"
    ).json
    expected = [f"threads: got {before}, expected {threads}"] if missing_cores else []
    assert report["platform_differences"] == expected
    assert torch.get_num_threads() == before


def test_reproduce_overrides_dtype_but_not_model(
    reproduced: Run, file: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = reproduced(file, "--model", tiny, "--dtype", "bfloat16", "--json").json
    assert report["overrides"] == ["dtype: got bfloat16, expected float32"]
    assert (report["platform_differences"], report["tolerance"]) == ([], {"logit_diff": 1.0, "logprob": 0.3})
    assert report["methods"][2]["found"]["bitwise_identical"] is True
    monkeypatch.chdir(tiny.parent)
    outcome = reproduced(write_changes(file, {("platform", "model"): "Llama-3.3-70B"}), "--json")
    assert (outcome.status, outcome.json["problems"]) == (1, ["model: got tiny, expected Llama-3.3-70B"])


@pytest.mark.parametrize("changes", [{("model_ref",): "my tiny"}, {("platform", "dtype"): "float8"}])
def test_reproduce_invalid_certificate_exits_2(
    changes: Changes, reproduced: Run, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = reproduced(write_changes(file, changes))
    assert (status, out) == (2, "") and "Traceback" not in err
