"""The model that somebody hands in stays theirs: before, while and after an engine runs over its weights."""

import threading
from typing import Any

import pytest
import torch
from accelerate.hooks import AlignDevicesHook, add_hook_to_module
from torch import Tensor, nn
from torch.nn.utils import prune
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from pine_engine.engine import passes
from pine_engine.engine.engine import Engine
from pine_engine.errors import ModelError
from pine_engine.methods.table import get_method
from pine_engine.network.model_patching import clone_with_shared_weights, freeze_rope_frequencies
from tests.support.families import FAMILIES, LAYOUT, longrope, make

IDS = torch.tensor([LAYOUT.ids])

IMPLEMENTATIONS = ("eager", "sdpa")


def answers(model: Any) -> tuple[Tensor, Tensor]:
    """What the model says by itself, to the last bit."""
    with torch.inference_mode():
        return model(IDS).logits, model.generate(IDS, max_new_tokens=5, do_sample=False)


def assert_answers(model: PreTrainedModel, expected: tuple[Tensor, Tensor]) -> None:
    for ours, theirs in zip(answers(model), expected, strict=True):
        assert torch.equal(ours, theirs)


def state_of(model: nn.Module) -> dict[str, Any]:
    """Everything that could be changed on a module, by its name."""
    return {
        f"{name}.{key}": id(value) if isinstance(value, nn.Module | Tensor) else repr(value)
        for name, module in model.named_modules()
        for key, value in vars(module).items()
    }


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    "name", ["llama", "mixtral", "falcon", "gemma3_text", "longrope, a long prompt", "phi"]
)
def test_a_wrapped_model_answers_as_before(name: str, implementation: str) -> None:
    family = FAMILIES[name]
    model = make(family.kind, **family.options)
    model.config._attn_implementation_internal = implementation
    expected, before = answers(model), state_of(model)
    engine = Engine(model)
    assert state_of(model) == before
    assert_answers(model, expected)
    run = engine.generate(LAYOUT, methods=["vanilla", "pine"], max_new_tokens=3, stop_at_eos=False)
    for number, _ in enumerate(run):
        if number in (1, 5):  # while the run reads, and while it writes
            assert_answers(model, expected)
    assert_answers(model, expected)
    assert state_of(model) == before


def test_another_attention_on_the_model_is_none_on_the_engine() -> None:
    model = make("llama")
    engine = Engine(model)
    options: dict[str, Any] = {"methods": ["pine"], "max_new_tokens": 4, "stop_at_eos": False}
    expected = engine.run(LAYOUT, **options).answers["pine"].logprobs
    for implementation in IMPLEMENTATIONS:
        model.set_attn_implementation(implementation)
        assert engine.run(LAYOUT, **options).answers["pine"].logprobs == expected


@pytest.mark.parametrize("options", [{"attn_logit_softcapping": 2.0}, {"sliding_window": 8}])
def test_a_refused_model_is_untouched(options: dict[str, Any]) -> None:
    model = make("mistral")
    expected = answers(model)
    vars(model.config).update(options)
    before = state_of(model)
    with pytest.raises(ModelError):
        Engine(model)
    assert state_of(model) == before
    for name in options:
        setattr(model.config, name, None)
    assert_answers(model, expected)


def test_a_model_and_its_engine_run_at_the_same_time() -> None:
    model = make("llama")
    engine, expected = Engine(model), answers(model)
    pine = engine.run(LAYOUT, methods=["pine"], max_new_tokens=8, stop_at_eos=False).answers["pine"]
    faults: list[BaseException] = []

    def ask() -> None:
        try:
            for _ in range(20):
                assert_answers(model, expected)
        except BaseException as error:
            faults.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    while asking.is_alive():
        again = engine.run(LAYOUT, methods=["pine"], max_new_tokens=8, stop_at_eos=False).answers["pine"]
        assert (again.token_ids, again.logprobs) == (pine.token_ids, pine.logprobs)
    asking.join()
    assert faults == []


def test_weights_are_shared_and_a_model_in_training_is_read_without_dropout() -> None:
    model = make("llama", attention_dropout=0.5)
    model.train()
    engine = Engine(model)
    assert model.training
    theirs = dict(model.named_parameters())
    for name, weight in engine.patched_models[0].network.named_parameters():
        assert weight is theirs[name]
    assert not engine.patched_models[0].network.training


