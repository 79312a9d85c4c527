"""A question and documents are asked in one call, as the prompt that their task makes of them."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from transformers import LlamaForCausalLM

from pine_engine import TASKS, Document, Engine, InputError
from pine_engine.engine.events import RunDone
from pine_engine.engine.options import RunOptions
from tests.support.tokenizers import letter_tokenizer

DOCUMENTS = ["red", {"title": "G", "text": "green"}, Document("blue", "B")]
PARTS: dict[str, Any] = {
    "question": "Who?",
    "documents": DOCUMENTS,
    "task": "retrieval_qa_numbered",
    "instruction": "Say.",
    "system": "Be brief.",
}
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
    assert isinstance(done, RunDone) and done.result.layout == layout
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


def test_every_option_of_a_run_is_in_the_signatures_and_a_typo_is_an_error_of_theirs(engine: Engine) -> None:
    options = inspect.signature(RunOptions).parameters
    for name in ("run", "generate"):
        parameters = inspect.signature(getattr(Engine, name)).parameters
        assert {each: parameters[each].default for each in options} == {
            each: option.default for each, option in options.items()
        }
        assert all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters.values())
        with pytest.raises(TypeError, match=f"Engine.{name}.* unexpected keyword argument 'lenght'"):
            getattr(engine, name)(**PARTS, lenght=3)
