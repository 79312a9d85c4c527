"""Models inside wrappers: `patch_generate` and engines follow PeftModel and torch.compile, or refuse."""

import copy
from collections.abc import Callable
from typing import Any

import peft
import pytest
import torch

from pine_engine import Engine, ModelError, TokenLayout, patch_generate
from tests.engine.conftest import LAYOUT
from tests.support.families import TinyLlama

# PEFT 0.21 reads an attribute that transformers has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")

Model = Any
"""A model or a wrapper around one."""

ORDERS = [LAYOUT, *map(LAYOUT.reorder, [(3, 2, 1, 0), (1, 0, 3, 2), (2, 3, 0, 1)])]
TOKENS = 6

CAUSAL: dict[str, Any] = {"task_type": "CAUSAL_LM"}


def lora(model: Model, **options: Any) -> Model:
    """Wrap a model in an adapter with random weights, which changes what it generates."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        config = peft.LoraConfig(
            r=4, target_modules=["q_proj", "v_proj", "up_proj"], init_lora_weights=False, **CAUSAL, **options
        )
        return peft.get_peft_model(model, config).eval()


def compiled(model: Model) -> Model:
    return torch.compile(model, backend="eager")


def compiled_in_place(model: Model) -> Model:
    model.compile(backend="eager")
    return model


WRAPPERS: dict[str, Callable[[Model], Model]] = {
    "peft": lora,
    "compiled": compiled,
    "compiled peft": lambda model: compiled(lora(model)),
    "peft of compiled": lambda model: lora(compiled(model)),
    "compiled in place": compiled_in_place,
}


@pytest.fixture
def model(tiny_llama: TinyLlama) -> Model:
    return tiny_llama()


def stock(model: Model, layout: TokenLayout = LAYOUT, **options: Any) -> tuple[int, ...]:
    """Return the output of the stock model."""
    ids = torch.tensor([layout.ids])
    return generated(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids), **options})


def generated(model: Model, inputs: dict[str, Any]) -> tuple[int, ...]:
    output = model.generate(**inputs, max_new_tokens=TOKENS, min_new_tokens=TOKENS, do_sample=False)
    return tuple(output[0, -TOKENS:].tolist())


def answered(model: Model, layout: TokenLayout = LAYOUT, method: str = "pine") -> tuple[int, ...]:
    """Return the output of `generate` under `patch_generate`."""
    with patch_generate(model, layout, method=method) as inputs:
        return generated(model, inputs)


def run(engine: Engine, layout: TokenLayout = LAYOUT, method: str = "pine") -> tuple[int, ...]:
    options: dict[str, Any] = {"methods": method, "max_new_tokens": TOKENS, "stop_at_eos": False}
    return engine.run(layout, **options).answers[method].token_ids


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_wrapped_model_is_order_invariant(model: Model, wrap: Callable[[Model], Model]) -> None:
    wrapped = wrap(model)
    assert {answered(wrapped, layout) for layout in ORDERS} == {run(Engine(wrapped))}


@pytest.mark.parametrize("name", ["peft", "compiled peft", "peft of compiled"])
def test_vanilla_with_adapter_equals_stock_generate(model: Model, name: str) -> None:
    base = copy.deepcopy(model)
    wrapped = WRAPPERS[name](model)
    expected = [stock(wrapped, layout) for layout in ORDERS]
    assert [answered(wrapped, layout, "vanilla") for layout in ORDERS] == expected
    assert len(set(expected)) > 1 and stock(base) != expected[0]


def test_patched_generate_bypassed_by_wrapper_raises(model: Model) -> None:
    """The wrapper generates with a copy of the model that it holds."""
    wrapper = lora(model)
    wrapper.generate = copy.deepcopy(model).generate
    before = sorted(vars(wrapper)), sorted(vars(model))
    with pytest.raises(ModelError):
        answered(wrapper)
    assert (sorted(vars(wrapper)), sorted(vars(model))) == before


def _disable(model: Model) -> None:
    model.base_model.disable_adapter_layers()


def _switch(model: Model) -> None:
    model.add_adapter(
        "other", peft.LoraConfig(r=2, target_modules=["o_proj"], init_lora_weights=False, **CAUSAL)
    )
    model.set_adapter("other")


def _scale(model: Model) -> None:
    for module in model.modules():
        if hasattr(module, "set_scale"):
            module.set_scale("default", 5.0)


CHANGES: dict[str, Callable[[Model], Any]] = {
    "disabled": _disable,
    "switched": _switch,
    "scaled": _scale,
    "merged": lambda model: model.merge_adapter(),
    "unloaded": lambda model: model.unload(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_engine_follows_changed_adapter(model: Model, change: Callable[[Model], Any]) -> None:
    wrapped = lora(model)
    engine = Engine(wrapped)
    assert run(engine, method="vanilla") == stock(wrapped)
    change(wrapped)
    assert run(engine, method="vanilla") == stock(model)
    assert run(engine) == run(Engine(model))


def test_patched_generate_follows_adapter_disabled_inside(model: Model) -> None:
    wrapped = lora(model)
    with patch_generate(wrapped, LAYOUT, method="vanilla") as inputs:
        enabled = generated(wrapped, inputs)
        with wrapped.disable_adapter():
            disabled = generated(wrapped, inputs)
        again = generated(wrapped, inputs)
    assert enabled == again == stock(wrapped)
    with wrapped.disable_adapter():
        assert disabled == stock(wrapped) != enabled


@pytest.mark.parametrize("names", [["__base__"], ["default"]])
def test_patched_generate_follows_adapter_names(model: Model, names: list[str]) -> None:
    wrapped = lora(model)
    expected = stock(wrapped, adapter_names=names)
    with patch_generate(wrapped, LAYOUT, method="vanilla") as inputs:
        assert generated(wrapped, {**inputs, "adapter_names": names}) == expected


@pytest.mark.parametrize(
    "config",
    [
        peft.PromptTuningConfig(num_virtual_tokens=3, **CAUSAL),
        peft.PrefixTuningConfig(num_virtual_tokens=3, **CAUSAL),
        peft.AdaptionPromptConfig(adapter_len=3, adapter_layers=1, **CAUSAL),
        peft.LoraConfig(target_modules=["q_proj"], alora_invocation_tokens=[51, 52], **CAUSAL),
    ],
    ids=lambda config: config.peft_type.value,
)
def test_adapter_that_depends_on_other_tokens_raises(model: Model, config: peft.PeftConfig) -> None:
    wrapped: Model = peft.get_peft_model(model, config)
    for attempt in (lambda: Engine(wrapped), lambda: answered(wrapped)):
        with pytest.raises(ModelError, match="adapter 'default'"):
            attempt()
