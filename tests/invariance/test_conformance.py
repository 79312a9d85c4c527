"""The engine against what the released code computed, and a check that can fail."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, LlamaForCausalLM

from pine_engine.errors import InputError
from pine_engine.invariance.conformance import (
    IMPORTANCE_TOLERANCE,
    LOGITS_TOLERANCE,
    BadCase,
    CaseReport,
    check_case,
    try_case,
)
from pine_engine.prompts.layout import TokenLayout
from tests.support.families import FAMILIES, LAYOUT, make
from tests.support.recorded_cases import record_case, record_expected

GOLDEN = Path(__file__).parents[1] / "golden" / "conformance"
CASES = ["s1_llama_k2", "s2_llama_k3", "s3_qwen2_k5", "s4_llama_k8"]


@pytest.mark.parametrize("case", CASES)
def test_numbers_are_those_of_the_released_code(case: str) -> None:
    report = check_case(GOLDEN / case)
    assert (report.case, report.runs) == (
        case,
        len(json.loads((GOLDEN / case / "case.json").read_text())["runs"]),
    )
    assert report.max_logits_diff <= 1e-4
    assert report.max_vanilla_logits_diff <= 1e-4
    assert report.max_importance_diff <= 1e-5
    assert report.shifts_equal
    assert report.decoded_ids_equal
    assert report.conforms


def test_the_tolerances_are_those_promised() -> None:
    assert (LOGITS_TOLERANCE, IMPORTANCE_TOLERANCE) == (1e-4, 1e-5)


@pytest.fixture
def case(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / CASES[1], tmp_path / "case"))


@pytest.fixture(scope="module")
def untouched() -> CaseReport:
    return check_case(GOLDEN / CASES[1])


def change(file: Path, name: str, by: float) -> None:
    tensors = load_file(file)
    changed = tensors[name].clone()
    changed.view(-1)[0] += torch.tensor(by).to(changed.dtype)
    save_file({**tensors, name: changed}, file)


def test_one_changed_weight_is_noticed(case: Path) -> None:
    change(case / "weights.safetensors", "model.layers.0.self_attn.v_proj.weight", 0.5)
    report = check_case(case)
    assert report.max_logits_diff > LOGITS_TOLERANCE
    assert report.max_vanilla_logits_diff > LOGITS_TOLERANCE
    assert not report.conforms


@pytest.mark.parametrize(
    ("recorded", "by", "noticed_in"),
    [
        ("prefill_logits", 2e-4, "max_logits_diff"),
        ("decode_logits", 2e-4, "max_logits_diff"),
        ("vanilla_prefill_logits", 2e-4, "max_vanilla_logits_diff"),
        ("vanilla_decode_logits", 2e-4, "max_vanilla_logits_diff"),
        ("doc_importance", 3e-5, "max_importance_diff"),
        ("suffix_importance", 3e-5, "max_importance_diff"),
        ("decode_importance", 3e-5, "max_importance_diff"),
        ("doc_shift", 1, "shifts_equal"),
        ("suffix_shift", 1, "shifts_equal"),
        ("decode_shift", 1, "shifts_equal"),
        ("decode_ids", 1, "decoded_ids_equal"),
        ("vanilla_decode_ids", 1, "decoded_ids_equal"),
    ],
)
def test_everything_recorded_is_compared(
    case: Path, untouched: CaseReport, recorded: str, by: float, noticed_in: str
) -> None:
    change(case / "expected_1.safetensors", recorded, by)
    report = check_case(case)
    assert not report.conforms
    differences = ("max_logits_diff", "max_vanilla_logits_diff", "max_importance_diff")
    fields = (*differences, "shifts_equal", "decoded_ids_equal")
    assert [name for name in fields if getattr(report, name) != getattr(untouched, name)] == [noticed_in]


@pytest.mark.parametrize("recorded", ["decode_logits", "vanilla_decode_logits", "decode_importance"])
def test_what_is_no_number_does_not_conform(case: Path, recorded: str) -> None:
    change(case / "expected_1.safetensors", recorded, float("nan"))
    assert not check_case(case).conforms


GOOD: dict[str, Any] = {
    "case": "c",
    "runs": 1,
    "max_logits_diff": 1e-4,
    "max_vanilla_logits_diff": 1e-4,
    "max_importance_diff": 1e-5,
    "shifts_equal": True,
    "decoded_ids_equal": True,
}


@pytest.mark.parametrize(
    "worse",
    [
        {"max_logits_diff": 1.1e-4},
        {"max_vanilla_logits_diff": 1.1e-4},
        {"max_importance_diff": 1.1e-5},
        {"shifts_equal": False},
        {"decoded_ids_equal": False},
        {"max_logits_diff": float("nan")},
        {"max_vanilla_logits_diff": float("nan")},
        {"max_importance_diff": float("nan")},
    ],
    ids=str,
)
def test_a_case_conforms_only_if_all_of_it_does(worse: dict[str, float | bool]) -> None:
    assert CaseReport(**GOOD).conforms
    assert not CaseReport(**{**GOOD, **worse}).conforms


# whatever transformers loads

ORDERS = [[0, 1, 2], [2, 0, 1]]

LOADED = (
    "llama", "tied embeddings", "gemma", "gemma2", "qwen3", "phi", "gpt_neox", "cohere", "glm", "mixtral",
    "qwen2_moe", "yarn",
)  # fmt: skip
"""Embeddings of their own and tied ones, biases, weights that transformers joins when it loads them."""


@pytest.mark.parametrize("name", LOADED)
def test_a_case_of_any_family_is_loaded_and_is_what_the_definition_says(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    report = check_case(record_case(tmp_path, make(family.kind, **family.options), LAYOUT, ORDERS))
    assert report.runs == 2 and report.conforms


def test_two_documents_and_no_prefix(tmp_path: Path) -> None:
    layout = TokenLayout((), LAYOUT.documents[:2], LAYOUT.suffix)
    assert check_case(record_case(tmp_path, make("llama"), layout, [[0, 1], [1, 0]])).conforms


@pytest.fixture
def tied(case: Path) -> Path:
    """A case of the released code whose embeddings are tied, with new numbers for what that makes of it."""
    config = json.loads((case / "config.json").read_text())
    (case / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    weights = load_file(case / "weights.safetensors")
    del weights["lm_head.weight"]
    save_file(weights, case / "weights.safetensors")

    model = LlamaForCausalLM(AutoConfig.from_pretrained(case, attn_implementation="eager")).eval()
    model.load_state_dict({**weights, "lm_head.weight": weights["model.embed_tokens.weight"]})
    parts = json.loads((case / "case.json").read_text())
    layout = TokenLayout(parts["prefix"], parts["documents"], parts["suffix"])
    record_expected(case, model.requires_grad_(False), layout, ORDERS)
    return case


def test_tied_embeddings_need_no_weights_of_their_own(tied: Path) -> None:
    assert check_case(tied).conforms
    weights = load_file(tied / "weights.safetensors")
    twice = {**weights, "lm_head.weight": weights["model.embed_tokens.weight"].clone()}
    save_file(twice, tied / "weights.safetensors")
    assert check_case(tied).conforms
    change(tied / "weights.safetensors", "model.norm.weight", 0.5)
    assert not check_case(tied).conforms


def test_what_old_checkpoints_hold_beside_the_weights_is_passed_over(case: Path) -> None:
    file = case / "weights.safetensors"
    save_file({**load_file(file), "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}, file)
    assert check_case(case).conforms


@pytest.mark.parametrize(
    ("name", "shape", "sentence"),
    [
        ("lm_head.weight", None, "lacks weights of the model: 1, the first is lm_head.weight"),
        (
            "model.norm.bias",
            (64,),
            "holds weights that the model does not have: 1, the first is model.norm.bias",
        ),
        (
            "model.norm.weight",
            (8,),
            "holds weights of other shapes than the model's: 1, the first is model.norm.w",
        ),
    ],
)
def test_other_weights_than_the_model_has_are_named(
    case: Path, capfd: pytest.CaptureFixture[str], name: str, shape: tuple[int, ...] | None, sentence: str
) -> None:
    weights = load_file(case / "weights.safetensors")
    weights.pop(name, None)
    save_file({**weights, **({name: torch.ones(shape)} if shape else {})}, case / "weights.safetensors")
    capfd.readouterr()
    assert f"complete conformance case: weights.safetensors {sentence}" in assert_incomplete(case)
    assert capfd.readouterr().err == ""


# cases that cannot be checked


def rewrite(file: Path, **changes: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize(
    ("file", "changes", "sentence"),
    [
        ("case.json", {"runs": []}, "cannot be checked: case.json names no run"),
        ("case.json", {"documents": [[5], []]}, "complete conformance case: document 2 has no tokens"),
        ("case.json", {"documents": [[5], ["a"], [7]]}, "document 2 holds the text 'a' at place 0"),
        ("case.json", {"steps": 3}, "tensor 'decode_logits' has shape (12, 97), expected (3, 97)"),
        ("case.json", {"suffix": [5, 97]}, "cannot be checked: the suffix holds the token id 97 at place 1"),
        ("config.json", {"max_position_embeddings": 20}, "cannot be checked: the prompt has 20 tokens"),
        ("config.json", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
         "cannot be checked: LlamaForCausalLM: its rope type 'dynamic'"),
        ("config.json", {"model_type": "no such"}, "complete conformance case: ValueError"),
    ],
)  # fmt: skip
def test_a_case_that_cannot_be_run_is_said(
    case: Path, file: str, changes: dict[str, object], sentence: str
) -> None:
    rewrite(case / file, **changes)
    report = try_case(case)
    assert isinstance(report, BadCase) and not report.conforms
    assert report.case == "case" and str(case) in report.problem
    assert sentence in report.problem and "\n" not in report.problem


# folders that hold no whole case


@pytest.mark.parametrize("file", ["config.json", "weights.safetensors", "expected_1.safetensors"])
def test_a_missing_file_is_said(case: Path, file: str) -> None:
    (case / file).unlink()
    assert_incomplete(case)


@pytest.mark.parametrize(
    "file", ["config.json", "weights.safetensors", "expected_1.safetensors", "case.json"]
)
def test_a_damaged_file_is_said(case: Path, file: str) -> None:
    (case / file).write_bytes(b"damaged")
    assert_incomplete(case)


@pytest.mark.parametrize("key", ["prefix", "documents", "suffix", "steps", "runs"])
def test_a_case_that_lacks_a_part_is_said(case: Path, key: str) -> None:
    content = json.loads((case / "case.json").read_text())
    del content[key]
    (case / "case.json").write_text(json.dumps(content))
    assert key in assert_incomplete(case)


def test_weights_of_another_model_are_said(case: Path) -> None:
    shutil.copy(GOLDEN / CASES[2] / "weights.safetensors", case)
    assert_incomplete(case)


def assert_incomplete(case: Path) -> str:
    with pytest.raises(InputError) as raised:
        check_case(case)
    sentence = str(raised.value)
    assert sentence.startswith(f"{case} is not a complete conformance case: ")
    assert "\n" not in sentence
    return sentence


def test_a_recording_without_a_tensor_is_named(tmp_path: Path) -> None:
    case = tmp_path / "case"
    shutil.copytree(GOLDEN / CASES[0], case)
    tensors = load_file(case / "expected_0.safetensors")
    del tensors["prefill_logits"]
    save_file(tensors, case / "expected_0.safetensors")
    with pytest.raises(InputError, match="no recorded tensor 'prefill_logits'"):
        check_case(case)
