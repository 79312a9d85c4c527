"""Models that accelerate spreads over several devices answer as on one device."""

from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.hooks import AlignDevicesHook, add_hook_to_module
from torch import Tensor
from transformers import AutoModelForCausalLM

from pine_engine import METHODS, Engine, build_plan
from pine_engine.attention.state import input_device, new_state, strategy_on
from tests.support.families import LAYOUT, make
from tests.support.forward import prefill_logits
from tests.support.tokenizers import letter_tokenizer

COMPARED = ["vanilla", "pcw", "pine"]

MODULES = [
    *("model.embed_tokens", "model.layers.0", "model.layers.1", "model.norm", "model.rotary_emb", "lm_head")
]


def device_map(*on_disk: str) -> dict[str, str]:
    return {name: "disk" if name in on_disk else "cpu" for name in MODULES}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    # Heads of 16 dimensions are 64 bytes, for which float32 attention does not depend on the address.
    make("llama", head_dim=16).save_pretrained(tmp_path / "whole")
    letter_tokenizer().save_pretrained(tmp_path / "whole")
    return tmp_path / "whole"


def outputs(engine: Engine) -> tuple[dict[str, Tensor], dict[str, Any], Any]:
    """Return prompt logits and generated tokens of each method, and PINE's importances."""
    logits = {name: prefill_logits(engine, LAYOUT, name) for name in COMPARED}
    result = engine.run(LAYOUT, methods=COMPARED, max_new_tokens=5, stop_at_eos=False, trace=True)
    tokens = {name: answer.token_ids for name, answer in result.answers.items()}
    return {name: one.cpu() for name, one in logits.items()}, tokens, result.traces["pine"].suffix_importance


@pytest.mark.parametrize(
    "places",
    [
        device_map("model.layers.1"),
        device_map("model.embed_tokens", "model.layers.0", "model.norm", "lm_head"),
        device_map(*MODULES),
        "auto",
    ],
    ids=["a layer on disk", "the embedding on disk", "all on disk", "auto"],
)
def test_offloaded_model_answers_as_in_memory(folder: Path, tmp_path: Path, places: Any) -> None:
    expected = outputs(Engine(AutoModelForCausalLM.from_pretrained(folder).eval()))
    model = AutoModelForCausalLM.from_pretrained(folder, device_map=places, offload_folder=tmp_path / "disk")
    offloaded = {name for name, weight in model.named_parameters() if weight.device.type == "meta"}
    assert bool(offloaded) == (places != "auto")
    engine = Engine(model.eval())
    assert engine.device == "cpu"
    logits, tokens, importance = outputs(engine)
    for name in COMPARED:
        assert torch.equal(logits[name], expected[0][name]), name
    assert tokens == expected[1]
    assert (importance == expected[2]).all()


def tensors_of(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in tensors_of(part)]
    is_own = type(value).__module__.startswith("pine_engine.attention")
    return [tensor for part in vars(value).values() for tensor in tensors_of(part)] if is_own else []


@pytest.mark.parametrize("method", ["vanilla", "pcw_right", "sp", "pine"])
def test_strategy_is_created_once_per_device(method: str) -> None:
    (patched_model,) = Engine(make("llama")).patched_models
    plan = build_plan(METHODS[method], LAYOUT)
    state = new_state(plan, patched_model=patched_model, reserved_tokens=2, recorder=None)
    on_cpu, on_meta = (tensors_of(strategy_on(state, torch.device(name))) for name in ("cpu", "meta"))
    assert {tensor.device.type for tensor in on_meta} == {"meta"}
    assert {tensor.device.type for tensor in on_cpu} == {"cpu"}
    assert len(on_meta) == len(on_cpu)
    assert strategy_on(state, torch.device("meta")) is strategy_on(state, torch.device("meta"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="layers on two devices that compute need a GPU")
def test_layers_on_two_devices_answer_as_on_one() -> None:
    expected = outputs(Engine(make("llama", torch.float64)))
    model = make("llama", torch.float64)
    second = model.model.layers[1].to("cuda:0")
    add_hook_to_module(second, AlignDevicesHook(execution_device=0, io_same_device=True))
    assert input_device(model) == torch.device("cpu")
    logits, tokens, _ = outputs(Engine(model))
    for name in COMPARED:
        torch.testing.assert_close(logits[name], expected[0][name], rtol=0, atol=1e-5)
    assert tokens == expected[1]
