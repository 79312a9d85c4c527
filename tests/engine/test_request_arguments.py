"""Arguments of a run: a prompt or its parts, and options."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from transformers import LlamaForCausalLM

from pine_engine import TASKS, Document, Engine, InputError, TokenLayout, compare_orders
from pine_engine.engine.events import RunFinished
from pine_engine.engine.request_arguments import RunOptions
from tests.support.tokenizers import letter_tokenizer

PARTS: dict[str, Any] = {
    "question": "Who?",
    "documents": ["red", {"title": "G", "text": "green"}, Document("blue", "B")],
    "task": "retrieval_qa_numbered",
    "instruction": "Say.",
    "system": "Be brief.",
}
OPTIONS: dict[str, Any] = {"methods": ["vanilla", "pine"], "max_new_tokens": 2}
PROMPT = TokenLayout((5,), ((11,),), (51,))


@pytest.fixture(scope="module")
def engine(tiny_llama: Callable[..., LlamaForCausalLM]) -> Engine:
    return Engine(tiny_llama(), letter_tokenizer())


def test_parts_become_prompt_of_task(engine: Engine) -> None:
    parts = {name: value for name, value in PARTS.items() if name != "task"}
    prompt = TASKS[PARTS["task"]].prompt(engine.tokenizer, **parts)
    layout = engine.tokenize(prompt)
    assert engine.run(**PARTS, **OPTIONS).layout == layout
    *_, last = engine.generate(**PARTS, **OPTIONS)
    assert isinstance(last, RunFinished) and last.result.layout == layout
    assert engine.shuffle(**PARTS, **OPTIONS, count=1).first.layout == layout
    scores = engine.score(**PARTS, continuations="a", methods="pine")
    assert scores == engine.score(prompt, "a", methods="pine")
    default = TASKS["retrieval_qa"].prompt(engine.tokenizer, question="Who?", documents="red")
    assert engine.run(question="Who?", documents="red", **OPTIONS).layout == engine.tokenize(default)


@pytest.mark.parametrize("call", [Engine.run, Engine.generate, Engine.shuffle, Engine.score])
@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        *(({"prompt": PROMPT, name: value}, "prompt") for name, value in PARTS.items()),
        ({}, "prompt"),
        ({"question": "Who?"}, "documents"),
    ],
)
def test_prompt_and_parts_or_neither_raises(
    engine: Engine, call: Callable[..., Any], arguments: dict[str, Any], field: str
) -> None:
    with pytest.raises(InputError) as raised:
        call(engine, **arguments)
    assert raised.value.field == field


@pytest.mark.parametrize(
    "parts", [{"documents": ["a"]}, {"question": "Who?", "documents": ["a"], "task": "qa"}]
)
def test_invalid_part_raises(engine: Engine, parts: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        engine.run(**parts)


def test_run_signature_lists_all_options() -> None:
    assert {"self", "prompt", *RunOptions.__annotations__} == set(inspect.signature(Engine.run).parameters)


@pytest.mark.parametrize("call", [Engine.generate, Engine.shuffle, Engine.score, compare_orders])
def test_unknown_option_raises_with_field(engine: Engine, call: Callable[..., Any]) -> None:
    with pytest.raises(InputError) as raised:
        call(engine, PROMPT, lenght=3)
    assert raised.value.field == "lenght"


def test_shuffle_refuses_prefix_cache(engine: Engine) -> None:
    with pytest.raises(InputError) as raised:
        engine.shuffle(PROMPT, **OPTIONS, prefix_cache=None)
    assert raised.value.field == "prefix_cache"
