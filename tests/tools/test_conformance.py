"""The engine reproduces outputs of the released code, and each recorded tensor is compared."""

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer import BadParameter

from pine_engine import InputError
from tests.support.tiers import first_daily
from tools.conformance import check_case, compare, conformance, tolerance

GOLDEN = Path(__file__).parents[1] / "golden" / "conformance"
CASES = sorted(path.parent for path in GOLDEN.glob("**/case.json"))


@pytest.mark.parametrize("case", first_daily(CASES, 7), ids=lambda case: case.name)
def test_engine_matches_released_code(case: Path) -> None:
    num_tensors = sum(len(load_file(file)) for file in case.glob("expected_*"))
    row = check_case(case)
    assert (row["case"], row["tensors"], row["failed"]) == (case.name, num_tensors, None)


def failed(outputs: dict[str, Any], recorded: dict[str, Any], *optional: str) -> list[str]:
    differences = compare(outputs, set(optional), recorded).items()
    return [name for name, value in differences if not value <= tolerance(name, recorded[name])]


@pytest.mark.parametrize(
    ("name", "values", "limit"),
    [
        ("decode_logits", np.array([[0.5, 2.0]], np.float32), 1e-4),
        ("suffix_importance", np.array([0.25], np.float32), 1e-5),
        ("decode_ids", np.array([3, 7]), 0),
    ],
)
def test_change_beyond_tolerance_fails_tensor(name: str, values: Any, limit: float) -> None:
    recorded, computed = {name: values}, values.astype(float)
    assert failed({name: computed + 0.9 * limit}, recorded) == []
    for change in (1.1 * limit or 1, -1.1 * limit or -1, math.nan):
        assert failed({name: computed + change}, recorded) == [name]


def test_shift_recorded_once_is_compared_everywhere() -> None:
    recorded = {"doc_shift": np.array([[0, 3], [5, 0]])}
    shifts = np.tile(recorded["doc_shift"], (2, 4, 1, 1))
    assert failed({"doc_shift": shifts}, recorded) == []
    shifts[1, 2, 0, 1] += 1
    assert failed({"doc_shift": shifts}, recorded) == ["doc_shift"]


def test_tensors_missing_unknown_or_of_other_shape_raise() -> None:
    outputs = {"entropy": np.ones((2, 3)), "chosen": np.ones(2, int)}
    one = {"entropy": outputs["entropy"]}
    assert failed(outputs, one, "chosen") == []
    for expected in (one, {**outputs, "other": np.ones(2)}, {**outputs, "entropy": np.ones(3)}):
        with pytest.raises(InputError):
            compare(outputs, set(), expected)


def test_changed_case_exits_1_and_folder_without_case_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadParameter):
        conformance(tmp_path)
    for name in ("unchanged", "changed"):
        shutil.copytree(GOLDEN / "s1_llama_k2", tmp_path / name)
    file = tmp_path / "changed" / "expected_1.safetensors"
    tensors = load_file(file)
    tensors["decode_ids"] += 1
    tensors["decode_logits"][0, 0] = math.nan
    save_file(tensors, file)
    result = conformance(tmp_path)
    assert result.status == 1
    failures = {"changed": "decode_ids, decode_logits", "unchanged": None}
    assert {row["case"]: row["failed"] for row in result.rows} == failures
