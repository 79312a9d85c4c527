"""Batches of different prompts: every answer is the one its prompt gets alone."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from pine_engine.engine import passes
from pine_engine.engine.batch import generate_batch
from pine_engine.engine.engine import Engine
from pine_engine.engine.events import Answer
from pine_engine.errors import InputError
from pine_engine.methods.table import get_method
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.prompt import Piece, Prompt
from tests.support.tokenizers import letter_tokenizer

TinyLlama = Callable[..., LlamaForCausalLM]

LAYOUTS = [
    TokenLayout((5, 9), ((11, 12, 13), (21, 22, 23, 24, 25, 26)), (51,)),
    TokenLayout((5, 9, 60), ((11, 12, 13, 14), (21, 22), (31, 32, 33, 34, 35), (41,)), (51, 52, 53)),
    TokenLayout((7,), ((11, 12), (21,), (31, 32, 33, 34), (41, 42), (61, 62), (71,)), (52, 53, 54, 55)),
    TokenLayout((8, 3), (tuple(range(10, 40)),), (61, 62)),
    TokenLayout((6,), ((43, 44), (45,), (46, 47, 48)), (63,)),
]
"""Different numbers of documents, lengths, prefixes and suffixes."""

METHODS = ["pine", "vanilla", "pcw", "nia", "sp"]
"""One for each of LAYOUTS."""

KEPT_AS_FLOAT32 = 1e-5
"""Float64 models, but an answer's log-probabilities are taken in float32: of numbers up to about 10."""


@pytest.fixture
def engine(tiny_llama: TinyLlama) -> Engine:
    """Its answers end at different lengths."""
    return Engine(tiny_llama(dtype=torch.float64), stop_token_ids=frozenset(range(60, 75)))


def in_order(answers: dict[int, Answer]) -> list[Answer]:
    return [answers[index] for index in range(len(answers))]


def facts(answer: Answer) -> tuple[str, tuple[int, ...], tuple[float, ...], str]:
    """All of an answer but the times."""
    return answer.method, answer.token_ids, answer.logprobs, answer.finish_reason


