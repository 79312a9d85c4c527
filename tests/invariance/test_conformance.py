"""The engine reproduces outputs of the released code, and each recorded tensor is compared."""

import json
import math
import re
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


@pytest.mark.parametrize(
    "name",
    [
        *("tied embeddings", "gemma2", "glm", "mixtral"),  # and weights that transformers joins when loading
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("llama", "phi", "gpt_neox", "cohere")),
    ],
)
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


# invalid cases


@pytest.mark.parametrize(
    ("file", "changes", "keyword"),
    [
        ("case.json", {"runs": []}, "no run"),
        ("case.json", {"documents": [[5], []]}, "document 2"),
        ("case.json", {"steps": 3}, "'decode_logits' has shape (12, 97), expected (3, 97)"),
        ("case.json", {"suffix": [5, 97]}, "97"),
        ("config.json", {"max_position_embeddings": 20}, "20 tokens"),
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


@pytest.mark.parametrize("key", ["prefix", "documents", "suffix", "steps", "runs"])
def test_check_case_missing_key_raises(case: Path, key: str) -> None:
    content = json.loads((case / "case.json").read_text())
    (case / "case.json").write_text(json.dumps({name: content[name] for name in content if name != key}))
    assert key in check_incomplete(case)


@pytest.mark.parametrize(
    ("file", "name", "shape"),
    [
        ("weights.safetensors", "lm_head.weight", None),
        ("weights.safetensors", "model.norm.bias", (64,)),
        ("weights.safetensors", "model.norm.weight", (8,)),
        ("expected_0.safetensors", "prefill_logits", None),
    ],
)
def test_check_case_missing_added_or_reshaped_tensor_is_named(
    case: Path, capfd: pytest.CaptureFixture[str], file: str, name: str, shape: tuple[int, ...] | None
) -> None:
    tensors = load_file(case / file)
    tensors.pop(name, None)
    save_file({**tensors, **({name: torch.ones(shape)} if shape else {})}, case / file)
    capfd.readouterr()
    with pytest.raises(InputError, match=re.escape(name)):
        check_case(case)
    assert capfd.readouterr().err == ""


def check_incomplete(case: Path) -> str:
    with pytest.raises(InputError) as raised:
        check_case(case)
    assert str(raised.value).startswith(f"{case} is not a complete") and "\n" not in str(raised.value)
    return str(raised.value)
