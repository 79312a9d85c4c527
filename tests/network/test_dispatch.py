"""Models that accelerate spreads over several places answer as they do in one."""

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.hooks import AlignDevicesHook, add_hook_to_module
from torch import Tensor
from transformers import AutoModelForCausalLM

from pine_engine.attention.state import input_device, new_state
from pine_engine.engine import passes
from pine_engine.engine.engine import Engine
from pine_engine.methods.plan import build_plan
from pine_engine.methods.table import METHODS
from pine_engine.models.load import load
from pine_engine.network.rope import Rope
from tests.models.test_load import save_tokenizer
from tests.support.families import LAYOUT, make

REORDERED = LAYOUT.reorder([2, 0, 1])
COMPARED = ["vanilla", "pcw", "pine"]

PLACES = [
    "model.embed_tokens",
    "model.layers.0",
    "model.layers.1",
    "model.norm",
    "model.rotary_emb",
    "lm_head",
]


def spread(*on_disk: str) -> dict[str, str]:
    """A device map: the named modules on disk, the rest on the CPU."""
    return {place: "disk" if place in on_disk else "cpu" for place in PLACES}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    # Heads of 16: rows of 64 bytes, for which float32 attention is the same to the last bit.
    make("llama", head_dim=16).save_pretrained(tmp_path / "whole")
    save_tokenizer(tmp_path / "whole")
    return tmp_path / "whole"


def logits_and_answers(engine: Engine) -> tuple[dict[str, Tensor], dict[str, Any], Any]:
    """Of every method compared, prompt logits and generated tokens; and PINE's importances."""
    with torch.inference_mode():
        read = {
            name: passes.prefill(engine.patched_models, LAYOUT, METHODS[name], room=0, logits_to_keep=0)[
                1
            ].cpu()
            for name in COMPARED
        }
    result = engine.run(LAYOUT, methods=COMPARED, max_new_tokens=5, stop_at_eos=False, trace=True)
    written = {name: answer.token_ids for name, answer in result.answers.items()}
    return read, written, result.traces["pine"].suffix_importance


@pytest.mark.parametrize(
    "device_map",
    [
        spread("model.layers.1"),
        spread("model.embed_tokens", "model.layers.0", "model.norm", "lm_head"),
        spread(*PLACES),
        "auto",
    ],
    ids=["a layer on disk", "the embedding on disk", "all on disk", "auto"],
)
def test_a_model_spread_over_cpu_and_disk_answers_as_it_does_in_one_place(
    folder: Path, tmp_path: Path, device_map: Any
) -> None:
    whole = Engine(AutoModelForCausalLM.from_pretrained(folder).eval())
    parts = AutoModelForCausalLM.from_pretrained(
        folder, device_map=device_map, offload_folder=tmp_path / "offloaded"
    ).eval()
    on_disk = {name for name, weight in parts.named_parameters() if weight.device.type == "meta"}
    assert bool(on_disk) == (device_map != "auto")
    engine = Engine(parts)
    assert engine.device == "cpu"

    expected, actual = logits_and_answers(whole), logits_and_answers(engine)
    assert {name: torch.equal(expected[0][name], actual[0][name]) for name in COMPARED} == dict.fromkeys(
        COMPARED, True
    )
    assert actual[1] == expected[1]
    assert (actual[2] == expected[2]).all()
    with torch.inference_mode():
        shuffled = passes.prefill(
            engine.patched_models, REORDERED, METHODS["pine"], room=0, logits_to_keep=0
        )[1][-1]
    assert torch.equal(shuffled, actual[0]["pine"][-1])


def test_auto_lets_accelerate_place_a_loaded_model(folder: Path) -> None:
    loaded = load(str(folder), device="auto")
    engine, whole = Engine(loaded.model), Engine(load(str(folder)).model)
    assert logits_and_answers(engine)[1] == logits_and_answers(whole)[1]


def tensors_of(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in tensors_of(part)]
    if is_dataclass(value) and not isinstance(value, Rope):  # of which only the shape is read
        return [tensor for part in fields(value) for tensor in tensors_of(getattr(value, part.name))]
    return []


@pytest.mark.parametrize("method", ["vanilla", "pcw_right", "sp", "pine"])
def test_what_layers_share_is_copied_once_to_each_device_they_compute_on(method: str) -> None:
    (patched_model,) = Engine(make("llama")).patched_models
    state = new_state(build_plan(METHODS[method], LAYOUT), patched_model=patched_model, room=2, recorder=None)
    here, there = state.strategy(torch.device("cpu")), state.strategy(torch.device("meta"))
    assert {tensor.device.type for tensor in tensors_of(there)} == {"meta"}
    assert len(tensors_of(there)) == len(tensors_of(here))
    assert {tensor.device.type for tensor in tensors_of(here)} == {"cpu"}
    assert state.strategy(torch.device("meta")) is there


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a second device to compute on")
def test_layers_on_two_devices_answer_as_on_one() -> None:
    expected = logits_and_answers(Engine(make("llama", torch.float64)))
    model = make("llama", torch.float64)
    second = model.model.layers[1].to("cuda:0")
    add_hook_to_module(second, AlignDevicesHook(execution_device=0, io_same_device=True))
    assert input_device(model) == torch.device("cpu")
    actual = logits_and_answers(Engine(model))
    for name in COMPARED:
        torch.testing.assert_close(actual[0][name], expected[0][name], rtol=0, atol=1e-5)
    assert actual[1] == expected[1]
