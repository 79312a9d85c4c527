"""Order invariance is checked when a model is prepared, and a failure is reported."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pine_engine.engine.engine import Engine
from pine_engine.engine.invariance_check import CHECKED_METHODS, LENGTHS, changes_by_order
from tests.support.families import FAMILIES, make


class DependsOnPosition(nn.Module):
    """A layer whose output depends on the index of a token."""

    def forward(self, rows: Tensor) -> Tensor:
        places = torch.arange(rows.shape[1])[:, None]
        return rows * (1 + 1e-6 * (places == rows.shape[1] - 9))


@pytest.mark.parametrize("name", ["llama", "mixtral", "falcon", "gemma3_text", "nemotron"])
def test_supported_family_has_no_warning(name: str) -> None:
    family = FAMILIES[name]
    assert Engine(make(family.kind, torch.bfloat16, **family.options)).invariance_warning is None


def test_layer_that_depends_on_position_has_warning() -> None:
    model = make("llama")
    model.model.layers[0].mlp = nn.Sequential(model.model.layers[0].mlp, DependsOnPosition())
    warning = Engine(model, name="uneven").invariance_warning
    assert warning is not None and all(name in warning for name in ("uneven", "float32", "PCW", "PINE"))


def test_check_uses_different_lengths_in_two_orders() -> None:
    calls = []

    def prefill(layout: Any, method: Any) -> Tensor:
        calls.append((method.name, layout.lengths.tolist()))
        return torch.zeros(1, 3)

    assert changes_by_order(prefill, 97) == {}
    lengths = list(LENGTHS[1:])
    moved = [lengths[place] for place in (3, 0, 4, 1, 2)]
    assert calls == [(name, order) for name in CHECKED_METHODS for order in (lengths, moved)]
    assert 1 in lengths and len(set(lengths)) < len(lengths)
