"""Number formats by name, and which one writes fastest."""

from collections.abc import Callable

import pytest
import torch

from pine_engine.benchmark.random_models import load_engine
from pine_engine.models import dtypes
from pine_engine.models.dtypes import Dtype, fastest, settled


@pytest.fixture(autouse=True)
def _measured_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dtypes, "_measured", {})


@pytest.mark.parametrize(
    ("seconds", "four_bit", "expected"),
    [
        ({"float32": 1, "4bit": 2}, True, "float32"),
        ({"float32": 2, "4bit": 1}, True, "4bit"),
        ({"float32": 2, "4bit": 1}, False, "float32"),
        ({"float32": 3, "4bit": 1, "bfloat16": 2}, False, "bfloat16"),
    ],
)
def test_auto_is_what_takes_least_time_and_4_bits_only_if_they_lose_nothing(
    seconds: dict[Dtype, float], four_bit: bool, expected: Dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = {name: (lambda name=name: name) for name in seconds}
    monkeypatch.setattr(dtypes, "_steps", lambda: steps)

    def seconds_of(step: Callable[[], Dtype]) -> float:
        return seconds[step()]

    monkeypatch.setattr(dtypes, "_seconds", seconds_of)
    assert settled("auto", "cpu", four_bit=four_bit) == expected
    assert settled("float16", "cpu", four_bit=four_bit) == "float16"


def test_it_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = fastest("cpu", four_bit=True)
    assert found in ("float32", "4bit", "bfloat16")
    monkeypatch.setattr(dtypes, "_steps", lambda: pytest.fail("measured again"))
    assert fastest("cpu", four_bit=True) == found
    assert fastest("cpu", four_bit=False) in ("float32", "bfloat16")


def test_a_process_goes_by_what_another_has_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dtypes, "_steps", lambda: pytest.fail("measured here"))
    dtypes.go_by({"float32": 2, "bfloat16": 1})
    assert fastest("cpu", four_bit=False) == "bfloat16"


@pytest.mark.parametrize(("has_it", "expected"), [(True, "bfloat16"), (False, "float32")])
def test_on_a_gpu_it_is_what_the_gpu_multiplies_in(
    has_it: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_it)
    assert fastest("cuda:1", four_bit=True) == expected
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert fastest("auto", four_bit=True) == expected


def test_an_engine_says_what_auto_became() -> None:
    assert load_engine("random:tiny", dtype="auto").dtype == fastest("cpu", four_bit=False)
