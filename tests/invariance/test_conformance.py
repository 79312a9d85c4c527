"""The engine reproduces outputs of the released code, and each recorded tensor is compared."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from pine_engine.errors import InputError
from pine_engine.invariance.conformance import CaseReport, check_case
from pine_engine.prompts.layout import TokenLayout
from tests.support.families import FAMILIES, LAYOUT, make
from tests.support.recorded_cases import record_case

GOLDEN = Path(__file__).parents[1] / "golden" / "conformance"
CASES = ["s1_llama_k2", "s2_llama_k3", "s3_qwen2_k5", "s4_llama_k8"]


@pytest.mark.parametrize("case", CASES)
def test_engine_matches_released_code(case: str) -> None:
    report = check_case(GOLDEN / case)
    num_runs = len(json.loads((GOLDEN / case / "case.json").read_text())["runs"])
    assert (report.case, report.runs) == (case, num_runs)
    assert report.conforms


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


@pytest.mark.parametrize(
    ("recorded", "by", "field"),
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
        ("decode_logits", math.nan, "max_logits_diff"),
        ("decode_importance", math.nan, "max_importance_diff"),
    ],
)
def test_check_case_compares_every_tensor(
    case: Path, untouched: CaseReport, recorded: str, by: float, field: str
) -> None:
    change(case / "expected_1.safetensors", recorded, by)
    report = check_case(case)
    assert not report.conforms
    differences = ("max_logits_diff", "max_vanilla_logits_diff", "max_importance_diff")
    fields = (*differences, "shifts_equal", "decoded_ids_equal")
    assert [name for name in fields if getattr(report, name) != getattr(untouched, name)] == [field]


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("max_logits_diff", 1e-4, 1.1e-4),
        ("max_vanilla_logits_diff", 1e-4, 1.1e-4),
        ("max_importance_diff", 1e-5, 1.1e-5),
        ("shifts_equal", True, False),
        ("decoded_ids_equal", True, False),
    ],
)
def test_case_report_conforms_within_tolerance(
    field: str, good: float, bad: float, untouched: CaseReport
) -> None:
    values: dict[str, Any] = {field: good}
    assert replace(untouched, **values).conforms
    for value in (bad, math.nan):
        values[field] = value if isinstance(good, float) else bad
        assert not replace(untouched, **values).conforms


# model families

ORDERS = [[0, 1, 2], [2, 0, 1]]

LOADED = (
    *("tied embeddings", "gemma2", "glm", "mixtral"),
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("llama", "gemma", "qwen3", "phi", "gpt_neox", "cohere", "qwen2_moe", "yarn")
    ),
)
"""Families with separate and tied embeddings, biases, and weights that transformers joins when loading."""


@pytest.mark.parametrize("name", LOADED)
def test_check_case_loads_family(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    report = check_case(record_case(tmp_path, make(family.kind, **family.options), LAYOUT, ORDERS))
    assert report.runs == 2 and report.conforms


def test_check_case_two_documents_without_prefix(tmp_path: Path) -> None:
    layout = TokenLayout((), LAYOUT.documents[:2], LAYOUT.suffix)
    case = record_case(tmp_path, make("llama"), layout, [[0, 1], [1, 0]])
    file = case / "weights.safetensors"  # with a buffer of old checkpoints
    save_file({**load_file(file), "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}, file)
    assert check_case(case).conforms


@pytest.mark.parametrize(
    ("name", "shape"), [("lm_head.weight", None), ("model.norm.bias", (64,)), ("model.norm.weight", (8,))]
)
def test_check_case_wrong_weights_are_named(
    case: Path, capfd: pytest.CaptureFixture[str], name: str, shape: tuple[int, ...] | None
) -> None:
    weights = load_file(case / "weights.safetensors")
    weights.pop(name, None)
    save_file({**weights, **({name: torch.ones(shape)} if shape else {})}, case / "weights.safetensors")
    capfd.readouterr()
    assert f"1, the first is {name}" in check_incomplete(case)
    assert capfd.readouterr().err == ""


# invalid cases


@pytest.mark.parametrize(
    ("file", "changes", "keyword"),
    [
        ("case.json", {"runs": []}, "no run"),
        ("case.json", {"documents": [[5], []]}, "document 2"),
        ("case.json", {"documents": [[5], ["a"], [7]]}, "'a'"),
        ("case.json", {"steps": 3}, "'decode_logits' has shape (12, 97), expected (3, 97)"),
        ("case.json", {"suffix": [5, 97]}, "97"),
        ("config.json", {"max_position_embeddings": 20}, "20 tokens"),
        (
            "config.json",
            {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
            "'dynamic'",
        ),
        ("config.json", {"model_type": "no such"}, "ValueError"),
    ],
)
def test_check_case_invalid_case_raises(
    case: Path, file: str, changes: dict[str, object], keyword: str
) -> None:
    content = json.loads((case / file).read_text())
    (case / file).write_text(json.dumps({**content, **changes}))
    with pytest.raises(InputError) as raised:
        check_case(case)
    problem = str(raised.value)
    assert str(case) in problem and keyword in problem and "\n" not in problem


FILES = ("config.json", "weights.safetensors", "expected_1.safetensors", "case.json")


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("content", [None, b"damaged"], ids=["missing", "damaged"])
def test_check_case_missing_or_damaged_file_raises(case: Path, file: str, content: bytes | None) -> None:
    (case / file).unlink()
    if content is not None:
        (case / file).write_bytes(content)
    check_incomplete(case)


def test_check_case_missing_key_or_tensor_or_other_weights_raise(case: Path) -> None:
    content = json.loads((case / "case.json").read_text())
    for key in ("prefix", "documents", "suffix", "steps", "runs"):
        (case / "case.json").write_text(json.dumps({name: content[name] for name in content if name != key}))
        assert key in check_incomplete(case)
    (case / "case.json").write_text(json.dumps(content))
    tensors = load_file(case / "expected_0.safetensors")
    logits = tensors.pop("prefill_logits")
    save_file(tensors, case / "expected_0.safetensors")
    with pytest.raises(InputError, match="prefill_logits"):
        check_case(case)
    save_file({**tensors, "prefill_logits": logits}, case / "expected_0.safetensors")
    shutil.copy(GOLDEN / CASES[2] / "weights.safetensors", case)
    check_incomplete(case)


def check_incomplete(case: Path) -> str:
    with pytest.raises(InputError) as raised:
        check_case(case)
    message = str(raised.value)
    assert message.startswith(f"{case} is not a complete conformance case: ") and "\n" not in message
    return message
