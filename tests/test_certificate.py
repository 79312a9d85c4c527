"""A certificate says what was compared, and whoever repeats it finds the same or hears what differs."""

import hashlib
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pine_engine import certificate, cli, repeat_command
from pine_engine.certificate import (
    TOLERANCES,
    Certificate,
    certify,
    compare_certificates,
    hardware_of,
    installed_version,
    logits_sha256,
    read_certificate,
)
from pine_engine.engine import Engine
from pine_engine.errors import InputError
from pine_engine.inputs import Comparison
from pine_engine.invariance import OrderRow, compare_orders, orders_to_try
from pine_engine.models import ModelSource
from tests.commands import Run

COMPARISON = Comparison(
    question="Which is green?",
    documents=[{"text": "red", "title": "Varo"}, "green is Senna", {"text": "white"}],
    instruction="Answer.",
)
METHODS = ["vanilla", "sp", "pine", "pcw"]
ORDERS = orders_to_try(3)
MAX_NEW_TOKENS = 4


@pytest.fixture(scope="module")
def engine(tiny: Path) -> Engine:
    return Engine.load(str(tiny))


@pytest.fixture(scope="module")
def rows(engine: Engine) -> list[OrderRow]:
    events = compare_orders(
        engine,
        COMPARISON.tokenize(engine),
        methods=METHODS,
        orders=ORDERS,
        max_new_tokens=MAX_NEW_TOKENS,
        trace=True,
    )
    return [event for event in events if isinstance(event, OrderRow)]


@pytest.fixture(scope="module")
def certified(engine: Engine, rows: list[OrderRow]) -> Certificate:
    return certify(
        engine,
        COMPARISON,
        orders=ORDERS,
        cells=[row.cells for row in rows],
        hashes=logits_sha256(rows[0].result),
        seed=None,
        max_new_tokens=MAX_NEW_TOKENS,
        traced=True,
    )


@pytest.fixture
def file(certified: Certificate, tmp_path: Path) -> Path:
    path = tmp_path / "certificate.json"
    path.write_text(certified.model_dump_json(), encoding="utf-8")
    return path


# what it says


def test_it_says_what_the_comparison_found(certified: Certificate, rows: list[OrderRow]) -> None:
    assert certified.methods == METHODS
    for result in certified.results:
        cells = [row.cells[result.method] for row in rows]
        first = cells[0].answer
        assert (result.first_answer, result.first_token_ids) == (first.text, list(first.token_ids))
        assert result.same_answers == sum(cell.answer.token_ids == first.token_ids for cell in cells)
        assert result.distinct_answers == len({cell.answer.token_ids for cell in cells})
        assert result.max_abs_logit_diff == max(cell.max_abs_logit_diff for cell in cells)
        assert result.bitwise_equal == all(cell.bitwise_equal for cell in cells)
        assert result.logprobs == [cell.reference_logprob for cell in cells]
        assert result.logprob_spread == max(result.logprobs) - min(result.logprobs)
    vanilla, *others = certified.results
    for result in others:
        assert (result.max_abs_logit_diff, result.bitwise_equal, result.logprob_spread) == (0.0, True, 0.0)
    assert vanilla.max_abs_logit_diff > 0.1 and not vanilla.bitwise_equal and vanilla.logprob_spread > 0


def test_it_names_model_platform_and_the_command_that_repeats_it(
    certified: Certificate, engine: Engine
) -> None:
    platform = certified.platform
    assert (platform.model, platform.revision, certified.address) == ("tiny", None, "tiny")
    assert (platform.dtype, platform.device) == ("float32", "cpu")
    assert (platform.torch, platform.threads) == (torch.__version__, torch.get_num_threads())
    assert certified.command == "python -m pine_engine repeat certificate.json"
    assert [name for name, command in cli_verbs().items() if command in certified.command.split()] == [
        "repeat"
    ]
    assert (certified.comparison, certified.seed, certified.traced) == (COMPARISON, None, True)


def cli_verbs() -> dict[str, str]:
    callbacks = [command.callback for command in cli.app.registered_commands]
    return {callback.__name__: callback.__name__ for callback in callbacks if callback}


def test_the_hash_is_over_every_bit_of_the_logits(rows: list[OrderRow]) -> None:
    result = rows[0].result
    for method, logits in result.logits.items():
        flat = np.array([value for row in logits.tolist() for value in row], dtype="<f4")
        assert logits_sha256(result)[method] == hashlib.sha256(flat.tobytes()).hexdigest()
    logits = result.logits["pine"].clone()
    logits[-1, -1] = math.nextafter(logits[-1, -1].item(), math.inf) + 1e-6
    moved = type(result)(result.layout, result.answers, {}, {"pine": logits})
    assert logits_sha256(moved)["pine"] != logits_sha256(result)["pine"]


def test_a_certificate_is_read_as_it_was_written(certified: Certificate, file: Path) -> None:
    assert read_certificate(file) == certified


