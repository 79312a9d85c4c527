"""The engine reproduces outputs of the released code, and each recorded tensor is compared."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from pine_engine import Engine, InputError, TokenLayout
from pine_engine.invariance import conformance
from pine_engine.invariance.conformance import check_case, conforms
from pine_engine.invariance.conformance_outputs import RecordedRun, compute_outputs
from tests.support.tiers import first_daily

GOLDEN = Path(__file__).parents[1] / "golden" / "conformance"
CASES = ["s1_llama_k2", "s2_llama_k3", "s3_qwen2_k5", "s4_llama_k8"]
ZOO = sorted(path.parent.name for path in (GOLDEN / "zoo").glob("*/case.json"))


@pytest.mark.parametrize("case", first_daily([*CASES, *(f"zoo/{name}" for name in ZOO)], 7))
def test_engine_matches_released_code(case: str) -> None:
    report = check_case(GOLDEN / case)
    num_runs = len(json.loads((GOLDEN / case / "case.json").read_text())["runs"])
    assert (report["case"], report["runs"], report["conforms"]) == (Path(case).name, num_runs, True)


@pytest.fixture
def case(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / CASES[1], tmp_path / "case"))


@pytest.fixture(scope="module")
def untouched() -> dict[str, Any]:
    return check_case(GOLDEN / CASES[1])


@pytest.fixture(scope="module")
def outputs() -> dict[TokenLayout, Any]:
    """Outputs of the engine by prompt, which changes of recorded tensors leave as they are."""
    return {}


@pytest.fixture
def computed_once(outputs: dict[TokenLayout, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def compute(engine: Engine, run: RecordedRun) -> Any:
        if run.layout not in outputs:
            outputs[run.layout] = compute_outputs(engine, run)
        return outputs[run.layout]

    monkeypatch.setattr(conformance, "compute_outputs", compute)


def change(file: Path, name: str, by: float) -> None:
    tensors = load_file(file)
    changed = tensors[name].clone()
    changed.view(-1)[0] += torch.tensor(by).to(changed.dtype)
    save_file({**tensors, name: changed}, file)


@pytest.mark.usefixtures("computed_once")
@pytest.mark.parametrize(
    ("name", "by", "field"),
    [
        ("prefill_logits", 2e-4, "max_logits_diff"), ("decode_logits", 2e-4, "max_logits_diff"),
        ("vanilla_prefill_logits", 2e-4, "max_vanilla_logits_diff"),
        ("vanilla_decode_logits", 2e-4, "max_vanilla_logits_diff"),
        ("doc_importance", 3e-5, "max_importance_diff"), ("suffix_importance", 3e-5, "max_importance_diff"),
        ("decode_importance", 3e-5, "max_importance_diff"), ("doc_shift", 1, "shifts_equal"),
        ("suffix_shift", 1, "shifts_equal"), ("decode_shift", 1, "shifts_equal"),
        ("decode_ids", 1, "decoded_ids_equal"), ("vanilla_decode_ids", 1, "decoded_ids_equal"),
        ("decode_logits", math.nan, "max_logits_diff"),
        ("decode_importance", math.nan, "max_importance_diff"),
    ],
)  # fmt: skip
def test_tensors_compared(case: Path, untouched: dict[str, Any], name: str, by: float, field: str) -> None:
    change(case / "expected_1.safetensors", name, by)
    report = check_case(case)
    assert not report["conforms"]
    differences = ("max_logits_diff", "max_vanilla_logits_diff", "max_importance_diff")
    fields = (*differences, "shifts_equal", "decoded_ids_equal")
    assert [one for one in fields if report[one] != untouched[one]] == [field]


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        *((field, 1e-4, 1.1e-4) for field in ("max_logits_diff", "max_vanilla_logits_diff")),
        ("max_importance_diff", 1e-5, 1.1e-5),
        *((field, True, False) for field in ("shifts_equal", "decoded_ids_equal")),
    ],
)
def test_case_conforms_in_tolerance(field: str, good: float, bad: float, untouched: dict[str, Any]) -> None:
    values: dict[str, Any] = {field: good}
    assert conforms(untouched | values)
    for value in (bad, math.nan):
        values[field] = value if isinstance(good, float) else bad
        assert not conforms(untouched | values)


Damage = Callable[[Path], object]


def change_json(file: str, **changes: object) -> Damage:
    """Return a function that changes values of a JSON file; None removes a key."""

    def damage(case: Path) -> None:
        content = json.loads((case / file).read_text()) | changes
        kept = {name: value for name, value in content.items() if value is not None}
        (case / file).write_text(json.dumps(kept))

    return damage


def change_tensor(file: str, name: str, *shape: int) -> Damage:
    """Return a function that reshapes a tensor, or removes it if there is no shape."""

    def damage(case: Path) -> None:
        tensors = {key: value for key, value in load_file(case / file).items() if key != name}
        save_file(tensors | ({name: torch.ones(shape)} if shape else {}), case / file)

    return damage


FILES = ("config.json", "weights.safetensors", "expected_1.safetensors", "case.json")
KEYS = ("prefix", "documents", "suffix", "steps", "runs")
INVALID: list[tuple[Damage, str]] = [
    (change_json("case.json", method="no_such"), "no_such"),
    (change_tensor("expected_0.safetensors", "no_such_tensor", 3), "no_such_tensor"),
    (change_json("case.json", runs=[]), "no run"),
    (change_json("case.json", documents=[[5], []]), "document 2"),
    (change_json("case.json", steps=3), "'decode_logits' has shape (12, 97), expected (3, 97)"),
    (change_json("case.json", suffix=[5, 97]), "97"),
    (change_json("config.json", max_position_embeddings=20), "20 tokens"),
    (change_json("config.json", model_type="no such"), "ValueError"),
    *((change_json("case.json", **{key: None}), key) for key in KEYS),
    *((lambda case, file=file: (case / file).unlink(), "is not a complete") for file in FILES),
    *((lambda case, file=file: (case / file).write_bytes(b"damaged"), "is not a complete") for file in FILES),
    (change_tensor("weights.safetensors", "lm_head.weight"), "lm_head.weight"),
    (change_tensor("weights.safetensors", "model.norm.bias", 64), "model.norm.bias"),
    (change_tensor("weights.safetensors", "model.norm.weight", 8), "model.norm.weight"),
    (change_tensor("expected_0.safetensors", "prefill_logits"), "prefill_logits"),
]


@pytest.mark.parametrize(("damage", "keyword"), INVALID)
def test_check_case_invalid_case_raises(
    case: Path, damage: Damage, keyword: str, capfd: pytest.CaptureFixture[str]
) -> None:
    damage(case)
    capfd.readouterr()
    with pytest.raises(InputError) as raised:
        check_case(case)
    problem = str(raised.value)
    assert str(case) in problem and keyword in problem and "\n" not in problem
    assert capfd.readouterr().err == ""
