"""Arguments, content in parts, names and dates of chat templates."""

from datetime import date
from typing import Any

import pytest

from pine_engine import TASKS, InputError, ModelError, Prompt
from pine_engine.prompts.chat_templates import CLOCK, KWARGS, with_date
from pine_engine.prompts.prompt import segment_text
from tests.support.errors import has_field
from tests.support.tokenizers import CHAT_TEMPLATE, DATED, IN_PARTS, THINKING, byte_tokenizer

PARTS: dict[str, Any] = {"question": "Who?", "documents": ["Anna.", "Dario."], "system": "Be brief."}


def prompt_of(template: Any, **kwargs: Any) -> Prompt:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    return TASKS["retrieval_qa"].prompt(tokenizer, **PARTS, chat_template_kwargs=kwargs)


def ending(prompt: Prompt) -> str:
    return segment_text(prompt.suffix[-1:])


@pytest.mark.parametrize("value", [True, False])
def test_argument_reaches_the_template_as_in_transformers(value: bool) -> None:
    tokenizer = byte_tokenizer(chat_template=THINKING)
    chat = [{"role": "user", "content": "Q"}]
    options: Any = {"tokenize": False, "add_generation_prompt": True, "enable_thinking": value}
    expected = str(tokenizer.apply_chat_template(chat, **options)).partition("Q")[2]
    assert ending(prompt_of(THINKING, enable_thinking=value)) == expected
    assert ("</think>" in expected) is not value


@pytest.mark.parametrize(
    ("template", "kwargs"),
    [
        (THINKING, {"enable_thinkin": False}),  # a typing error would have no effect
        (THINKING, {"messages": []}),
        (THINKING, {"bos_token": "x"}),
        (THINKING, {"enable_thinking": object()}),  # not JSON
        (THINKING, {"chat_template": "rag"}),  # the model has one
        (CHAT_TEMPLATE, {"enable_thinking": False}),
        (None, {"enable_thinking": False}),
        (DATED, {CLOCK: "yesterday"}),
        (DATED, {CLOCK: 3}),
    ],
)
def test_unknown_argument_is_an_error(template: str | None, kwargs: dict[str, Any]) -> None:
    with pytest.raises(InputError) as error:
        prompt_of(template, **kwargs)
    assert str(error.value.field).startswith(KWARGS)


def test_unknown_argument_error_lists_those_of_the_template() -> None:
    with pytest.raises(InputError, match="enable_thinking"):
        prompt_of(THINKING, thinking=False)


@pytest.mark.parametrize(
    "template",
    [
        IN_PARTS,
        CHAT_TEMPLATE.replace("message['content']", "message['content'][0]['text']"),
        CHAT_TEMPLATE.replace("message['content']", "message['content'] | map(attribute='text') | join"),
    ],
)
def test_template_of_parts_gets_parts(template: str) -> None:
    assert prompt_of(template) == prompt_of(CHAT_TEMPLATE)


def test_template_of_texts_gets_texts() -> None:
    """A template of texts would print a list of parts as Python does."""
    assert "'type'" not in segment_text(
        prompt_of("{{ messages[0].content }}{{ messages[1].content }}").prefix
    )


NAMED = {"rag": "R " + CHAT_TEMPLATE, "tool_use": "T " + CHAT_TEMPLATE}


def test_named_template_is_chosen_by_name() -> None:
    assert segment_text(prompt_of(NAMED, chat_template="rag").prefix).startswith("R ")
    assert prompt_of({**NAMED, "default": CHAT_TEMPLATE}) == prompt_of(CHAT_TEMPLATE)


@pytest.mark.parametrize("kwargs", [{}, {"chat_template": "chat"}, {"chat_template": CHAT_TEMPLATE}])
def test_named_templates_without_a_known_name_are_listed(kwargs: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"rag, tool_use.*chat_template_kwargs") as error:
        prompt_of(NAMED, **kwargs)
    assert has_field(KWARGS)(error.value)


def test_date_of_the_prompt_can_be_fixed() -> None:
    text = segment_text(prompt_of(DATED, **{CLOCK: "2001-02-03"}).prefix)
    assert "03 Feb 2001" in text
    assert f"{date.today():%d %b %Y}" in segment_text(prompt_of(DATED).prefix)


def test_request_gets_a_date_only_if_the_template_prints_it() -> None:
    dated, undated = byte_tokenizer(chat_template=DATED), byte_tokenizer()
    today = {CLOCK: date.today().isoformat()}
    assert with_date(dated, {}) == today
    assert with_date(dated, {CLOCK: "2001-02-03"}) == {CLOCK: "2001-02-03"}
    assert with_date(undated, {}) == with_date(byte_tokenizer(chat_template=None), {}) == {}


def test_template_that_does_not_compile_is_an_error() -> None:
    with pytest.raises(ModelError):
        prompt_of("{% for %}")
    with pytest.raises(ModelError):
        with_date(byte_tokenizer(chat_template="{% for %}"), {})
