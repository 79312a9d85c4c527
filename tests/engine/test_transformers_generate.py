"""A stock model's own generate under our methods: against transformers alone, the definition, the engine."""

import functools
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    CLIPVisionConfig,
    LlamaConfig,
    LlamaForCausalLM,
    LlavaConfig,
    LlavaForConditionalGeneration,
    StoppingCriteria,
)
from transformers.generation.streamers import BaseStreamer

from pine_engine.engine import passes
from pine_engine.engine import transformers_generate as stock
from pine_engine.engine.engine import Engine
from pine_engine.engine.transformers_generate import patch_generate
from pine_engine.errors import InputError, ModelError
from pine_engine.methods.table import METHODS
from pine_engine.prompts.layout import TokenLayout
from tests.support.reference import reference_logits
from tests.support.tokenizers import letter_tokenizer

Model = Any
"""A LlamaForCausalLM: what its generate is annotated to take and give is less than what it does."""

TinyLlama = Callable[..., Model]

LAYOUT = TokenLayout((5, 9, 60), ((11, 12, 13, 14), (21, 22), (31, 32, 33, 34, 35), (41,)), (51, 52, 53))
LAYOUTS = [
    TokenLayout((5, 9), ((11, 12, 13), (21, 22, 23, 24, 25, 26)), (51,)),
    LAYOUT,
    TokenLayout(
        (7,), ((11, 12), (21,), (31, 32, 33, 34), (41, 42), (61, 62), (71,), (81, 82)), (52, 53, 54, 55)
    ),
]
"""Different numbers of documents, lengths, prefixes and suffixes."""

END = 2
"""End of a sequence for the tiny models."""

SCORES = 1e-4
"""Float64 models, but transformers keeps scores in float32: sums of some ten numbers of about 5."""


@pytest.fixture
def model(tiny_llama: TinyLlama) -> Model:
    return tiny_llama(dtype=torch.float64, attn_implementation="sdpa")


def written(output: Tensor, inputs: dict[str, Tensor]) -> list[tuple[int, ...]]:
    """The new tokens of each sequence, up to the end of the sequence."""
    rows = output[:, inputs["input_ids"].shape[1] :].tolist()
    return [tuple(itertools.takewhile(lambda token: token != END, row)) for row in rows]


def padded(layouts: list[TokenLayout]) -> dict[str, Tensor]:
    """What a user of plain transformers would give to generate."""
    longest = max(layout.num_tokens for layout in layouts)
    rows = [[0] * (longest - layout.num_tokens) + list(layout.ids) for layout in layouts]
    masks = [[0] * (longest - layout.num_tokens) + [1] * layout.num_tokens for layout in layouts]
    return {"input_ids": torch.tensor(rows), "attention_mask": torch.tensor(masks)}


