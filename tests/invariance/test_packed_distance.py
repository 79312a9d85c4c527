"""The self-test says how far weights in 4 bits are from float32: nothing where they are the same."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from pine_engine.benchmark.random_models import synthetic_model
from pine_engine.engine.engine import Engine
from pine_engine.invariance.packed_distance import check_packed_distance
from pine_engine.invariance.selftest import plan_checks
from pine_engine.models.packed import PackedWeight

FOUND = re.compile(
    r"32 steps: logits differ by ([\d.]+) in the mean, ([\d.]+) at most; log-probabilities of the next token "
    r"by ([\d.]+) nats at most; the most likely token is the same in (\d+)"
)


def found(engine: Engine) -> tuple[float, ...]:
    match = FOUND.fullmatch(check_packed_distance(engine).found)
    assert match
    return tuple(map(float, match.groups()))


def tiny(*, four_bit: bool) -> Engine:
    return Engine(synthetic_model("random:tiny", dtype="float32", device="cpu"), four_bit=four_bit)


def test_rounded_weights_are_some_way_off() -> None:
    mean, most, nats, same = found(tiny(four_bit=True))
    assert 0 < mean < most and nats > 0 and same <= 32


def test_weights_that_are_not_rounded_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tiny(four_bit=True)
    weights = {id(packed): weight for weight, packed in _packed(engine).items()}

    def exactly(self: PackedWeight, rows: Tensor) -> Tensor:
        return rows @ weights[id(self)].mT

    monkeypatch.setattr(PackedWeight, "multiply", exactly)
    assert found(engine) == (0.0, 0.0, 0.0, 32)


def _packed(engine: Engine) -> dict[Tensor, PackedWeight]:
    modules = [one for one in engine.wirings[0].network.modules() if type(one) is torch.nn.Linear]
    forwards: list[Any] = [one.forward for one in modules]
    return {
        one.weight: packed
        for one, forward in zip(modules, forwards, strict=True)
        if (packed := forward.args[1])
    }


def test_it_is_asked_where_answers_are_written_in_4_bits_alone() -> None:
    for four_bit in (True, False):
        names = [str(check) for check in plan_checks(tiny(four_bit=four_bit), shuffles=1)]
        assert any("check_packed_distance" in name for name in names) is four_bit
