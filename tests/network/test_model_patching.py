"""The user's model stays unchanged, and one spread over devices answers as on one device."""

import math
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from accelerate.hooks import AlignDevicesHook, add_hook_to_module
from torch import Tensor, nn
from torch.nn.utils import prune
from transformers import AutoModelForCausalLM, PreTrainedModel

from pine_engine import METHODS, Engine, ModelError, build_plan
from pine_engine.attention.state import input_device, new_state, strategy_on
from pine_engine.network.model_patching import clone_with_shared_weights, freeze_rope_frequencies
from pine_engine.network.model_snapshot import ModelSnapshot
from tests.support.families import FAMILIES, LAYOUT, longrope, make
from tests.support.forward import prefill_logits
from tests.support.tiers import first_daily
from tests.support.tokenizers import letter_tokenizer

IDS = torch.tensor([LAYOUT.ids])

IMPLEMENTATIONS = ("eager", "sdpa")

FIVE_TOKENS: dict[str, Any] = {"methods": "pine", "max_new_tokens": 5, "stop_at_eos": False}


@torch.inference_mode()
def outputs(model: Any) -> tuple[Tensor, Tensor]:
    return model(IDS).logits, model.generate(IDS, max_new_tokens=5, do_sample=False)


def assert_unchanged(model: PreTrainedModel, expected: tuple[Tensor, Tensor]) -> None:
    assert all(map(torch.equal, outputs(model), expected))


def state_of(model: nn.Module) -> dict[str, Any]:
    return {
        f"{name}.{key}": id(value) if isinstance(value, nn.Module | Tensor) else repr(value)
        for name, module in model.named_modules()
        for key, value in vars(module).items()
    }


@pytest.mark.parametrize(
    ("name", "implementation"),
    [("llama", "eager"), ("llama", "sdpa"), ("mixtral", "sdpa"), ("falcon", "eager"), ("gemma3_text", "sdpa"),
     ("longrope, a long prompt", "eager"), ("phi", "sdpa")],
)  # fmt: skip
def test_model_is_unchanged(name: str, implementation: str) -> None:
    family = FAMILIES[name]
    model = make(family.kind, **family.options)
    model.config._attn_implementation_internal = implementation
    expected, state = outputs(model), state_of(model)
    engine = Engine(model)
    assert state_of(model) == state
    run = engine.generate(LAYOUT, methods=["vanilla", "pine"], max_new_tokens=3, stop_at_eos=False)
    for number, _ in enumerate(run):
        if number in (1, 5):  # during prefill, and during decode
            assert_unchanged(model, expected)
    assert_unchanged(model, expected)
    assert state_of(model) == state


def test_engine_is_independent_of_the_models_attention() -> None:
    model = make("llama")
    engine = Engine(model)
    expected = engine.run(LAYOUT, **FIVE_TOKENS).answers["pine"].logprobs
    for implementation in IMPLEMENTATIONS:
        model.set_attn_implementation(implementation)
        assert engine.run(LAYOUT, **FIVE_TOKENS).answers["pine"].logprobs == expected


@pytest.mark.parametrize("options", [{"attn_logit_softcapping": 2.0}, {"sliding_window": 8}])
def test_model_that_cannot_be_patched_is_unchanged(options: dict[str, Any]) -> None:
    model = make("mistral")
    vars(model.config).update(options)
    state = state_of(model)
    engine = Engine(model)
    assert engine.placement_problem and engine.run(LAYOUT).answers
    assert state_of(model) == state


def test_model_and_engine_run_concurrently() -> None:
    model = make("llama")
    engine, expected = Engine(model), outputs(model)
    pine = engine.run(LAYOUT, **FIVE_TOKENS).answers["pine"]
    results: list[tuple[Tensor, Tensor]] = []
    thread = threading.Thread(target=lambda: results.extend(outputs(model) for _ in range(10)))
    thread.start()
    while thread.is_alive():
        again = engine.run(LAYOUT, **FIVE_TOKENS).answers["pine"]
        assert (again.token_ids, again.logprobs) == (pine.token_ids, pine.logprobs)
    thread.join()
    assert len(results) == 10
    assert all(torch.equal(*pair) for result in results for pair in zip(result, expected, strict=True))


def test_weights_are_shared_and_dropout_is_off() -> None:
    model = make("llama", attention_dropout=0.5)
    model.train()
    network = Engine(model).patched_models[0].network
    assert model.training and not network.training
    weights = dict(model.named_parameters())
    assert all(weight is weights[name] for name, weight in network.named_parameters())


def test_hooks_of_accelerate_are_shared_and_called() -> None:
    model = make("llama", torch.float64)
    expected = Engine(model).run(LAYOUT, **FIVE_TOKENS).answers["pine"].logprobs
    for layer in model.model.layers:
        add_hook_to_module(layer, AlignDevicesHook(execution_device="cpu", io_same_device=True))
    hook = add_hook_to_module(model.lm_head, AlignDevicesHook(execution_device="cpu"))._hf_hook
    engine = Engine(model)
    assert engine.patched_models[0].network.lm_head._hf_hook is hook
    assert engine.run(LAYOUT, **FIVE_TOKENS).answers["pine"].logprobs == expected


