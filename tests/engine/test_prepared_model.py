"""An engine gives what a new engine over the same model gives, also after the model has changed."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pine_engine import Engine, ModelError, PrefixCache, TokenLayout
from pine_engine.benchmark.random_models import synthetic_model
from tests.support.families import FAMILIES, TinyLlama, make

Change = Callable[[nn.Module], Any]

LAYOUT = TokenLayout((1, 2, 3), ((4, 5, 6, 7), (8, 9), (10, 11, 12)), (13, 14, 15))


def logits(engine: Engine, **options: Any) -> Tensor:
    """Return the logits of the suffix and of three decoding steps."""
    run = engine.run(
        LAYOUT, methods="pine", max_new_tokens=4, return_logits=True, stop_at_eos=False, **options
    )
    return run.logits["pine"]


def _scale(model: nn.Module, *, of_data: bool = False) -> None:
    for weight in model.parameters():
        (weight.data if of_data else weight).mul_(1.5)


def _load(model: nn.Module, *, assign: bool = False) -> None:
    weights = {name: 1.5 * weight for name, weight in model.state_dict().items()}
    model.load_state_dict(weights, assign=assign)


def _replace_data(model: nn.Module) -> None:
    for weight in model.parameters():
        weight.data = 1.5 * weight.data


def _replace_module(model: Any) -> None:
    layer = model.model.layers[0]
    layer.mlp.down_proj = nn.Linear(layer.mlp.down_proj.in_features, layer.mlp.down_proj.out_features)


VALUES: dict[str, Change] = {
    "optimizer step": torch.no_grad()(_scale),
    "inference mode": torch.inference_mode()(_scale),
    "load_state_dict": _load,
    "data replaced": _replace_data,
    "data changed": partial(_scale, of_data=True),
}
STRUCTURE: dict[str, Change] = {
    "load_state_dict with assign": partial(_load, assign=True),
    "module": _replace_module,
    "dtype": nn.Module.double,
}


@pytest.mark.parametrize("change", [*VALUES, "inference tensors"])
def test_engine_4bit_decodes_with_changed_weights(change: str) -> None:
    with torch.inference_mode(change == "inference tensors"):
        model = synthetic_model("random:tiny", dtype="4bit", device="cpu")
    engine = Engine(model, decode_in_4bit=True)
    before = logits(engine)
    assert torch.equal(logits(engine), before)
    VALUES.get(change, VALUES["inference mode"])(model)
    after = logits(engine)
    assert torch.equal(after, logits(Engine(model, decode_in_4bit=True)))
    assert not torch.equal(after[-1], before[-1])


@pytest.mark.parametrize("change", (VALUES | STRUCTURE).values(), ids=VALUES | STRUCTURE)
def test_engine_after_change_reuses_no_cached_prompt(tiny_llama: TinyLlama, change: Change) -> None:
    model = tiny_llama()
    engine, prefix_cache = Engine(model), PrefixCache()
    before = logits(engine, prefix_cache=prefix_cache)
    change(model)
    after = logits(engine, prefix_cache=prefix_cache)
    assert torch.equal(after, logits(Engine(model)))
    assert not torch.equal(after, before)


def test_engine_4bit_after_change_of_dtype_raises() -> None:
    model: Any = synthetic_model("random:tiny", dtype="4bit", device="cpu")
    engine = Engine(model, decode_in_4bit=True)
    model.to(torch.bfloat16)
    with pytest.raises(ModelError):
        logits(engine)


def test_engine_of_unchanged_model_keeps_its_networks(tiny_llama: TinyLlama) -> None:
    model: Any = tiny_llama()
    engine = Engine(model)
    patched_models = engine.patched_models
    model.train()
    model.generate(torch.tensor([LAYOUT.ids]), max_new_tokens=2)
    logits(engine)
    assert engine.patched_models is patched_models


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
