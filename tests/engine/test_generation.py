"""The decode loop: batches, and logits that are not finite."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

import pine_engine as pine
from pine_engine import Engine, InputError, ModelError, TokenLayout
from pine_engine.attention.forward import batch_caches
from pine_engine.engine import generation, passes
from pine_engine.engine.generation import check_finite
from pine_engine.lab.evaluation.record import Record
from pine_engine.prompts.examples import Example
from tests.engine.conftest import LAYOUT, LAYOUTS
from tests.support.families import TinyLlama
from tests.support.measured_rows import measure
from tests.support.native_gemm import skip_unless_batch_invariant
from tests.support.tiers import first_daily
from tests.support.tokenizers import letter_tokenizer

PROMPTS = [
    *LAYOUTS,
    TokenLayout((8, 3), (tuple(range(10, 40)),), (61, 62)),
    TokenLayout((6,), ((43, 44), (45,), (46, 47, 48)), (63,)),
]
MIXED = ["pine", "vanilla", "pcw", "nia", "sp"]

STOP = frozenset(range(60, 75))

FLOAT32_LOGPROBS = 1e-5
"""Log-probabilities of a float64 model are computed in float32, from logits up to about 10."""


def batch(engine: Engine, layouts: list[TokenLayout] = PROMPTS, **options: Any) -> list[pine.Answer]:
    answers = dict(pine.generate_batch(engine, layouts, **options))
    return [answers[index] for index in range(len(layouts))]


def facts(answer: pine.Answer) -> tuple[str, tuple[int, ...], tuple[float, ...], str]:
    return answer.method, answer.token_ids, answer.logprobs, answer.finish_reason


@pytest.fixture(scope="module")
def stopping(tiny_llama: TinyLlama) -> Engine:
    return Engine(tiny_llama(dtype=torch.float64), stop_token_ids=STOP)


@pytest.mark.parametrize("batch_size", [1, 3, 8])
@pytest.mark.parametrize("method", ["pine", MIXED])
def test_batch_equals_single_runs(stopping: Engine, method: str | list[str], batch_size: int) -> None:
    answers = batch(stopping, method=method, max_new_tokens=9, batch_size=batch_size)
    names = [method] * len(PROMPTS) if isinstance(method, str) else method
    assert len({len(answer.token_ids) for answer in answers}) > 2
    for answer, layout, name in zip(answers, PROMPTS, names, strict=True):
        alone = stopping.run(layout, methods=[name], max_new_tokens=9).answers[name]
        assert (answer.method, answer.token_ids, answer.finish_reason) == (
            name, alone.token_ids, alone.finish_reason
        )  # fmt: skip
        assert answer.logprobs == pytest.approx(alone.logprobs, abs=FLOAT32_LOGPROBS)


@pytest.mark.parametrize("dtype", first_daily([torch.float32, torch.bfloat16]))
def test_answers_are_identical_in_any_batch(tiny_llama: TinyLlama, dtype: torch.dtype) -> None:
    skip_unless_batch_invariant(dtype)
    engine = Engine(tiny_llama(dtype=dtype, head_dim=32), stop_token_ids=STOP)
    expected = [facts(answer) for answer in batch(engine, max_new_tokens=12)]
    for batch_size in (2, 3):
        answers = batch(engine, max_new_tokens=12, batch_size=batch_size)
        assert [facts(answer) for answer in answers] == expected
    backwards = batch(engine, PROMPTS[::-1], max_new_tokens=12)
    assert [facts(answer) for answer in backwards[::-1]] == expected
    assert [facts(*batch(engine, [layout], max_new_tokens=12)) for layout in PROMPTS] == expected


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    made: list[Any] = []
    prefill, extend = passes.prefill, passes.extend

    def count_prefill(*args: Any, **options: Any) -> Any:
        made.append("prefill")
        return prefill(*args, **options)

    def count_step(rows: Any, *args: Any, **options: Any) -> Tensor:
        assert torch.is_inference_mode_enabled()
        made.append((len(rows), sum(row is not None for row in rows)))
        return extend(rows, *args, **options)

    def count_stack(rows: Any) -> None:
        made.append(len(rows))
        batch_caches(rows)

    monkeypatch.setattr(generation, "batch_caches", count_stack)
    monkeypatch.setattr(passes, "prefill", count_prefill)
    monkeypatch.setattr(passes, "extend", count_step)
    return made


def test_free_slot_is_refilled_and_kept(tiny_llama: TinyLlama, calls: list[Any]) -> None:
    engine = Engine(tiny_llama())
    ids = [answer.token_ids for answer in batch(engine, LAYOUTS[:3], max_new_tokens=4)]
    engine.stop_token_ids = frozenset([ids[1][1]])
    assert ids[1][1] not in (ids[1][0], *ids[0], *ids[2])
    calls.clear()
    indices = [index for index, _ in pine.generate_batch(engine, LAYOUTS[:3], max_new_tokens=4, batch_size=2)]
    assert indices == [1, 0, 2]
    assert calls == ["prefill", "prefill", 2, (2, 2), "prefill", 2, (2, 2), (2, 2), (2, 1)]


def test_batch_is_lazy_and_stops_when_closed(tiny_llama: TinyLlama, calls: list[Any]) -> None:
    engine = Engine(tiny_llama())
    calls.clear()
    with pytest.raises(InputError):  # at the call, before the first answer is requested
        pine.generate_batch(engine, PROMPTS, max_new_tokens=0)
    answers = pine.generate_batch(engine, PROMPTS, max_new_tokens=3, batch_size=2)
    assert calls == []
    index, answer = next(answers)
    assert (index, len(answer.token_ids)) == (0, 3)
    made = ["prefill", "prefill", 2, (2, 2), (2, 2)]
    assert calls == made and not torch.is_inference_mode_enabled()
    answers.close()
    assert list(answers) == [] and calls == made


@pytest.mark.parametrize(("stop_ids", "tokens", "reason"), [((), 1, "length"), (range(97), 0, "stop")])
def test_answers_below_two_tokens_need_no_step(
    tiny_llama: TinyLlama, calls: list[Any], stop_ids: Any, tokens: int, reason: str
) -> None:
    engine = Engine(tiny_llama(), stop_token_ids=stop_ids)
    calls.clear()
    answers = batch(engine, max_new_tokens=1, batch_size=2)
    found = {(len(one.token_ids), one.finish_reason, one.decode_s_per_token) for one in answers}
    assert found == {(tokens, reason, 0)}
    assert calls == ["prefill"] * 5


def test_seconds_are_of_prefill_and_step(tiny_llama: TinyLlama, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(tiny_llama())
    clock = iter(range(100))
    monkeypatch.setattr("pine_engine.engine.generation.time.perf_counter", lambda: float(next(clock)))
    assert {(one.prefill_s, one.decode_s_per_token) for one in batch(engine, max_new_tokens=3)} == {(1, 1)}
    options: dict[str, Any] = {"methods": ["vanilla", "pine"], "max_new_tokens": 3, "stop_at_eos": False}
    rows = engine.shuffle(LAYOUT, count=3, **options).results
    answers = [answer for row in rows for answer in row.result.answers.values()]
    assert {(one.prefill_s, one.decode_s_per_token) for one in answers} == {(1, 1), (0.5, 0.5)}


WITHOUT_52 = TokenLayout((5,), ((61, 62), (63,)), (64,))


@pytest.fixture(scope="module")
def engine(tiny_llama: TinyLlama) -> Engine:
    return Engine(tiny_llama(head_dim=32), letter_tokenizer())


@contextmanager
def broken(engine: Engine, token: int, value: float = math.nan) -> Iterator[None]:
    weight: Any = engine.model.get_input_embeddings().weight
    before = weight[token].clone()
    weight[token] = value
    try:
        yield
    finally:
        weight[token] = before


ATTEMPTS: dict[str, Callable[[Engine], Any]] = {
    "run": lambda engine: engine.run(LAYOUT, max_new_tokens=0),
    "generate": lambda engine: list(engine.generate(LAYOUT, max_new_tokens=2)),
    "score": lambda engine: engine.score(LAYOUT, ["ab"]),
    "orders": lambda engine: list(pine.compare_orders(engine, LAYOUT, orders=[[0, 1, 2, 3]])),
    "sweep": lambda engine: list(pine.sweep_document(engine, LAYOUT, document=0, answer="ab")),
}


@pytest.mark.parametrize(("attempt", "value"), [*((name, math.nan) for name in ATTEMPTS), ("run", math.inf)])
def test_nonfinite_prefill_raises(engine: Engine, attempt: str, value: float) -> None:
    with broken(engine, 52, value), pytest.raises(ModelError, match=r"^under \w+ .* first token"):
        ATTEMPTS[attempt](engine)
    ATTEMPTS[attempt](engine)


def test_nonfinite_step_raises_with_number(engine: Engine) -> None:
    options: dict[str, Any] = {"methods": ["pine"], "stop_at_eos": False}
    ids = engine.run(LAYOUT, max_new_tokens=5, **options).answers["pine"].token_ids
    step = next(step for step in range(1, 5) if ids[step] not in (*LAYOUT.ids, *ids[:step]))
    with broken(engine, ids[step]):
        with pytest.raises(ModelError, match=f"after {step + 1} tokens"):
            engine.run(LAYOUT, max_new_tokens=step + 2, **options)
        answer = engine.run(LAYOUT, max_new_tokens=step + 1, **options).answers["pine"]
    assert answer.token_ids == ids[: step + 1]


def test_nonfinite_score_raises_unless_last_token(engine: Engine) -> None:
    _, second, last = engine.tokenize_answer("abc")
    with broken(engine, second), pytest.raises(ModelError, match="after 1 tokens"):
        engine.score(LAYOUT, ["abc"], methods=["pine"])
    with broken(engine, last):  # the model does not process it
        assert math.isfinite(engine.score(LAYOUT, ["abc"], methods=["pine"])["pine"][0].total)


def test_batch_answers_other_prompts_before_error(engine: Engine) -> None:
    prompts = [LAYOUTS[0], LAYOUT.extend([90]), WITHOUT_52, LAYOUT.extend([90, 91])]
    expected = [answer.token_ids for answer in batch(engine, [prompts[0], prompts[2]], max_new_tokens=4)]
    answers = {}
    with broken(engine, 90), pytest.raises(ModelError, match="by index: 1, 3; under pine"):
        for index, answer in pine.generate_batch(engine, prompts, max_new_tokens=4, batch_size=2):
            answers[index] = answer.token_ids
    assert answers == {0: expected[0], 2: expected[1]}


def test_nonfinite_patched_generate_raises(engine: Engine) -> None:
    model: Any = engine.model
    with (
        broken(engine, 52),
        pine.patch_generate(engine, [WITHOUT_52, LAYOUT]) as inputs,
        pytest.raises(ModelError, match=r"^under pine .* of sequence 1 for the first token"),
    ):
        model.generate(**inputs, max_new_tokens=3)
    with pine.patch_generate(engine, WITHOUT_52) as inputs:
        ids = model.generate(**inputs, max_new_tokens=1, do_sample=False)[:, -1].tolist()
        with broken(engine, ids[0]), pytest.raises(ModelError, match="after 1 tokens"):
            model.generate(**inputs, max_new_tokens=3, do_sample=False, eos_token_id=None)


def test_measured_example_with_nonfinite_logits_has_error(engine: Engine) -> None:
    row = {"id": "x", "task": "retrieval_qa", "question": "Who?", "answers": ["b"]}
    examples = [Example.model_validate(row | {"documents": [{"text": text}]}) for text in ("aZ", "a")]
    (token,) = engine.tokenize_answer("Z")
    for outputs in ("generate", "logprobs"):
        options: dict[str, Any] = {name: name == outputs for name in ("generate", "logprobs")}
        with broken(engine, token):
            measured = measure(engine, examples, **options, methods=["pine"], max_new_tokens=2)
            records = [item for item in measured if isinstance(item, Record)]
        assert [bool(record.error) for record in records] == [True, False]
        assert records[0].text is None and records[0].answer_logprob is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_nonfinite_error_advises_larger_dtype(dtype: torch.dtype) -> None:
    logits = torch.zeros(2, 5, dtype=dtype)
    logits[0, 3] = -math.inf  # excludes a token
    check_finite(logits, "pine", 0)
    for value in (math.nan, math.inf):
        logits[1, 3] = value
        with pytest.raises(ModelError) as raised:
            check_finite(logits, "pine", 0)
        assert ("Load it in" in str(raised.value)) == (dtype != torch.float32)
    with pytest.raises(ModelError):
        check_finite(torch.full((3,), -math.inf), "pine", 0)
