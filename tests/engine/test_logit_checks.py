"""Models whose logits are NaN or infinite: a sentence wherever a token is chosen or scored, never token 0."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from pine_engine.debias.calibration import calibrate_labels, generate_calibrated
from pine_engine.debias.permutation import permute_options
from pine_engine.engine.batch import generate_batch
from pine_engine.engine.engine import Engine
from pine_engine.engine.events import GenerationFinished
from pine_engine.engine.generation import check_finite
from pine_engine.engine.orders import compare_orders
from pine_engine.engine.transformers_generate import patch_generate
from pine_engine.errors import ModelError
from pine_engine.evaluation.examples import Example
from pine_engine.evaluation.measure import measure
from pine_engine.evaluation.records import Record
from pine_engine.invariance.position_sweep import sweep_document
from pine_engine.methods.table import METHODS
from pine_engine.prompts.inputs import DataRow
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.prompt import Document
from tests.support.running import one_run, told
from tests.support.tokenizers import letter_tokenizer
from viz.page.answers.answering import answer
from viz.page.form.documents import entries_from
from viz.page.form.form import Form
from viz.page.jobs.loading import EngineSource

LAYOUT = TokenLayout((5, 9, 60), ((11, 12, 13, 14), (21, 22), (31, 32, 33)), (51, 52, 53))
OTHERS = [LAYOUT.reorder([1, 2, 0]), TokenLayout((5,), ((61, 62), (63,)), (64,))]

FIRST = (
    "the model's logits{} for the first token of the answer are not finite numbers, in float32; its weights"
)


@pytest.fixture
def engine(tiny_llama: Callable[..., LlamaForCausalLM]) -> Engine:
    """Weights of one token will be NaN in it, so that prompts without this token are answered."""
    return Engine(tiny_llama(head_dim=32), letter_tokenizer())


@contextmanager
def broken(engine: Engine, token: int, value: float = math.nan) -> Iterator[None]:
    """The engine with an embedding of that token that is no number."""
    weight: Any = engine.model.get_input_embeddings().weight
    own = weight[token].clone()
    weight[token] = value
    try:
        yield
    finally:
        weight[token] = own


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("method", METHODS)
def test_a_run_ends_with_a_sentence(engine: Engine, method: str, value: float) -> None:
    with broken(engine, 52, value):
        with pytest.raises(ModelError) as raised:
            engine.run(LAYOUT, methods=[method], max_new_tokens=3)
        assert str(raised.value).startswith(f"under {method} {FIRST.format('')}")
        with pytest.raises(ModelError, match=f"^under {method} "):
            list(engine.generate(LAYOUT, methods=[method], max_new_tokens=3))
        with pytest.raises(ModelError, match=f"^under {method} "):
            engine.score(LAYOUT, ["ab"], methods=[method])
    assert engine.run(LAYOUT, methods=[method], max_new_tokens=3, stop_at_eos=False).answers[method].token_ids


def test_a_run_that_only_reads_ends_with_it_too(engine: Engine) -> None:
    with broken(engine, 51), pytest.raises(ModelError, match="^under pine " + FIRST.format("")):
        engine.run(LAYOUT, methods="pine", max_new_tokens=0, return_logits=True)


def test_the_step_is_named_when_it_comes_later(engine: Engine) -> None:
    options: dict[str, Any] = {"methods": ["pine"], "max_new_tokens": 5, "stop_at_eos": False}
    ids = engine.run(LAYOUT, **options).answers["pine"].token_ids
    second = next(step for step in range(1, 5) if ids[step] not in (*LAYOUT.ids, *ids[:step]))
    with broken(engine, ids[second]):
        with pytest.raises(ModelError) as raised:
            engine.run(LAYOUT, **options | {"max_new_tokens": second + 2})
        assert f"the model's logits after {second + 1} tokens of the answer are" in str(raised.value)
        assert (
            engine.run(LAYOUT, **options | {"max_new_tokens": second + 1}).answers["pine"].token_ids
            == (ids[: second + 1])
        )


def test_a_given_answer_whose_later_tokens_break_the_model_is_not_scored(engine: Engine) -> None:
    letters = engine.tokenize_answer("abc")
    with (
        broken(engine, letters[1]),
        pytest.raises(ModelError, match="after 1 tokens of the answer are not finite"),
    ):
        engine.score(LAYOUT, ["abc"], methods=["pine"])
    with broken(engine, letters[2]):  # the last token of an answer is never read
        assert math.isfinite(engine.score(LAYOUT, ["abc"], methods=["pine"])["pine"][0].total)


def test_the_other_prompts_of_a_batch_are_answered_first(engine: Engine) -> None:
    prompts = [OTHERS[0], LAYOUT.extend([90]), OTHERS[1], LAYOUT.extend([90, 91])]
    expected = [engine.run(prompts[index], methods=["pine"], max_new_tokens=4).answers["pine"].token_ids
                for index in (0, 2)]  # fmt: skip
    answers = {}
    with broken(engine, 90), pytest.raises(ModelError) as raised:
        for index, answer in generate_batch(engine, prompts, max_new_tokens=4, batch_size=2):
            answers[index] = answer.token_ids
    assert answers == {0: expected[0], 2: expected[1]}
    assert str(raised.value).startswith(
        f"prompts without an answer, by index: 1, 3; under pine {FIRST.format('')}"
    )


def test_generate_of_transformers_ends_with_a_sentence_too(engine: Engine) -> None:
    layouts = [OTHERS[1], LAYOUT]
    model: Any = engine.model
    for method in ("vanilla", "pine"):
        with broken(engine, 52), patch_generate(engine, layouts, method=method) as inputs:
            with pytest.raises(ModelError) as raised:
                model.generate(**inputs, max_new_tokens=3)
            assert str(raised.value).startswith(f"under {method} {FIRST.format(' of sequence 1')}")
    with patch_generate(engine, layouts[0]) as inputs:  # its prompt does not hold the token that it answers
        ids = model.generate(**inputs, max_new_tokens=1, do_sample=False)[:, -1].tolist()
        with broken(engine, ids[0]), pytest.raises(ModelError, match="after 1 tokens of the answer"):
            model.generate(**inputs, max_new_tokens=3, do_sample=False, eos_token_id=None)


def test_wrappers_and_comparisons_end_with_a_sentence(engine: Engine) -> None:
    free = [TokenLayout(LAYOUT.prefix, ((7,), (7,), (7,)), LAYOUT.suffix)]
    tries: list[Callable[[], Any]] = [
        lambda: calibrate_labels(engine, LAYOUT, ["A", "B"], content_free=free),
        lambda: generate_calibrated(engine, LAYOUT, content_free=free, steps="every", max_new_tokens=3),
        lambda: generate_calibrated(engine, LAYOUT, content_free=free, steps="first", max_new_tokens=3),
        lambda: permute_options(engine, LAYOUT, ["A", "B", "C"], orders=[(0, 1, 2), (2, 0, 1)]),
        lambda: compare_orders(engine, LAYOUT, orders=[[0, 1, 2]]),
        lambda: sweep_document(engine, LAYOUT, document=0, answer="ab"),
    ]
    for attempt in tries:
        with broken(engine, 52), pytest.raises(ModelError, match=r"^under \w+ the model's logits"):
            list(attempt())
    ids = engine.run(LAYOUT, methods=["vanilla"], max_new_tokens=1, stop_at_eos=False).answers["vanilla"]
    steps = generate_calibrated(engine, LAYOUT, content_free=[LAYOUT], steps="first", max_new_tokens=3)
    first = next(event for event in steps if isinstance(event, GenerationFinished)).answer.token_ids[0]
    assert ids.token_ids and first not in LAYOUT.ids
    with broken(engine, first), pytest.raises(ModelError, match="after 1 tokens of the answer"):
        list(generate_calibrated(engine, LAYOUT, content_free=[LAYOUT], steps="first", max_new_tokens=3))


def test_a_measured_example_becomes_a_record_with_the_sentence(engine: Engine) -> None:
    row = DataRow(
        id="x",
        task="retrieval_qa",
        question="Who?",
        documents=[Document(text="a"), Document(text="bZ")],
    )
    good = row.model_copy(update={"id": "y", "documents": row.documents[:1]})
    examples = [Example(**each.model_dump(), answers=["b"]) for each in (row, good)]
    (token,) = {*engine.tokenize_answer("Z")}
    for generate, logprobs in ((True, True), (True, False), (False, True)):
        options: dict[str, Any] = {"methods": ["vanilla", "pine"], "max_new_tokens": 2}
        with broken(engine, token):
            measured = measure(engine, examples, generate=generate, logprobs=logprobs, **options)
            records = [item for item in measured if isinstance(item, Record)]
        assert [(record.example, record.method) for record in records if record.error] == [
            ("x", "vanilla"), ("x", "pine")
        ]  # fmt: skip
        for record in records[:2]:
            assert record.error is not None
            assert record.error.startswith(f"under {record.method} the model's logits")
            assert record.text is None and record.answer_logprob is None
        assert len(records) == 4


@pytest.mark.parametrize(
    ("dtype", "advice"),
    [
        (torch.float16, "load it in bfloat16 or float32, whose range is larger"),
        (torch.bfloat16, "load it in float32"),
        (
            torch.float32,
            "its weights may be damaged, or too large for this prompt: try another model or dtype",
        ),
    ],
)
def test_another_dtype_is_advised(dtype: torch.dtype, advice: str) -> None:
    logits = torch.zeros(2, 5, dtype=dtype)
    logits[1, 3] = math.nan
    with pytest.raises(ModelError) as raised:
        check_finite(logits, "sp", 0)
    assert str(raised.value).endswith(f", in {str(dtype).removeprefix('torch.')}; {advice}")


def test_tokens_that_a_model_rules_out_are_no_failure() -> None:
    logits = torch.tensor([0.5, -math.inf, 0.1])
    check_finite(logits, "pine", 0)
    for value in (-math.inf, math.inf, math.nan):
        logits = torch.full((3,), value)
        with pytest.raises(ModelError):
            check_finite(logits, "pine", 0)


def test_a_model_that_overflows_in_float16_is_said(tiny_llama: Callable[..., LlamaForCausalLM]) -> None:
    """The real thing: activations beyond 65,504, which bfloat16 and float32 hold."""
    model = tiny_llama(dtype=torch.float32)
    engine = Engine(model)
    model.lm_head.weight *= 3e5
    expected = engine.run(LAYOUT, methods=["pine"], max_new_tokens=2, stop_at_eos=False).answers["pine"]
    half = Engine(tiny_llama(dtype=torch.float16))
    half.model.lm_head.weight *= 2e4
    with pytest.raises(ModelError, match="in float16; load it in bfloat16 or float32"):
        half.run(LAYOUT, methods=["pine"], max_new_tokens=2)
    assert expected.token_ids


def test_the_page_shows_the_sentence(tiny_llama: Callable[..., LlamaForCausalLM]) -> None:
    engine = Engine(tiny_llama(max_context_length=1024), letter_tokenizer())
    asked = Form("retrieval_qa", "Z?", "", ("vanilla", "pine"), 3, entries_from([("", "red"), ("", "green")]))
    source = EngineSource(lambda: engine, "tiny")
    source.start()
    (token,) = engine.tokenize_answer("Z")
    with broken(engine, token):
        *_, last = told(source, lambda engine: answer(engine, asked), **one_run())
    assert isinstance(last, str)
    assert last.startswith(f"failed: Under vanilla {FIRST.format('')}")
