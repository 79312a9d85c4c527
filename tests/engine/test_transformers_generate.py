"""`generate` under a method: against transformers, the definition and the engine, and wrapped."""

import copy
import functools
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import peft
import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from pine_engine import METHODS, Engine, InputError, ModelError, TokenLayout, patch_generate
from pine_engine.engine import passes, transformers_generate as module
from tests.engine.conftest import LAYOUT, LAYOUTS as WITH_PREFIX
from tests.network.test_model_patching import state_of
from tests.support.errors import has_field
from tests.support.families import TinyLlama
from tests.support.reference import reference_logits
from tests.support.tiers import first_daily
from tests.support.tokenizers import letter_tokenizer

LAYOUTS = [*WITH_PREFIX, replace(LAYOUT, prefix=())]

Model = Any
"""A LlamaForCausalLM, whose generate takes and returns more than its annotation."""

END = 2

SCORES = 1e-4
"""Float64 models, but transformers keeps scores in float32: sums of some ten numbers of about 5."""


@pytest.fixture
def model(tiny_llama: TinyLlama) -> Model:
    return tiny_llama(dtype=torch.float64, attn_implementation="sdpa")


def new_tokens(output: Tensor, inputs: dict[str, Tensor]) -> list[tuple[int, ...]]:
    rows = output[:, inputs["input_ids"].shape[1] :].tolist()
    return [tuple(itertools.takewhile(lambda token: token != END, row)) for row in rows]


def padded(layouts: list[TokenLayout], token: int = 0) -> dict[str, Tensor]:
    longest = max(layout.num_tokens for layout in layouts)
    rows = [[token] * (longest - layout.num_tokens) + list(layout.ids) for layout in layouts]
    masks = [[0] * (longest - layout.num_tokens) + [1] * layout.num_tokens for layout in layouts]
    return {"input_ids": torch.tensor(rows), "attention_mask": torch.tensor(masks)}


@pytest.fixture(scope="module")
def engine(tiny_llama: TinyLlama) -> Engine:
    model = tiny_llama(dtype=torch.float64, attn_implementation="sdpa")
    return Engine(model, stop_token_ids=[END])


@pytest.fixture(scope="module")
def short_context(tiny_llama: TinyLlama) -> Engine:
    return Engine(tiny_llama(max_context_length=32))


@pytest.mark.parametrize("method", first_daily((name for name, row in METHODS.items() if not row.merge), 8))
def test_greedy_answers_equal_engine(engine: Engine, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    model, padding = engine.model, 7 if method == "pine" else 0
    monkeypatch.setattr(model.generation_config, "pad_token_id", padding or None)
    with patch_generate(engine, LAYOUTS, method=method) as inputs:
        output = model.generate(**inputs, max_new_tokens=8, do_sample=False, pad_token_id=0)
    for name, values in padded(LAYOUTS, padding).items():
        assert inputs[name].tolist() == values.tolist()
    alone = [engine.run(layout, methods=[method], max_new_tokens=8).answers[method] for layout in LAYOUTS]
    assert new_tokens(output, inputs) == [answer.token_ids for answer in alone]


@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 4, "num_return_sequences": 3},
        {"num_beams": 3, "do_sample": True, "length_penalty": 0.5},
        {"do_sample": True, "num_return_sequences": 4, "top_k": 20},
        {"do_sample": False, "repetition_penalty": 1.3},
        {"do_sample": False, "stop_strings": list("CDEFGHIJKLMNOP"), "tokenizer": letter_tokenizer()},
    ],
    ids=["beams", "sampled beams", "samples", "greedy", "stop strings"],
)
@pytest.mark.parametrize("method", ["vanilla", "pine"])
def test_one_document_equals_stock_generate(engine: Engine, method: str, options: dict[str, Any]) -> None:
    model, layouts = engine.model, LAYOUTS
    if method == "pine":
        layouts = [TokenLayout(x.prefix, (sum(x.documents, ()),), x.suffix) for x in LAYOUTS]
    options |= {"max_new_tokens": 7, "output_scores": True, "return_dict_in_generate": True}
    torch.manual_seed(3)
    expected = model.generate(**padded(layouts), **options)
    with patch_generate(engine, layouts, method=method) as inputs:
        torch.manual_seed(3)
        output = model.generate(**inputs, **options)
    assert output.sequences.tolist() == expected.sequences.tolist()
    for found, stock in zip(output.scores, expected.scores, strict=True):
        torch.testing.assert_close(found, stock, rtol=0, atol=SCORES)
    if "num_beams" in options:
        torch.testing.assert_close(output.sequences_scores, expected.sequences_scores, rtol=0, atol=SCORES)


