"""Bodies of the OpenAI API: each field is known, refused by name or without effect, and errors quote JSON."""

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given, strategies as st
from openai.types import completion_create_params as text_create_params
from openai.types.chat import completion_create_params
from openai.types.responses import response_create_params

from pine_engine import PineError
from pine_engine.rows.untrusted_json import load_json
from pine_engine.server.schema import (
    IGNORED,
    SUPPORTED,
    ApiError,
    ChatBody,
    CompletionBody,
    ResponsesBody,
    parse_body,
)

USER = {"role": "user", "content": "Who?"}
BODY: dict[str, Any] = {"messages": [USER], "documents": ["Ann has it.", "Ben."], "max_tokens": 6}

OTHER_VALUES: dict[str, Any] = {
    "response_format": {"type": "json_object"}, "logit_bias": {"5": 1}, "tool_choice": "required",
    "function_call": "required", "tools": [{"type": "function"}], "functions": [{}], "suffix": "a",
    "echo": True, "modalities": ["audio"],
}  # fmt: skip


@pytest.mark.parametrize("name", SUPPORTED)
def test_field_that_changes_answers_is_refused(name: str) -> None:
    values, reason = SUPPORTED[name]
    neutral = BODY | dict.fromkeys(IGNORED, 3)
    plain = parse_body(BODY, ChatBody)
    assert [parse_body(neutral | {name: value}, ChatBody) for value in (*values, None)] == [plain] * (
        len(values) + 1
    )
    with pytest.raises(ApiError, match=f"{name} is not supported.*{re.escape(reason)}") as raised:
        parse_body(BODY | {name: OTHER_VALUES.get(name, 0.5)}, ChatBody)
    assert (raised.value.status, raised.value.field) == (400, name)


API_PARAMETERS: list[tuple[type[Any], dict[str, Any], Any]] = [
    (ChatBody, {"messages": [USER]}, completion_create_params.CompletionCreateParamsBase),
    (ResponsesBody, {"input": "Who?"}, response_create_params.ResponseCreateParamsBase),
    (CompletionBody, {"prompt": "Who?"}, text_create_params.CompletionCreateParamsBase),
]


@pytest.mark.parametrize(("model", "body", "parameters"), API_PARAMETERS)
def test_each_field_of_the_api_is_known(model: type[Any], body: dict[str, Any], parameters: Any) -> None:
    def problem_of(name: str) -> str:
        try:
            parse_body({**body, name: {"any": 1}}, model)
        except PineError as error:
            assert (error.field or "").startswith(name)
            return str(error)
        return ""

    assert len(parameters.__annotations__) > 15
    for name in parameters.__annotations__:
        assert "no such field" not in problem_of(name) and "no such field" in problem_of(f"{name}x")


def test_errors_quote_values_as_json() -> None:
    values: list[tuple[str, Any, str]] = [
        ("messages", [{**USER, "role": None}], "null"),
        ("messages", [{**USER, "content": {"a": None}}], '{"a": null}'), ("messages", [USER, True], "true"),
        ("messages", [USER, {"role": "assistant", "content": "Ann."}], '"assistant"'),
        ("documents", ["a", False], "false"), ("response_format", {"a": True}, '{"a": true}'),
        ("stream", "yes", '"yes"'), ("n", True, "true"), ("chat_template_kwargs", [None], "[null]"),
    ]  # fmt: skip
    for name, value, shown in values:
        with pytest.raises(PineError, match=re.escape(f"got {shown}")) as raised:
            parse_body({**BODY, name: value}, ChatBody)
        assert not re.search(r"\b(None|True|False|dict|int|Message)\b|Input should|[{\[]'", str(raised.value))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
FIELDS = sorted({*SUPPORTED, *IGNORED, *ChatBody.model_fields, *CompletionBody.model_fields})


@given(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=6) | JSON)
def test_any_body_is_parsed_or_rejected(body: Any) -> None:
    for model in (ChatBody, CompletionBody, ResponsesBody):
        try:
            parse_body(load_json(json.dumps(body).encode()), model)
        except PineError as error:
            assert str(error)


@pytest.mark.parametrize("name", [*ChatBody.model_fields, "n", "prompt"])
def test_large_wrong_value_has_a_short_error_at_once(name: str) -> None:
    large = 400_000 * "a"
    for value in (large, {large: 1}, [""] * 200_000):
        text = json.dumps({**BODY, name: value}).encode()
        began = time.thread_time()
        try:
            parse_body(load_json(text), ChatBody)
        except PineError as error:
            assert len(str(error)) < 1500
        assert time.thread_time() - began < 1