def everything_about(model: Model) -> dict[str, Any]:
    """What must be as before: settings, attributes and hooks of every module, and the logits."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([LAYOUT.ids])).logits
    return {
        "config": model.config.to_dict(),
        "generation": model.generation_config.to_dict(),
        "attention": model.config._attn_implementation,
        "attributes": [sorted(vars(module)) for module in model.modules()],
        "hooks": [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()],
        "forward": model.forward,
        "logits": logits.numpy().tobytes(),
    }


@pytest.mark.parametrize(("padding", "token"), [(7, 7), (None, 0)])
def test_prompts_are_padded_on_the_left(model: Model, padding: int | None, token: int) -> None:
    model.generation_config.pad_token_id = padding
    expected = padded(LAYOUTS)
    expected["input_ids"][expected["attention_mask"] == 0] = token
    with patch_generate(model, LAYOUTS) as inputs:
        assert {name: values.tolist() for name, values in inputs.items()} == {
            name: values.tolist() for name, values in expected.items()
        }


@pytest.mark.parametrize("method", METHODS)
def test_greedy_answers_of_several_prompts_are_the_engines(model: Model, method: str) -> None:
    with patch_generate(model, LAYOUTS, method=method) as inputs:
        output = model.generate(**inputs, max_new_tokens=8, do_sample=False)
    engine = Engine(model, stop_token_ids=frozenset([END]))
    alone = [engine.run(layout, methods=[method], max_new_tokens=8).answers[method] for layout in LAYOUTS]
    assert written(output, inputs) == [answer.token_ids for answer in alone]


@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 4, "num_return_sequences": 3},
        {"num_beams": 3, "do_sample": True, "length_penalty": 0.5},
        {"do_sample": True, "num_return_sequences": 4, "top_k": 20},
        {"do_sample": False, "repetition_penalty": 1.3},
    ],
    ids=["beams", "sampled beams", "samples", "greedy"],
)
@pytest.mark.parametrize("method", ["vanilla", "pine"])
def test_vanilla_and_any_method_with_one_document_are_transformers_own(
    model: Model, method: str, options: dict[str, Any]
) -> None:
    layouts = LAYOUTS
    if method == "pine":
        layouts = [TokenLayout(x.prefix, (sum(x.documents, ()),), x.suffix) for x in LAYOUTS]
    options |= {"max_new_tokens": 7, "output_scores": True, "return_dict_in_generate": True}
    torch.manual_seed(3)
    expected = model.generate(**padded(layouts), **options)
    with patch_generate(model, layouts, method=method) as inputs:
        torch.manual_seed(3)
        output = model.generate(**inputs, **options)
    assert output.sequences.tolist() == expected.sequences.tolist()
    for ours, own in zip(output.scores, expected.scores, strict=True):
        torch.testing.assert_close(ours, own, rtol=0, atol=SCORES)
    if "num_beams" in options:
        torch.testing.assert_close(output.sequences_scores, expected.sequences_scores, rtol=0, atol=SCORES)


def test_beams_of_pine_have_the_scores_of_the_definition(model: Model) -> None:
    options = {"max_new_tokens": 6, "min_new_tokens": 6, "length_penalty": 0.0, "num_beams": 4}
    with patch_generate(model, LAYOUTS) as inputs:
        output = model.generate(
            **inputs, **options, num_return_sequences=4, return_dict_in_generate=True, output_scores=True
        )
    rows = zip(written(output.sequences, inputs), output.sequences_scores.tolist(), strict=True)
    for index, (ids, score) in enumerate(rows):
        layout = LAYOUTS[index // 4]
        logits = reference_logits(model, layout.extend(ids[:-1]), "pine")[layout.num_tokens - 1 :]
        expected = logits.log_softmax(-1)[range(6), list(ids)].sum().item()
        assert score == pytest.approx(expected, abs=SCORES)
    best_two = output.sequences.view(3, 4, -1)[:, :2]
    assert not torch.equal(best_two[:, 0], best_two[:, 1])


def test_samples_are_drawn_from_the_methods_distribution(model: Model) -> None:
    with patch_generate(model, [LAYOUT]) as inputs:
        torch.manual_seed(5)
        output = model.generate(**inputs, max_new_tokens=5, do_sample=True, top_k=0, num_return_sequences=3)
    torch.manual_seed(5)
    answers: list[tuple[int, ...]] = [()] * 3
    for _ in range(5):
        logits = torch.stack([reference_logits(model, LAYOUT.extend(ids), "pine")[-1] for ids in answers])
        drawn = torch.multinomial(logits.float().softmax(-1), 1)[:, 0].tolist()
        answers = [(*ids, token) for ids, token in zip(answers, drawn, strict=True)]
    assert written(output, inputs) == answers
    assert len(set(answers)) == 3


@pytest.mark.parametrize("method", ["pcw", "pine"])
@pytest.mark.parametrize("options", [{}, {"num_beams": 3}], ids=["greedy", "beams"])
def test_order_changes_no_bit(tiny_llama: TinyLlama, method: str, options: dict[str, Any]) -> None:
    # From 12 rows on, every row of a float32 product is summed alike on the CPU; see docs/exactness.md.
    model = tiny_llama(head_dim=32)
    layouts = [TokenLayout(tuple(range(60, 72)), layout.documents, layout.suffix) for layout in LAYOUTS]
    orders = [layouts, [layout.reorder(range(layout.num_documents)[::-1]) for layout in layouts]]

    def logits(layouts: list[TokenLayout], method: str) -> Any:
        with patch_generate(model, layouts, method=method) as inputs:
            output = model.generate(
                **inputs, **options, max_new_tokens=5, return_dict_in_generate=True, output_logits=True
            )
        return output.logits

    for one, other in zip(*(logits(layouts, method) for layouts in orders), strict=True):
        assert torch.equal(one, other)
    control = [logits(layouts, "vanilla")[0] for layouts in orders]
    assert (control[0] - control[1]).abs().max() > 1e-3


def test_the_readmes_example_answers_both_orders_alike(
    tiny_llama: TinyLlama, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```py\n(.*?)```", readme, re.DOTALL)
    layout = TokenLayout(LAYOUT.prefix, LAYOUT.documents[:2], LAYOUT.suffix)
    engine = Engine(tiny_llama(seed=1), letter_tokenizer())
    names: dict[str, Any] = {"model": tiny_llama(), "engine": engine, "layout": layout}
    exec(compile(code, "README.md", "exec"), names)
    one, other = written(names["output"], names["inputs"])
    assert one == other != ()
    assert {"0", "1"} <= {line.split(" ")[0] for line in capsys.readouterr().out.splitlines()}


class UsersError(RuntimeError):
    """What the user's own code raises."""


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_the_model_is_as_before_also_after_an_error(
    tiny_llama: TinyLlama, implementation: str, wrapped: bool
) -> None:
    model = tiny_llama(attn_implementation=implementation)
    given: Any = Engine(model) if wrapped else model
    before = everything_about(model)
    with patch_generate(given, LAYOUTS) as inputs:
        model.generate(**inputs, max_new_tokens=2, num_beams=2)
        assert model.config._attn_implementation == implementation
    assert everything_about(model) == before
    with pytest.raises(UsersError), patch_generate(given, LAYOUTS) as inputs:
        model.generate(**inputs, max_new_tokens=2)
        raise UsersError
    assert everything_about(model) == before