def test_hooks_of_accelerate_are_shared_and_still_called() -> None:
    model = make("llama", torch.float64)
    expected = Engine(model).run(LAYOUT, methods=["pine"], max_new_tokens=2, stop_at_eos=False)
    for layer in model.model.layers:
        add_hook_to_module(layer, AlignDevicesHook(execution_device="cpu", io_same_device=True))
    hook = add_hook_to_module(model.lm_head, AlignDevicesHook(execution_device="cpu"))._hf_hook
    engine = Engine(model)
    assert engine.patched_models[0].network.lm_head._hf_hook is hook
    actual = engine.run(LAYOUT, methods=["pine"], max_new_tokens=2, stop_at_eos=False)
    assert actual.answers["pine"].logprobs == expected.answers["pine"].logprobs


def test_frequencies_are_held_for_a_length_whatever_is_read() -> None:
    model = make("phi3", **longrope(long_from=12))
    own = model.model.rotary_emb
    theirs = own.inv_freq.clone()
    held = {}
    for length in (12, 13):
        network = clone_with_shared_weights(model)
        freeze_rope_frequencies(network, length)
        rotary = network.model.rotary_emb
        tables = [rotary(torch.zeros(1), torch.arange(count)[None])[0][:, :5] for count in (5, 40)]
        assert torch.equal(*tables)
        held[length] = rotary.inv_freq.clone()
    assert torch.equal(own.inv_freq, theirs)
    assert torch.equal(held[12], theirs)
    assert not torch.equal(held[13], theirs)


class Recorder:
    """A user's own, that cannot be copied."""

    def __init__(self) -> None:
        self.lock, self.seen = threading.Lock(), 0

    def hook(self, *_: Any) -> None:
        self.seen += 1


def _recorded(model: PreTrainedModel) -> PreTrainedModel:
    model.model.layers[0].register_forward_hook(Recorder().hook)
    return model


def _pruned(model: PreTrainedModel) -> PreTrainedModel:
    prune.l1_unstructured(model.requires_grad_(True).model.layers[0].mlp.up_proj, "weight", 0.3)
    return model


def _with_activations(model: PreTrainedModel) -> PreTrainedModel:
    model.model.layers[0].mlp.last = model.requires_grad_(True)(IDS).logits
    return model


@pytest.mark.parametrize(
    "change",
    [_recorded, _pruned, _with_activations, lambda model: torch.compile(model, backend="eager")],
    ids=["hook", "pruned", "activations", "compiled"],
)
def test_what_users_do_to_a_model_is_no_obstacle(change: Any) -> None:
    model = change(make("llama"))
    with torch.inference_mode():
        expected = model(IDS).logits
        vanilla = passes.prefill(
            Engine(model).patched_models, LAYOUT, get_method("vanilla"), room=0, logits_to_keep=0
        )[1]
        torch.testing.assert_close(vanilla, expected[0, -len(vanilla) :], rtol=1e-4, atol=1e-4)
        assert torch.equal(model(IDS).logits, expected)


def test_modules_that_cannot_be_copied_are_refused() -> None:
    model = make("llama")
    model.model.layers[0].lock = threading.Lock()
    with pytest.raises(ModelError, match="cannot be copied: got TypeError: cannot pickle"):
        Engine(model)


@pytest.mark.parametrize(
    ("kind", "options", "reason"),
    [
        ("rwkv", {"attention_hidden_size": 32}, "recurrent, state-space or convolution layers"),
        ("bloom", {"n_head": 4}, "its positions are ALiBi"),
        ("mamba", {}, "recurrent, state-space or convolution layers"),
        ("gpt_neox", {"hidden_size": 36, "rotary_pct": 0.5}, "its heads have 9 dimensions"),
    ],
)
def test_other_kinds_are_refused_by_what_they_are(kind: str, options: dict[str, Any], reason: str) -> None:
    config = AutoConfig.for_model(
        kind,
        **{"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4} | options,
    )
    with pytest.raises(ModelError, match=reason):
        Engine(AutoModelForCausalLM.from_config(config))


def test_an_embedding_of_somebodys_own_is_taken() -> None:
    class Doubled(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, ids: Tensor) -> Any:
            return self.inner(ids) * 2

    model = make("llama")
    model.model.embed_tokens = Doubled(model.model.embed_tokens)
    assert Engine(model).run(LAYOUT, methods="pine", max_new_tokens=2).answers["pine"].token_ids
