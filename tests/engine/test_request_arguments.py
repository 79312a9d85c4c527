"""A question and documents are asked in one call, as the prompt that their task makes of them."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from transformers import LlamaForCausalLM

from pine_engine import TASKS, Document, Engine, InputError, TokenLayout, compare_orders
from pine_engine.engine.events import RunFinished
from pine_engine.engine.request_arguments import RunOptions
from tests.support.tokenizers import letter_tokenizer

DOCUMENTS = ["red", {"title": "G", "text": "green"}, Document("blue", "B")]
PARTS: dict[str, Any] = {
    "question": "Who?",
    "documents": DOCUMENTS,
    "task": "retrieval_qa_numbered",
    "instruction": "Say.",
    "system": "Be brief.",
}
PROMPT = TokenLayout((5,), ((11,),), (51,))
OPTIONS: dict[str, Any] = {"methods": ["vanilla", "pine"], "max_new_tokens": 2}


@pytest.fixture(scope="module")
def engine(tiny_llama: Callable[..., LlamaForCausalLM]) -> Engine:
    return Engine(tiny_llama(), letter_tokenizer())


def test_the_parts_are_asked_as_the_prompt_of_their_task(engine: Engine) -> None:
    parts = {name: value for name, value in PARTS.items() if name != "task"}
    prompt = TASKS[PARTS["task"]].prompt(engine.tokenizer, **parts)
    layout = engine.tokenize(prompt)
    assert engine.run(**PARTS, **OPTIONS).layout == layout
    *_, done = engine.generate(**PARTS, **OPTIONS)
    assert isinstance(done, RunFinished) and done.result.layout == layout
    assert engine.shuffle(**PARTS, **OPTIONS, count=1).first.layout == layout
    assert engine.score(**PARTS, continuations="a", methods="pine") == engine.score(
        prompt, "a", methods="pine"
    )
    usual = TASKS["retrieval_qa"].prompt(engine.tokenizer, question="Who?", documents="red")
    assert engine.run(question="Who?", documents="red", **OPTIONS).layout == engine.tokenize(usual)


def test_both_a_prompt_and_its_parts_or_neither_is_one_sentence(engine: Engine) -> None:
    layout = engine.tokenize(TASKS["retrieval_qa"].prompt(engine.tokenizer, question="Who?", documents="a"))
    both = (
        "a prompt was given, and parts of one; give the prompt alone, or question, documents, task, "
        "instruction and system without it"
    )
    asked: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        *(((layout,), {name: value}, both) for name, value in PARTS.items()),
        (("Who?",), {"documents": ["a"]}, both),
        (
            (),
            {},
            'nothing was asked; give question="..." and documents=["...", "..."], or a prompt of your own',
        ),
        ((), {"question": "Who?"}, 'there are no documents; give documents=["...", "..."]'),
        ((), {"documents": ["a"]}, "there is no question; write one"),
        (
            (),
            {"question": "Who?", "documents": ["a"], "task": "qa"},
            f"unknown task 'qa'; choose from: {', '.join(TASKS)}",
        ),
    ]
    for attempt in (engine.run, engine.generate, engine.shuffle, engine.score):
        for given, parts, sentence in asked:
            with pytest.raises(InputError) as raised:
                attempt(*given, **parts)
            assert str(raised.value) == sentence


def test_run_signature_lists_all_options() -> None:
    assert {"self", "prompt", *RunOptions.__annotations__} == set(inspect.signature(Engine.run).parameters)


@pytest.mark.parametrize("call", [Engine.generate, Engine.shuffle, Engine.score, compare_orders])
def test_unknown_option_raises_with_field(engine: Engine, call: Callable[..., Any]) -> None:
    orders = {"orders": [[0]]} if call is compare_orders else {}
    with pytest.raises(InputError) as raised:
        call(engine, PROMPT, lenght=3, **orders)
    assert raised.value.field == "lenght"