def test_a_refused_model_and_one_with_a_forward_of_its_own_are_as_before(
    tiny_llama: TinyLlama, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_llama(attn_implementation="sdpa")
    plain = model.forward
    model.forward = functools.wraps(plain)(lambda *args, **options: plain(*args, **options))  # as accelerate
    before = everything_about(model)
    with patch_generate(model, LAYOUTS) as inputs:
        model.generate(**inputs, max_new_tokens=2)
    assert everything_about(model) == before
    model.config.attn_logit_softcapping = 0.02
    monkeypatch.setattr("pine_engine.attention.model_validation.TOLERANCE", {torch.float32: -1.0})
    with pytest.raises(ModelError), patch_generate(model, LAYOUTS):
        pass
    del model.config.attn_logit_softcapping
    assert everything_about(model) == before


def test_a_model_answers_in_one_place_at_a_time(model: Model, tiny_llama: TinyLlama) -> None:
    other = tiny_llama(seed=1)
    with patch_generate(model, LAYOUTS) as inputs:
        expected = model.generate(**inputs, max_new_tokens=4)
        sentence = "inside another `with patch_generate.*already; leave that one first"
        with pytest.raises(InputError, match=sentence), patch_generate(model, [LAYOUT]):
            pass
        with patch_generate(other, [LAYOUT]) as theirs:
            other.generate(**theirs, max_new_tokens=4)
        assert model.generate(**inputs, max_new_tokens=4).tolist() == expected.tolist()


def test_a_model_that_is_partly_on_disk_answers_alike(model: Model, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    places = dict.fromkeys(["model.layers.0", "model.layers.1", "model.norm", "model.rotary_emb"], "cpu")
    parts: Model = LlamaForCausalLM.from_pretrained(
        tmp_path,
        device_map={**places, "model.embed_tokens": "disk", "lm_head": "disk"},
        offload_folder=tmp_path / "disk",
        dtype=torch.float64,
    )
    assert parts.device.type == "meta"
    answers = []
    models: tuple[Model, ...] = (model, parts)
    for each in models:
        forward = each.forward
        with patch_generate(each, LAYOUTS) as inputs:
            answers.append(each.generate(**inputs, max_new_tokens=5, num_beams=3).tolist())
        assert each.forward == forward
    assert answers[0] == answers[1]


def test_an_engine_is_entered_without_a_proof_and_goes_on_working(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(model, stop_token_ids=frozenset([END]))
    before = engine.run(LAYOUT, max_new_tokens=4)
    monkeypatch.delattr("pine_engine.engine.prepared_model.validate_model")
    with patch_generate(engine, [LAYOUT]) as inputs:
        output = model.generate(**inputs, max_new_tokens=4)
        inside = engine.run(LAYOUT, max_new_tokens=4)
    assert written(output, inputs) == [before.answers["pine"].token_ids]
    for method, answer in before.answers.items():
        assert inside.answers[method].logprobs == answer.logprobs


def test_parts_of_a_model_get_their_own_attention_back() -> None:
    attention: dict[str, Any] = {"attn_implementation": {"text_config": "sdpa", "vision_config": "eager"}}
    config = LlavaConfig(
        text_config=LlamaConfig(
            vocab_size=97, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            initializer_range=0.2, pad_token_id=0, eos_token_id=END,
        ),
        vision_config=CLIPVisionConfig(
            hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, image_size=8,
            patch_size=4,
        ),
        image_token_index=96,
        **attention,
    )  # fmt: skip
    torch.manual_seed(0)
    model = LlavaForConditionalGeneration(config).eval()
    expected = model.generate(**padded([LAYOUT]), max_new_tokens=5)
    with patch_generate(model, [LAYOUT], method="vanilla") as inputs:
        assert model.generate(**inputs, max_new_tokens=5).tolist() == expected.tolist()
    assert model.config.text_config._attn_implementation == "sdpa"
    assert model.config.vision_config._attn_implementation == "eager"


class Collected(BaseStreamer):
    """Keeps what generate streams."""

    def __init__(self) -> None:
        self.values: list[int] = []

    def put(self, value: Tensor) -> None:
        self.values += value.flatten().tolist()

    def end(self) -> None:
        self.values.append(-1)


class After(StoppingCriteria):
    """Stops when every sequence has this many tokens."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
        return torch.full((len(input_ids),), input_ids.shape[1] >= self.length)


def test_streamers_and_stopping_criteria_are_transformers_own(model: Model) -> None:
    streamer = Collected()
    with patch_generate(model, [LAYOUT]) as inputs:
        output = model.generate(
            **inputs, max_new_tokens=9, streamer=streamer, stopping_criteria=[After(LAYOUT.num_tokens + 4)]
        )
    assert output.shape == (1, LAYOUT.num_tokens + 4)
    assert streamer.values == [*output[0].tolist(), -1]


def test_a_prompt_is_read_once_however_often_generate_is_called(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []
    prefill = passes.prefill
    engine = Engine(model)

    def counted(*args: Any, **options: Any) -> Any:
        reads.append(1)
        return prefill(*args, **options)

    monkeypatch.setattr(passes, "prefill", counted)
    with patch_generate(engine, LAYOUTS) as inputs:
        first = model.generate(**inputs, max_new_tokens=6)
        beams = model.generate(**inputs, max_new_tokens=6, num_beams=3)
        again = model.generate(**inputs, max_new_tokens=6)
    assert len(reads) == len(LAYOUTS)
    assert first.tolist() == again.tolist()
    assert beams.shape[0] == len(LAYOUTS)


@pytest.mark.parametrize("options", [{"do_sample": False}, {"num_beams": 3}], ids=["greedy", "beams"])
def test_long_answers_find_room(
    model: Model, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    def answers() -> Any:
        with patch_generate(model, LAYOUTS) as inputs:
            return model.generate(**inputs, max_new_tokens=20, **options).tolist()

    expected = answers()
    monkeypatch.setattr(stock, "ROOM", 2)
    assert answers() == expected


def test_prompt_lookup_writes_the_greedy_answer(model: Model) -> None:
    fed = []
    extend = passes.extend

    def counted(rows: Any, ids: Any, **options: Any) -> Tensor:
        fed.append(len(ids[0]))
        return extend(rows, ids, **options)

    # The suffix is part of a document, so candidates come with the prompt already.
    layout = TokenLayout(LAYOUT.prefix, LAYOUT.documents, LAYOUT.documents[2][:3])
    with patch_generate(model, [layout]) as inputs:
        expected = model.generate(**inputs, max_new_tokens=30, min_new_tokens=30)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(passes, "extend", counted)
            output = model.generate(
                **inputs, max_new_tokens=30, min_new_tokens=30, prompt_lookup_num_tokens=3
            )
    assert output.tolist() == expected.tolist()
    assert max(fed) > 1


def test_a_cache_that_is_returned_can_be_repeated_and_selected(model: Model) -> None:
    options = {"max_new_tokens": 3, "return_dict_in_generate": True, "min_new_tokens": 3}
    model.requires_grad_(True)  # calls that generate does not make keep no graph either
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


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"input_ids": torch.tensor([[3, 4, 5]]), "attention_mask": None},
        r"\(1, 3\) tokens that are not the 3 prompts",
    ),
    ({"prefill_chunk_size": 4}, "that are not the 3 prompts of"),
    ({"use_cache": False}, "generate without use_cache=False"),
    ({"cache_implementation": "static"}, "got a StaticCache; call generate without"),
    ({"cache_implementation": "offloaded"}, "got a DynamicCache; call generate without"),
    (
        {"output_hidden_states": True, "return_dict_in_generate": True},
        "called with output_hidden_states, which cannot be had",
    ),
    ({"max_new_tokens": 20}, "the prompt has 19 tokens and the answer may take 14, but the model reads 32"),
]


@pytest.mark.parametrize(("options", "sentence"), REFUSED)
def test_what_cannot_be_served_is_refused(
    tiny_llama: TinyLlama, options: dict[str, Any], sentence: str
) -> None:
    model = tiny_llama(max_context_length=32)
    with patch_generate(model, LAYOUTS) as inputs, pytest.raises(InputError, match=sentence):
        model.generate(**{**inputs, "max_new_tokens": 3, **options})


def test_a_loss_is_refused(model: Model) -> None:
    with (
        patch_generate(model, LAYOUTS) as inputs,
        pytest.raises(InputError, match="called with labels, which"),
    ):
        model(**inputs, labels=inputs["input_ids"])


def test_no_prompt_a_long_one_and_an_unknown_method_are_refused(model: Model) -> None:
    too_long = TokenLayout((5,), (tuple(range(10, 90)) * 7,), (51,))
    for layouts, method, sentence in (
        ([], "pine", "no prompts were given; give at least one token layout"),
        ([LAYOUT], "pines", "unknown method 'pines'"),
        ([LAYOUT, too_long], "pine", "the prompt has 562 tokens"),
    ):
        before = everything_about(model)
        with pytest.raises(InputError, match=sentence), patch_generate(model, layouts, method=method):
            pass
        assert everything_about(model) == before
