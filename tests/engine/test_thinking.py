"""Answers with a thinking part: events, comparisons over orders, and evaluations."""

from typing import Any

import pytest

from pine_engine import Engine, PrefixCache, Request, TokenGenerated
from pine_engine.engine.events import GenerationFinished
from pine_engine.prompts.chat_templates import CLOCK
from tests.support.families import TinyLlama
from tests.support.scripted import scripted_llama, thinking_model
from tests.support.tokenizers import CHAT_TEMPLATE, DATED, byte_tokenizer, letter_tokenizer

REQUEST: dict[str, Any] = {"question": "Who?", "documents": ["Ana.", "Dario."]}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(*thinking_model())


def test_answer_is_the_text_after_the_thinking(engine: Engine) -> None:
    answer = engine.run(**REQUEST, methods="pine").answers["pine"]
    assert (answer.thinking, answer.text, answer.is_finished) == ("hm", "Ana", True)
    assert engine.decode_text(answer.token_ids) == "<think>hm</think>Ana"
    assert answer.finish_reason == "stop"
    (row,) = engine.run(**REQUEST, methods="pine").to_dict()["results"]
    assert (row["text"], row["thinking"], row["is_finished"]) == ("Ana", "hm", True)


def test_answer_cut_in_its_thinking_is_unfinished(engine: Engine) -> None:
    answer = engine.run(**REQUEST, methods="pine", max_new_tokens=2).answers["pine"]
    assert (answer.thinking, answer.text, answer.is_finished) == ("h", "", False)


def test_events_have_thinking_then_text(engine: Engine) -> None:
    events = list(engine.generate(**REQUEST, methods="pine"))
    shown = [(one.thinking, one.text) for one in events if isinstance(one, TokenGenerated)]
    expected = [("", ""), ("h", ""), ("hm", ""), ("hm", ""), ("hm", "A"), ("hm", "An"), ("hm", "Ana")]
    assert shown == expected
    (finished,) = [one.answer for one in events if isinstance(one, GenerationFinished)]
    assert (finished.thinking, finished.text) == shown[-1]


def test_prompt_may_begin_the_thinking() -> None:
    """Templates as that of DeepSeek R1 end with the start marker."""
    _, tokenizer = thinking_model()
    tokenizer.chat_template += "<think>{{ '\\n' }}"
    ids = tokenizer.encode("\nhm</think>Ana</s>", add_special_tokens=False)
    engine = Engine(scripted_llama(ids, len(tokenizer)), tokenizer)
    answers = [engine.run(**REQUEST, methods="pine", max_new_tokens=n).answers["pine"] for n in (2, 6)]
    assert [(one.thinking, one.text, one.is_finished) for one in answers] == [
        ("hm", "", False),
        ("hm", "Ana", True),
    ]


def test_markers_may_be_special_tokens() -> None:
    """gpt-oss: text without special tokens would join the thinking part and the answer."""
    names = ["<|channel|>", "<|message|>", "<|end|>", "<|start|>"]
    tokenizer = byte_tokenizer(chat_template="{{ messages[0].content }}<|channel|>", special=names)
    text = "<|channel|>analysis<|message|>Q<|end|><|start|>assistant<|channel|>final<|message|>A"
    engine = Engine(scripted_llama([0, 1], 300, 512), tokenizer)
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert "<|" not in engine.decode_text(ids)
    assert engine.decode_answer(ids, ()) == ("Q", "A", True)
    assert engine.decode_answer(ids[:-2], ())[1:] == ("", False)


def test_markers_may_be_tokens_without_a_template() -> None:
    """Another chat template, such as that of `serve --chat-template`, may not have the markers."""
    model, tokenizer = thinking_model()
    tokenizer.chat_template = CHAT_TEMPLATE
    answer = Engine(model, tokenizer).run(**REQUEST, methods="pine").answers["pine"]
    assert (answer.thinking, answer.text) == ("hm", "Ana")


def test_answers_with_other_thinking_are_equal(engine: Engine) -> None:
    """Answers are compared after the thinking part, bits over all tokens."""
    orders = engine.shuffle(**REQUEST, methods=["vanilla", "pine"])
    assert orders.invariance_held["pine"]
    answer = orders.first.answers["pine"]
    assert answer.content == "Ana"
    plain = Engine(*thinking_model("hm")).run(**REQUEST, methods="pine").answers["pine"]
    assert plain.content == plain.token_ids  # unfinished: no answer to compare


def test_prefix_cache_of_another_date_is_not_reused(tiny_llama: TinyLlama) -> None:
    """The cache compares token ids, so that a prompt never continues that of another day."""
    engine = Engine(tiny_llama(), letter_tokenizer(chat_template=DATED))
    options: Any = {**REQUEST, "methods": "pine", "max_new_tokens": 2}

    def logprobs(day: str, cache: PrefixCache) -> tuple[float, ...]:
        kwargs = {CLOCK: day}
        run = engine.run(**options, chat_template_kwargs=kwargs, prefix_cache=cache)
        return run.answers["pine"].logprobs

    cache = PrefixCache()
    first = logprobs("2026-11-26", cache)
    second = logprobs("2026-11-27", cache)
    assert second == pytest.approx(logprobs("2026-11-27", PrefixCache()), abs=1e-6)
    assert second != pytest.approx(first, abs=1e-6)


def test_template_arguments_change_the_prompt(engine: Engine) -> None:
    off: Any = {"enable_thinking": False}
    request = Request(**REQUEST, chat_template_kwargs=off)
    layout = engine.run(**REQUEST, methods="pine", chat_template_kwargs=off, max_new_tokens=0).layout
    assert layout == request.tokenize(engine)
    assert engine.decode_text(layout.suffix).endswith("<think>\n\n</think>\n\n")
    assert layout != engine.run(**REQUEST, methods="pine", max_new_tokens=0).layout