@pytest.mark.parametrize("batch_size", [1, 3, 8])
@pytest.mark.parametrize("method", ["pine", METHODS])
def test_every_prompt_gets_the_answer_it_gets_alone(
    engine: Engine, method: str | list[str], batch_size: int
) -> None:
    options: dict[str, Any] = {"method": method, "max_new_tokens": 9, "batch_size": batch_size}
    answers = in_order(dict(generate_batch(engine, LAYOUTS, **options)))
    names = [method] * len(LAYOUTS) if isinstance(method, str) else method
    assert len({len(answer.token_ids) for answer in answers}) > 2
    for answer, layout, name in zip(answers, LAYOUTS, names, strict=True):
        alone = engine.run(layout, methods=[name], max_new_tokens=9).answers[name]
        assert (answer.method, answer.token_ids, answer.finish_reason, answer.text) == (
            name, alone.token_ids, alone.finish_reason, alone.text
        )  # fmt: skip
        assert answer.logprobs == pytest.approx(alone.logprobs, abs=KEPT_AS_FLOAT32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_neighbours_and_batch_size_change_no_bit(tiny_llama: TinyLlama, dtype: torch.dtype) -> None:
    engine = Engine(tiny_llama(dtype=dtype, head_dim=32), stop_token_ids=frozenset(range(60, 75)))
    options: dict[str, Any] = {"method": "pine", "max_new_tokens": 12}
    expected = [facts(answer) for answer in in_order(dict(generate_batch(engine, LAYOUTS, **options)))]
    assert len({len(ids) for _, ids, _, _ in expected}) > 2
    for batch_size in (2, 3, 16):
        answers = in_order(dict(generate_batch(engine, LAYOUTS, **options, batch_size=batch_size)))
        assert [facts(answer) for answer in answers] == expected
    backwards = in_order(dict(generate_batch(engine, LAYOUTS[::-1], **options)))
    assert [facts(answer) for answer in backwards[::-1]] == expected
    for layout, one in zip(LAYOUTS, expected, strict=True):
        assert [facts(alone) for _, alone in generate_batch(engine, [layout], **options)] == [one]


class Calls:
    """What the batch asks of an engine: "read", and how many rows each step has and how many are answers."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str | tuple[int, int]] = []
        prefill, extend = passes.prefill, passes.extend

        def read(*args: Any, **options: Any) -> Any:
            self.made.append("read")
            return prefill(*args, **options)

        def step(rows: Any, ids: Any, on_layer: Any, **options: Any) -> Tensor:
            assert torch.is_inference_mode_enabled()
            self.made.append((len(rows), sum(row is not None for row in rows)))
            return extend(rows, ids, on_layer, **options)

        monkeypatch.setattr(passes, "prefill", read)
        monkeypatch.setattr(passes, "extend", step)


def test_a_place_that_is_free_is_taken_by_the_next_prompt_and_kept_when_there_is_none(
    tiny_llama: TinyLlama, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(tiny_llama())
    ids = [
        answer.token_ids for answer in in_order(dict(generate_batch(engine, LAYOUTS[:3], max_new_tokens=4)))
    ]
    engine.stop_token_ids = frozenset([ids[1][1]])
    assert ids[1][1] not in (ids[1][0], *ids[0], *ids[2])
    calls = Calls(engine, monkeypatch)
    indices = [index for index, _ in generate_batch(engine, LAYOUTS[:3], max_new_tokens=4, batch_size=2)]
    assert indices == [1, 0, 2]
    assert calls.made == ["read", "read", (2, 2), "read", (2, 2), (2, 2), (2, 1)]


def test_nothing_is_read_before_it_is_asked_for_or_after_closing(
    tiny_llama: TinyLlama, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(tiny_llama())
    calls = Calls(engine, monkeypatch)
    answers = generate_batch(engine, LAYOUTS, max_new_tokens=3, batch_size=2)
    assert calls.made == []
    index, answer = next(answers)
    assert (index, len(answer.token_ids)) == (0, 3)
    made = ["read", "read", (2, 2), (2, 2)]
    assert calls.made == made
    assert not torch.is_inference_mode_enabled()  # the caller's code in between may train
    answers.close()
    assert list(answers) == []
    assert calls.made == made


def test_an_answer_of_one_token_or_none_needs_no_step(
    tiny_llama: TinyLlama, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(tiny_llama())
    calls = Calls(engine, monkeypatch)
    answers = dict(generate_batch(engine, LAYOUTS, max_new_tokens=1, batch_size=2))
    assert [len(answer.token_ids) for answer in answers.values()] == [1] * 5
    assert {(answer.finish_reason, answer.decode_s_per_token) for answer in answers.values()} == {
        ("length", 0)
    }
    assert calls.made == ["read"] * 5

    engine.stop_token_ids = frozenset(range(97))
    answers = dict(generate_batch(engine, LAYOUTS, max_new_tokens=4, batch_size=2))
    assert {(answer.token_ids, answer.finish_reason) for answer in answers.values()} == {((), "stop")}
    assert calls.made == ["read"] * 10
    assert dict(generate_batch(engine, [])) == {}


def test_seconds_are_those_of_reading_alone_and_of_a_step(engine: Engine) -> None:
    clock = iter(range(100))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pine_engine.engine.generation.time.perf_counter", lambda: float(next(clock)))
        answers = dict(generate_batch(Engine(engine.model), LAYOUTS, max_new_tokens=3))
    assert {(answer.prefill_s, answer.decode_s_per_token) for answer in answers.values()} == {(1.0, 1.0)}


def test_prompts_of_text_are_answered_with_text(tiny_llama: TinyLlama) -> None:
    engine = Engine(tiny_llama(), letter_tokenizer())
    prompt = Prompt((Piece("hi"),), ((Piece("abc"),), (Piece("de"),)), (Piece("who"),))
    ((_, answer),) = generate_batch(engine, [prompt], max_new_tokens=4)
    assert answer.text == engine.run(prompt, methods=["pine"], max_new_tokens=4).answers["pine"].text != ""


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"method": "pines"}, "unknown method 'pines'"),
        ({"method": ["pine"] * 3}, "3 methods were given for 5 prompts; give one name, or one for each"),
        ({"max_new_tokens": 0}, "the answer length is 0; give 1 or more"),
        ({"batch_size": 0}, "the batch size is 0; give 1 or more"),
        ({"max_new_tokens": 480}, "the prompt has 34 tokens and the answer may take 480"),
    ],
)
def test_what_cannot_be_answered_is_refused_before_anything_is_read(
    engine: Engine, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        generate_batch(engine, LAYOUTS, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_row_goes_on_alike_wherever_neighbours_have_ended(
    tiny_llama: TinyLlama, dtype: torch.dtype
) -> None:
    engine = Engine(tiny_llama(dtype=dtype))
    found = []
    for before in range(4):
        for after in range(1 if before == 0 else 0, 4):
            with torch.inference_mode():
                row, _ = passes.prefill(
                    engine.patched_models, LAYOUTS[0], get_method("pine"), room=1, logits_to_keep=1
                )
                logits = passes.extend([*[None] * before, row, *[None] * after], [[9]] * (before + 1 + after))
            found.append(logits[before])
    assert all(torch.equal(one, found[0]) for one in found) and found[0].any()