def test_what_is_not_a_number_is_kept(certified: Certificate, tmp_path: Path) -> None:
    broken = certified.results[0].model_copy(update={"max_abs_logit_diff": math.nan})
    path = tmp_path / "certificate.json"
    path.write_text(certified.model_copy(update={"results": [broken]}).model_dump_json())
    (read,) = read_certificate(path).results
    assert math.isnan(read.max_abs_logit_diff)


@pytest.mark.parametrize(
    ("source", "address"),
    [
        (ModelSource("tiny", "org/tiny", "c0ffee", "hub"), "org/tiny@c0ffee"),
        (ModelSource("tiny", "org/tiny", None, "hub"), "org/tiny"),
        (ModelSource("tiny", "/home/somebody/tiny", None, "folder"), "tiny"),
        (ModelSource("Smol", "/cache/smol.gguf", "wheel 1", "embedded"), "Smol"),
    ],
)
def test_a_models_address_is_of_use_elsewhere(source: ModelSource, address: str) -> None:
    assert source.address == address


def test_the_processor_has_a_name(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Some CPU: fast\nmodel name\t: Another\n")
    capability = torch.backends.cpu.get_cpu_capability()
    assert hardware_of("cpu", info) == f"Some CPU: fast, {capability}"
    assert hardware_of("cpu", tmp_path / "absent").endswith(f", {capability}")


def test_sources_that_are_not_installed_say_so() -> None:
    assert installed_version("no-such-package") == "not installed, run from its sources"


# files that are none


def changed(file: Path, *path: str | int, to: Any) -> Path:
    """The certificate with one value replaced."""
    content = json.loads(file.read_text(encoding="utf-8"))
    place = content
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{}", "is not a certificate of PINE Explorer; save one with the button 'Certificate (JSON)'"),
        ('{"question": "q", "documents": ["a"]}', "is not a certificate of PINE Explorer"),
        ("[1, 2]", "the file: input should be a valid dictionary"),
        (
            '{"format": "pine-explorer certificate", "version": 2}',
            "a certificate of version 2, and this program",
        ),
        ('{"format": "pine-explorer certificate"}', "a certificate of version None"),
        ('{"format": "pine-explorer certificate", "version": 1}', "field required"),
        ('{"format": "pine-exp', "is not JSON"),
        ("[" * 100_000, "cannot be read as JSON"),
    ],
)
def test_what_is_no_certificate_is_refused_with_a_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(InputError) as raised:
        read_certificate(path)
    assert str(raised.value).startswith(str(path)) and sentence in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (("orders", 1), [0, 1], "[0, 1] is no order of 3 documents"),
        (("orders", 1), [0, 1, 1], "[0, 1, 1] is no order of 3 documents"),
        (("orders",), [], "orders: list should have at least 1 item"),
        (("results", 0, "method"), "magic", "there is no method 'magic'"),
        (("results", 0, "logprobs"), [-1.0], "vanilla must have one log-probability for each order"),
        (("results", 1, "method"), "vanilla", "vanilla stands twice among the results"),
        (("max_new_tokens",), -1, "max_new_tokens: input should be greater than or equal to 0"),
        (("extra",), 1, "extra: extra inputs are not permitted"),
        (("comparison", "documents"), [], "at least 1 item"),
    ],
)
def test_a_damaged_certificate_is_refused_with_a_sentence(
    path: tuple[str | int, ...], value: Any, sentence: str, file: Path
) -> None:
    with pytest.raises(InputError) as raised:
        read_certificate(changed(file, *path, to=value))
    assert sentence in str(raised.value) and str(file) in str(raised.value)


# repeating it


@pytest.fixture
def repeat(pine: Run) -> Run:
    """Runs the verb."""
    return partial(pine, "repeat")


def test_a_repetition_finds_every_bit_again(repeat: Run, file: Path, tiny: Path) -> None:
    status, out, err = repeat(file, "--model", tiny, "--json")
    assert (status, err) == (0, "as the certificate says\n")
    report = json.loads(out)
    assert report["repeated"] and report["elsewhere"] == [] and report["tolerance"] is None
    for method in report["methods"]:
        assert method["found"] == method["certified"]
        assert (method["same_bits"], method["problems"]) == (True, [])
    assert [method["method"] for method in report["methods"]] == METHODS


def test_without_json_a_table_is_printed(
    repeat: Run, file: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeat_command.terminal.stdout, "width", 200)
    changed(file, "results", 2, "bitwise_equal", to=False)
    status, out, err = repeat(file, "--model", tiny)
    assert status == 1
    vanilla, sp, pine, _ = (line for line in out.splitlines() if any(f" {name} " in line for name in METHODS))
    assert "yes" in vanilla and "NO:" not in vanilla
    assert "6 of 6" in sp and "NO:" not in sp
    assert "NO: equal to the last bit" in pine
    assert err.endswith("not what the certificate says: pine\n")