def test_beams_have_scores_of_definition(engine: Engine) -> None:
    model: Model = engine.model
    options = {"max_new_tokens": 6, "min_new_tokens": 6, "length_penalty": 0.0, "num_beams": 4}
    with patch_generate(engine, LAYOUTS) as inputs:
        output = model.generate(
            **inputs, **options, num_return_sequences=4, return_dict_in_generate=True, output_scores=True
        )
    rows = zip(new_tokens(output.sequences, inputs), output.sequences_scores.tolist(), strict=True)
    for index, (ids, score) in enumerate(rows):
        layout = LAYOUTS[index // 4]
        logits = reference_logits(model, layout.extend(ids[:-1]), "pine")[layout.num_tokens - 1 :]
        expected = logits.log_softmax(-1)[range(6), list(ids)].sum().item()
        assert score == pytest.approx(expected, abs=SCORES)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("is_engine", [False, True])
def test_model_is_restored_after_error(tiny_llama: TinyLlama, implementation: str, is_engine: bool) -> None:
    model = tiny_llama(attn_implementation=implementation)
    if is_engine:  # as accelerate replaces forward
        plain = model.forward
        model.forward = functools.wraps(plain)(lambda *args, **options: plain(*args, **options))
    target: Any = Engine(model) if is_engine else model
    before = state_of(model)
    with patch_generate(target, LAYOUTS) as inputs:
        model.generate(**inputs, max_new_tokens=2, num_beams=2)
        assert model.config._attn_implementation == implementation
    assert state_of(model) == before
    with pytest.raises(LookupError), patch_generate(target, LAYOUTS) as inputs:
        model.generate(**inputs, max_new_tokens=2)
        raise LookupError
    assert state_of(model) == before


def test_model_is_patched_once_at_a_time(model: Model, tiny_llama: TinyLlama) -> None:
    other = tiny_llama(seed=1)
    with patch_generate(model, LAYOUTS) as inputs:
        expected = model.generate(**inputs, max_new_tokens=4)
        with pytest.raises(InputError), patch_generate(model, LAYOUT):
            pass
        with patch_generate(other, LAYOUT) as other_inputs:
            other.generate(**other_inputs, max_new_tokens=4)
        assert model.generate(**inputs, max_new_tokens=4).tolist() == expected.tolist()


def test_model_partly_on_disk_answers_equally(model: Model, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    places = dict.fromkeys(["model.layers.0", "model.layers.1", "model.norm", "model.rotary_emb"], "cpu")
    parts: Model = LlamaForCausalLM.from_pretrained(
        tmp_path, device_map={**places, "model.embed_tokens": "disk", "lm_head": "disk"},
        offload_folder=tmp_path / "disk", dtype=torch.float64,
    )  # fmt: skip
    assert parts.device.type == "meta"
    answers, models = [], (model, parts)
    for each in models:
        with patch_generate(each, LAYOUTS) as inputs:
            answers.append(each.generate(**inputs, max_new_tokens=5, num_beams=3).tolist())
    assert answers[0] == answers[1]


def test_engine_is_not_validated_again_and_runs_inside(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(model, stop_token_ids=[END])
    before = engine.run(LAYOUT, max_new_tokens=4)
    monkeypatch.delattr("pine_engine.engine.prepared_model.validate_model")
    with patch_generate(engine, LAYOUT) as inputs:
        output = model.generate(**inputs, max_new_tokens=4)
        inside = engine.run(LAYOUT, max_new_tokens=4)
    assert new_tokens(output, inputs) == [before.answers["pine"].token_ids]
    assert {name: answer.logprobs for name, answer in inside.answers.items()} == {
        name: answer.logprobs for name, answer in before.answers.items()
    }


def test_each_prompt_has_one_prefill(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(model)
    prefill = Mock(side_effect=passes.prefill)
    monkeypatch.setattr(passes, "prefill", prefill)
    with patch_generate(engine, LAYOUTS) as inputs:
        first = model.generate(**inputs, max_new_tokens=6)
        assert len(model.generate(**inputs, max_new_tokens=6, num_beams=3)) == len(LAYOUTS)
        assert model.generate(**inputs, max_new_tokens=6).tolist() == first.tolist()
    assert prefill.call_count == len(LAYOUTS)


@pytest.mark.parametrize("options", first_daily([{"do_sample": False}, {"num_beams": 3}]))
def test_reserved_space_grows(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    def answers() -> Any:
        with patch_generate(engine, LAYOUTS) as inputs:
            return engine.model.generate(**inputs, max_new_tokens=20, **options).tolist()

    expected = answers()
    monkeypatch.setattr(module, "RESERVED_TOKENS", 2)
    assert answers() == expected


def test_prompt_lookup_has_greedy_answer(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    model, extend = engine.model, Mock(side_effect=passes.extend)
    # The suffix is part of a document, so that the prompt already has candidates.
    layout = TokenLayout(LAYOUT.prefix, LAYOUT.documents, LAYOUT.documents[2][:3])
    options = {"max_new_tokens": 30, "min_new_tokens": 30}
    with patch_generate(engine, layout) as inputs:
        expected = model.generate(**inputs, **options)
        monkeypatch.setattr(passes, "extend", extend)
        output = model.generate(**inputs, **options, prompt_lookup_num_tokens=3)
    assert output.tolist() == expected.tolist()
    assert max(len(call.args[1][0]) for call in extend.call_args_list) > 1


def test_returned_cache_can_be_repeated_cropped_and_selected(model: Model) -> None:
    options = {"max_new_tokens": 3, "return_dict_in_generate": True, "min_new_tokens": 3}
    model.requires_grad_(True)  # no call keeps a graph
    with patch_generate(model, LAYOUTS) as inputs:
        output = model.generate(**inputs, **options)
        cache = output.past_key_values
        last = output.sequences[:, -1:]
        cache.batch_repeat_interleave(2)
        twice = model(input_ids=last.repeat_interleave(2, dim=0), past_key_values=cache).logits
        assert cache.get_seq_length() == output.sequences.shape[1]
        cache.crop(-1)
        assert cache.get_seq_length() == output.sequences.shape[1] - 1
        cache.batch_select_indices(torch.tensor([5, 0]))
        two = model(input_ids=last[[2, 0]], past_key_values=cache).logits
    assert not twice.requires_grad
    for index, layout in enumerate(LAYOUTS):
        ids = output.sequences[index, inputs["input_ids"].shape[1] :].tolist()
        expected = reference_logits(model, layout.extend(ids), "pine")[-1].expand(2, -1)
        torch.testing.assert_close(twice[2 * index : 2 * index + 2, 0], expected, rtol=0, atol=SCORES)
    torch.testing.assert_close(two, twice[[4, 0]], rtol=0, atol=SCORES)


@pytest.mark.parametrize(
    "options",
    [
        {"input_ids": torch.tensor([[3, 4, 5]]), "attention_mask": None},
        {"prefill_chunk_size": 4},
        {"use_cache": False},
        {"cache_implementation": "static"},
        {"cache_implementation": "offloaded"},
        {"output_hidden_states": True, "return_dict_in_generate": True},
        {"max_new_tokens": 20},  # more than the context
    ],
)
def test_unsupported_options_of_generate_raise(short_context: Engine, options: dict[str, Any]) -> None:
    with patch_generate(short_context, LAYOUTS) as inputs, pytest.raises(InputError):
        short_context.model.generate(**{**inputs, "max_new_tokens": 3, **options})


def test_labels_of_a_patched_model_raise(engine: Engine) -> None:
    model: Model = engine.model
    with patch_generate(engine, LAYOUTS) as inputs, pytest.raises(InputError, check=has_field("labels")):
        model(**inputs, labels=inputs["input_ids"])


@pytest.mark.parametrize(
    ("layouts", "method", "error"),
    [
        ([], "pine", InputError),
        ([LAYOUT], "pines", InputError),
        ([LAYOUT, TokenLayout((5,), (tuple(range(10, 90)) * 7,), (51,))], "pine", InputError),
        (LAYOUTS, "pine", ModelError),
    ],
    ids=["no prompt", "unknown method", "long prompt", "unsupported model"],
)
def test_invalid_arguments_raise_and_model_is_restored(
    model: Model, layouts: Any, method: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = state_of(model)
    if error is ModelError:
        monkeypatch.setattr("pine_engine.attention.model_validation.TOLERANCE", {torch.float64: -1.0})
    with pytest.raises(error), patch_generate(model, layouts, method=method):
        pass
    assert state_of(model) == before


# PEFT 0.21 reads an attribute that transformers has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")

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


compiled: Callable[[Model], Model] = functools.partial(torch.compile, backend="eager")


def compiled_in_place(model: Model) -> Model:
    model.compile(backend="eager")
    return model


WRAPPERS: dict[str, Callable[[Model], Model]] = {
    "peft": lora, "compiled": compiled, "compiled peft": lambda model: compiled(lora(model)),
    "peft of compiled": lambda model: lora(compiled(model)), "compiled in place": compiled_in_place,
}  # fmt: skip


def stock(model: Model, layout: TokenLayout = LAYOUT, **options: Any) -> tuple[int, ...]:
    ids = torch.tensor([layout.ids])
    return generated(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids), **options})


def generated(model: Model, inputs: dict[str, Any]) -> tuple[int, ...]:
    output = model.generate(**inputs, max_new_tokens=TOKENS, min_new_tokens=TOKENS, do_sample=False)
    return tuple(output[0, -TOKENS:].tolist())


def answered(model: Model, layout: TokenLayout = LAYOUT, method: str = "pine") -> tuple[int, ...]:
    with patch_generate(model, layout, method=method) as inputs:
        return generated(model, inputs)


def run(engine: Engine, layout: TokenLayout = LAYOUT, method: str = "pine") -> tuple[int, ...]:
    options: dict[str, Any] = {"methods": method, "max_new_tokens": TOKENS, "stop_at_eos": False}
    return engine.run(layout, **options).answers[method].token_ids


@pytest.mark.parametrize("wrap", first_daily(WRAPPERS.values()), ids=WRAPPERS)
def test_wrapped_model_is_order_invariant(model: Model, wrap: Callable[[Model], Model]) -> None:
    wrapped = wrap(model)
    assert {answered(wrapped, layout) for layout in ORDERS} == {run(Engine(wrapped))}


@pytest.mark.parametrize("name", first_daily(["peft", "compiled peft", "peft of compiled"]))
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
    config = peft.LoraConfig(r=2, target_modules=["o_proj"], init_lora_weights=False, **CAUSAL)
    model.add_adapter("other", config)
    model.set_adapter("other")


def _scale(model: Model) -> None:
    for layer in model.modules():
        if hasattr(layer, "set_scale"):
            layer.set_scale("default", 5.0)


def _merge(model: Model) -> None:
    model.merge_adapter()


@pytest.mark.parametrize(
    "change", first_daily([_switch, _disable, _scale, _merge, lambda model: model.unload()])
)
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