def test_frequencies_are_frozen_for_a_length() -> None:
    model = make("phi3", **longrope(long_from=12))
    original = model.model.rotary_emb.inv_freq.clone()
    frozen = {}
    for length in (12, 13):
        network = clone_with_shared_weights(model)
        freeze_rope_frequencies(network, length)
        rotary = network.model.rotary_emb
        tables = [rotary(torch.zeros(1), torch.arange(count)[None])[0][:, :5] for count in (5, 40)]
        assert torch.equal(*tables)
        frozen[length] = rotary.inv_freq.clone()
    assert torch.equal(model.model.rotary_emb.inv_freq, original)
    assert torch.equal(frozen[12], original)
    assert not torch.equal(frozen[13], original)


class UncopyableHook:
    def __init__(self) -> None:
        self.lock, self.num_calls = threading.Lock(), 0

    def __call__(self, *_: Any) -> None:
        self.num_calls += 1


class Doubled(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, ids: Tensor) -> Any:
        return self.inner(ids) * 2


def _hooked(model: PreTrainedModel) -> PreTrainedModel:
    model.model.layers[0].register_forward_hook(UncopyableHook())
    return model


def _pruned(model: PreTrainedModel) -> PreTrainedModel:
    prune.l1_unstructured(model.requires_grad_(True).model.layers[0].mlp.up_proj, "weight", 0.3)
    return model


def _with_activations(model: PreTrainedModel) -> PreTrainedModel:
    model.model.layers[0].mlp.last = model.requires_grad_(True)(IDS).logits
    return model


def _with_other_embedding(model: PreTrainedModel) -> PreTrainedModel:
    model.model.embed_tokens = Doubled(model.model.embed_tokens)
    return model


def _compiled(model: PreTrainedModel) -> Any:
    return torch.compile(model, backend="eager")


@pytest.mark.parametrize(
    "change",
    first_daily([_hooked, _pruned, _with_activations, _with_other_embedding, _compiled], 4),
)
@torch.inference_mode()
def test_changed_model_is_supported(change: Callable[[PreTrainedModel], Any]) -> None:
    with torch.inference_mode(False):
        model = change(make("llama"))
    expected = model(IDS).logits
    vanilla = prefill_logits(Engine(model), LAYOUT, "vanilla")
    torch.testing.assert_close(vanilla, expected[0, -len(vanilla) :], rtol=1e-4, atol=1e-4)
    assert torch.equal(model(IDS).logits, expected)


def test_float8_weights_are_compared() -> None:
    model = make("llama")
    model.scale = nn.Parameter(torch.ones(3).to(torch.float8_e4m3fn), requires_grad=False)
    before = ModelSnapshot.of(model)
    assert ModelSnapshot.of(model).is_same(before)
    model.scale.data = torch.zeros(3).to(torch.float8_e4m3fn)
    assert not ModelSnapshot.of(model).is_same(before)


@pytest.mark.parametrize("shape", [(7,), (5, 1), (1, 5), (6, 8), (9, 3), (12, 30), (30, 12), (3, 5, 7)])
def test_snapshot_samples_each_row_and_column(shape: tuple[int, ...]) -> None:
    module = nn.Module()
    module.weight = nn.Parameter(
        torch.arange(math.prod(shape), dtype=torch.int32).view(shape), requires_grad=False
    )
    sampled = np.frombuffer(ModelSnapshot.of(module).sample, np.int32).tolist()
    num_matrices, num_rows, num_columns = (1, 1, 1, *shape)[-3:]
    size = num_rows * num_columns
    assert len({index // num_columns for index in sampled}) == num_matrices * num_rows
    assert len({(index // size, index % num_columns) for index in sampled}) == num_matrices * num_columns
    assert len(sampled) <= 2 * num_matrices * max(num_rows, num_columns)


def test_weights_that_bitsandbytes_has_packed_are_refused() -> None:
    model: Any = make("llama")
    model.quantization_method = "bitsandbytes"
    model.lm_head.weight.quant_state = SimpleNamespace(packing_format_for_cpu=True)
    with pytest.raises(ModelError, match="load it again"):
        clone_with_shared_weights(model)


def test_modules_that_cannot_be_copied_are_refused() -> None:
    model = make("llama")
    model.model.layers[0].lock = threading.Lock()
    with pytest.raises(ModelError, match=r"cannot be copied \(TypeError: cannot pickle"):
        Engine(model)


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


def dispatched(engine: Engine) -> tuple[dict[str, Tensor], dict[str, Any], Any]:
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
    expected = dispatched(Engine(AutoModelForCausalLM.from_pretrained(folder).eval()))
    model = AutoModelForCausalLM.from_pretrained(folder, device_map=places, offload_folder=tmp_path / "disk")
    offloaded = {name for name, weight in model.named_parameters() if weight.device.type == "meta"}
    assert bool(offloaded) == (places != "auto")
    engine = Engine(model.eval())
    assert engine.device == "cpu"
    logits, tokens, importance = dispatched(engine)
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
    expected = dispatched(Engine(make("llama", torch.float64)))
    model = make("llama", torch.float64)
    second = model.model.layers[1].to("cuda:0")
    add_hook_to_module(second, AlignDevicesHook(execution_device=0, io_same_device=True))
    assert input_device(model) == torch.device("cpu")
    logits, tokens, _ = dispatched(Engine(model))
    for name in COMPARED:
        torch.testing.assert_close(logits[name], expected[0][name], rtol=0, atol=1e-5)
    assert tokens == expected[1]