@pytest.mark.parametrize("traced", [True, False])
def test_attention_is_recorded_where_it_was(
    traced: bool, certified: Certificate, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    generate = engine.generate
    monkeypatch.setattr(
        engine, "generate", lambda *args, **options: (asked.append(options), generate(*args, **options))[1]
    )
    repeat_command.compute_again(engine, certified.model_copy(update={"traced": traced}))
    assert [options["trace"] for options in asked] == [traced] * len(ORDERS)


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("results", 0, "first_token_ids", 0), 3, "another answer"),
        (("results", 0, "first_answer"), "better", "another answer"),
        (("results", 0, "same_answers"), 99, "orders with the first answer, not 99"),
        (("results", 0, "distinct_answers"), 99, "distinct answers, not 99"),
        (("results", 0, "bitwise_equal"), True, "not equal to the last bit"),
        (("results", 0, "max_abs_logit_diff"), 1e-7, "not 1e-07"),
        (("results", 0, "logprobs", 1), -1.0, "other log-probabilities"),
        (("results", 0, "logprob_spread"), 0.0, "other log-probabilities"),
        (("results", 0, "logits_sha256"), "0" * 64, "other logits"),
        (("comparison", "question"), "Which is blue?", "other logits"),
        (("comparison", "documents", 1), "green is Varo", "other logits"),
        (("max_new_tokens",), 3, "another answer"),
    ],
)
def test_a_certificate_that_was_changed_is_found(
    path: tuple[str | int, ...], value: Any, problem: str, file: Path, certified: Certificate, engine: Engine
) -> None:
    given = read_certificate(changed(file, *path, to=value))
    found = certified
    if path[0] != "results":  # what was asked is another, so it must be computed again
        found = repeat_command.compute_again(engine, given)
    compared = compare_certificates(given, found)
    assert not compared.holds
    assert any(problem in said for said in compared.methods[0].problems), compared.methods[0].problems


@pytest.mark.parametrize("field", list(certificate.ASPECTS))
def test_whatever_bits_depend_on_is_said(field: str, certified: Certificate) -> None:
    other = 99 if field == "threads" else "other"
    there = certified.model_copy(update={"platform": certified.platform.model_copy(update={field: other})})
    here = getattr(certified.platform, field) or "unknown"
    compared = compare_certificates(there, certified)
    assert compared.elsewhere == (f"{certificate.ASPECTS[field]}: {here} here, {other} there",)
    assert compared.holds and [method.bits for method in compared.methods] == [None] * len(METHODS)


@pytest.mark.parametrize(
    ("theirs", "ours", "tolerance"),
    [
        ("float32", "float32", 1e-3),
        ("float32", "bfloat16", 1.0),
        ("float16", "float32", 0.1),
    ],
)
def test_elsewhere_logits_may_be_a_little_off(
    theirs: str, ours: str, tolerance: float, certified: Certificate
) -> None:
    def with_diff(dtype: str, torch_version: str, by: float) -> Certificate:
        vanilla = certified.results[0]
        diff = vanilla.max_abs_logit_diff + by
        other = vanilla.model_copy(
            update={"max_abs_logit_diff": diff, "logits_sha256": "0" * 64, "logprobs": [0.0] * len(ORDERS)}
        )
        platform = certified.platform.model_copy(update={"dtype": dtype, "torch": torch_version})
        return certified.model_copy(update={"results": [other], "platform": platform})

    for off, holds in ((0.99, True), (1.01, False), (-1.01, False)):
        compared = compare_certificates(with_diff(theirs, "9", 0), with_diff(ours, "8", off * tolerance))
        assert (compared.tolerance, compared.holds) == (tolerance, holds)
    assert set(TOLERANCES) == {"float32", "float16", "bfloat16"}


def test_elsewhere_an_invariance_that_is_lost_is_found(certified: Certificate) -> None:
    pine = certified.results[2]
    lost = pine.model_copy(update={"bitwise_equal": False, "max_abs_logit_diff": 1e-6})
    platform = certified.platform.model_copy(update={"torch": "9"})
    found = certified.model_copy(update={"results": [lost], "platform": platform})
    compared = compare_certificates(certified.model_copy(update={"results": [pine]}), found)
    assert compared.methods[0].problems == ("not equal to the last bit",)


def test_another_dtype_is_said_and_taken(repeat: Run, file: Path, tiny: Path) -> None:
    _, out, err = repeat(file, "--model", tiny, "--dtype", "bfloat16", "--json")
    report = json.loads(out)
    assert report["elsewhere"] == ["dtype: bfloat16 here, float32 there"]
    assert report["tolerance"] == 1.0
    assert "another platform: dtype: bfloat16 here, float32 there" in err and "may be 1.0 off" in err
    assert all(method["same_bits"] is None for method in report["methods"])
    assert report["methods"][2]["found"]["bitwise_equal"] is True


def test_a_local_model_is_asked_for_by_its_name(
    repeat: Run, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = repeat(changed(file, "address", to="my tiny"))
    assert (status, out) == (2, "")
    assert "'my tiny' is not a model" in err and "Traceback" not in err


def test_bad_files_are_one_line_and_exit_2(repeat: Run, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text("{}")
    status, out, err = repeat(path)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "is not a certificate" in err
