"""The server of the OpenAI API on a tiny model: answers, streams, refused fields, limits and stopping."""

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from itertools import chain, groupby
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import httpx
import pytest
from hypothesis import example, given, strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from starlette.testclient import TestClient
from tokenizers import decoders

import pine_engine as pine
from pine_engine import Engine, ModelError, Prompt
from pine_engine.engine.events import TokenGenerated
from pine_engine.prompts.thinking import find_markers, split_thinking
from pine_engine.scheduling.turns import Client
from pine_engine.server import app as server_app
from pine_engine.server.app import Server
from pine_engine.server.jobs import MAX_CHARACTERS_PER_TOKEN, tokenize_body
from pine_engine.server.responses import ResponseText
from pine_engine.server.settings import ServerSettings
from pine_engine.web import connections
from tests.support.api_server import running_server, wait_until
from tests.support.families import TinyLlama
from tests.support.metrics import metric_values
from tests.support.scripted import scripted_llama, thinking_model
from tests.support.tokenizers import (
    CHAT_TEMPLATE,
    THINKING,
    byte_tokenizer,
    letter_tokenizer,
    sentencepiece_tokenizer,
)

ROOT = Path(__file__).parents[2]
CHAT, TEXT, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
DOCUMENTS: Any = ["Ann has it.", {"title": "B", "text": "Ben."}]
MESSAGES = [{"role": "system", "content": "Brief."}, {"role": "user", "content": "Who?"}]
USER = {"role": "user", "content": "Who?"}
THOUGHT = {"type": "reasoning", "id": "a", "summary": []}
BODY: dict[str, Any] = {"messages": MESSAGES, "documents": DOCUMENTS, "max_tokens": 6}
PROMPT: dict[str, Any] = {"prompt": "Who has it?", "max_tokens": 6}


@pytest.fixture(scope="module")
def engine(tiny_llama: TinyLlama) -> Engine:
    return Engine(tiny_llama(max_context_length=4096), letter_tokenizer(), name="tiny")


def client_of(engine: Engine, **settings: Any) -> TestClient:
    return TestClient(Server(engine, ServerSettings(**settings)).app(), base_url="http://localhost")


@pytest.fixture(scope="module")
def client(engine: Engine) -> TestClient:
    return client_of(engine)


def post(client: TestClient, path: str, **body: Any) -> dict[str, Any]:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def stream(client: TestClient, path: str, **body: Any) -> list[dict[str, Any]]:
    response = client.post(path, json=body | {"stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    *events, done = response.text.strip().split("\n\n")
    assert done == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events]


@pytest.mark.parametrize("max_active_runs", [1, 8])
@pytest.mark.parametrize("method", ["vanilla", "pine", "pcw"])
def test_chat_has_answer_of_engine(engine: Engine, method: str, max_active_runs: int) -> None:
    client = client_of(engine, max_active_runs=max_active_runs)
    found = post(client, CHAT, **BODY, method=method, logprobs=True)
    run = engine.run(messages=MESSAGES, documents=DOCUMENTS, methods=method, max_new_tokens=6)
    options: Any = {"method": method, "max_new_tokens": 6, "batch_size": 2}
    answer = dict(pine.generate_batch(engine, run.layout, **options))[0]
    if max_active_runs == 1:
        answer = run.answers[method]
    (choice,) = ChatCompletion.model_validate(found, strict=True).choices
    assert (choice.message.content, choice.finish_reason) == (answer.text, answer.finish_reason)
    assert choice.logprobs and choice.logprobs.content
    assert tuple(token.logprob for token in choice.logprobs.content) == answer.logprobs
    num_prompt, num_answer = run.layout.num_tokens, len(answer.token_ids)
    total = num_prompt + num_answer
    assert found["usage"] == {
        "prompt_tokens": num_prompt, "completion_tokens": num_answer, "total_tokens": total
    }  # fmt: skip
    assert found["pine_engine"] == {"method": method, "num_documents": 2, "max_new_tokens": 6}


def test_task_instruction_and_default_method_are_used(engine: Engine) -> None:
    options: Any = {"task": "judge", "instruction": "Judge."}
    found = post(client_of(engine, method="nia"), CHAT, **BODY, **options)
    run = engine.run(messages=MESSAGES, documents=DOCUMENTS, methods="nia", max_new_tokens=6, **options)
    assert found["choices"][0]["message"]["content"] == run.answers["nia"].text
    assert found["pine_engine"]["method"] == "nia"


@pytest.mark.parametrize("documents", [DOCUMENTS, []])
def test_template_arguments_are_those_of_request_then_server(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, documents: list[Any]
) -> None:
    monkeypatch.setattr(engine.tokenizer, "chat_template", THINKING)
    body = BODY | {"documents": documents, "logprobs": True}

    def logprobs(default: dict[str, Any], **more: Any) -> list[float]:
        found = post(client_of(engine, chat_template_kwargs=default), CHAT, **body, **more)
        return [token["logprob"] for token in found["choices"][0]["logprobs"]["content"]]

    on, off = {"enable_thinking": True}, {"enable_thinking": False}
    assert logprobs({}) == logprobs(on) == logprobs(off, chat_template_kwargs=on)
    assert logprobs(off) == logprobs({}, chat_template_kwargs=off) == logprobs(on, chat_template_kwargs=off)
    assert logprobs(on) != logprobs(off)
    wrong = client_of(engine).post(CHAT, json=BODY | {"chat_template_kwargs": {"thinking": True}})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "chat_template_kwargs")


def test_model_name_selects_method(client: TestClient) -> None:
    names = [card["id"] for card in client.get("/v1/models").json()["data"]]
    assert names[0] == "tiny" and "tiny:pcw" in names
    assert client.get("/v1/models/tiny:pcw").json()["id"] == "tiny:pcw"
    assert post(client, CHAT, **BODY, model="tiny:pcw")["pine_engine"]["method"] == "pcw"
    assert post(client, CHAT, **BODY, model="tiny:pcw", method="nia")["pine_engine"]["method"] == "nia"
    assert post(client, CHAT, **BODY, model="default")["pine_engine"]["method"] == "pine"
    assert client.get("/v1/models/gpt").status_code == 404


def test_default_method_fits_the_model(hybrid: Path) -> None:
    engine = Engine.load(hybrid)
    client = client_of(engine)
    names = [card["id"] for card in client.get("/v1/models").json()["data"]]
    assert names[1:] == [f"hybrid:{method.name}" for method in engine.methods]
    found = post(client, CHAT, **BODY)
    assert found["pine_engine"]["method"] == "reorder_content"
    refused = client.post(CHAT, json={**BODY, "method": "pine"})
    assert refused.status_code == 400 and "recurrent" in refused.json()["error"]["message"]
    with pytest.raises(ModelError, match="recurrent"):
        client_of(engine, method="pine")


def generated(engine: Engine, ids: list[int]) -> str:
    """Return the greedy answer of transformers."""
    import torch

    model: Any = engine.model
    output = model.generate(input_ids=torch.tensor([ids]), max_new_tokens=6, do_sample=False, pad_token_id=0)
    return engine.decode_text(output[0, len(ids) :].tolist())


def test_request_without_documents_is_the_plain_model(client: TestClient, engine: Engine) -> None:
    ids: Any = engine.tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True)
    found = post(client, CHAT, messages=MESSAGES, max_tokens=6)
    assert found["choices"][0]["message"]["content"] == generated(engine, ids["input_ids"])
    assert found["pine_engine"] == {"method": "vanilla", "num_documents": 0, "max_new_tokens": 6}
    found = post(client, TEXT, **PROMPT)
    ids = engine.tokenizer(PROMPT["prompt"], add_special_tokens=False)["input_ids"]
    assert found["choices"][0]["text"] == generated(engine, ids)


MARKED = "Read. <document>Ann.</document>\n<document>Ben.</document> Who?"


def test_documents_may_be_marked_in_text(client: TestClient, engine: Engine) -> None:
    parts: Any = ("Read. ", ["Ann.\n", "Ben."], " Who?")
    prompt = Prompt(*parts)
    expected = engine.run(prompt, methods="pine", max_new_tokens=6).answers["pine"].text
    found = post(client, TEXT, prompt=[MARKED], max_tokens=6)
    assert found["choices"][0]["text"] == expected
    chat = post(client, CHAT, messages=[{"role": "user", "content": MARKED}], max_tokens=6)
    assert chat["pine_engine"] == found["pine_engine"]
    assert found["pine_engine"] == {"method": "pine", "num_documents": 2, "max_new_tokens": 6}
    expected_ids = engine.tokenizer.apply_chat_template(
        [{"role": "user", "content": "Read. Ann.\nBen. Who?"}], add_generation_prompt=True
    )["input_ids"]
    assert chat["usage"]["prompt_tokens"] == len(expected_ids)
    separate = post(client, TEXT, **PROMPT, documents=DOCUMENTS)
    parts = ("", ["Ann has it.\n\n", "B\nBen.\n\n"], PROMPT["prompt"])
    assert separate["usage"]["prompt_tokens"] == engine.tokenize(Prompt(*parts)).num_tokens


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize(("stop", "alternatives"), [([], None), ([], 0), (["\n", "e"], 3)])
def test_stream_has_the_parts_of_the_response(
    client: TestClient, path: str, stop: list[str], alternatives: int | None
) -> None:
    body = {**(BODY if path == CHAT else PROMPT), "max_tokens": 24, "stop": stop}
    if alternatives is not None:
        is_chat = path == CHAT
        body |= {"logprobs": True, "top_logprobs": alternatives} if is_chat else {"logprobs": alternatives}
    whole = post(client, path, **body)
    *events, last = stream(client, path, **body, stream_options={"include_usage": True})
    for event in events if path == CHAT else ():  # the type of texts requires the reason in each event
        ChatCompletionChunk.model_validate(event, strict=True)
    choices = [event["choices"][0] for event in events]
    (expected,) = whole["choices"]
    text = "".join(
        choice["delta"].get("content", "") if path == CHAT else choice["text"] for choice in choices
    )
    assert text == (expected["message"]["content"] if path == CHAT else expected["text"])
    assert [choice["finish_reason"] for choice in choices][-1] == expected["finish_reason"]
    assert all(choice["finish_reason"] is None for choice in choices[:-1])
    assert last["usage"] == whole["usage"] and not last["choices"]
    for key in expected["logprobs"] or ():
        found = [choice["logprobs"][key] for choice in choices if choice["logprobs"]]
        assert (key == "refusal") or list(chain(*found)) == expected["logprobs"][key]
    if alternatives is not None:
        key = "content" if path == CHAT else "tokens"
        assert len(expected["logprobs"][key]) == whole["usage"]["completion_tokens"]


@pytest.mark.parametrize("given", ["Who?", [THOUGHT, USER]])
def test_response_has_the_answer_of_the_chat(client: TestClient, given: Any) -> None:
    options: Any = {"documents": DOCUMENTS, "method": "nia"}
    chat = post(client, CHAT, messages=MESSAGES, max_tokens=6, **options)
    body = {"input": given, "instructions": "Brief.", "max_output_tokens": 6, "text": None, **options}
    found = Response.model_validate(post(client, RESPONSES, **body), strict=True)
    assert found.output_text == chat["choices"][0]["message"]["content"]
    assert found.usage and found.usage.total_tokens == chat["usage"]["total_tokens"]
    assert (found.status, found.model_extra) == ("incomplete", {"pine_engine": chat["pine_engine"]})


def test_response_has_thinking_apart() -> None:
    client = client_of(Engine(*thinking_model(), name="tiny"))
    found = Response.model_validate(post(client, RESPONSES, input="Who?", max_output_tokens=30))
    (reasoning, message), thought = found.output, "hm"
    assert reasoning.type == "reasoning" and reasoning.content and reasoning.content[0].text == thought
    assert (message.type, found.output_text, found.status) == ("message", "Ana", "completed")
    output: Any = found.to_dict()["output"]
    given = [USER, *output, USER]
    assert client.post(RESPONSES, json={"input": given, "max_output_tokens": 2}).is_success


@cache
def stream_events() -> TypeAdapter[Any]:
    """Return the validator of events, which takes a second to build."""
    return TypeAdapter(ResponseStreamEvent)


@pytest.mark.parametrize("is_thinking", [False, True])
def test_streamed_response_is_the_complete_one(engine: Engine, is_thinking: bool) -> None:
    client = client_of(Engine(*thinking_model(), name="tiny") if is_thinking else engine)
    options = {"top_logprobs": 2, "include": ["message.output_text.logprobs"]}
    body: dict[str, Any] = {"input": "Who?", "max_output_tokens": 30, **options}
    whole: Any = Response.model_validate(post(client, RESPONSES, **body), strict=True)
    response = client.post(RESPONSES, json=body | {"stream": True})
    lines = [event.split("\n") for event in response.text.strip().split("\n\n")]
    contents = [json.loads(data.removeprefix("data: ")) for _, data in lines]
    assert [name for name, _ in lines] == [f"event: {content['type']}" for content in contents]
    assert [content["sequence_number"] for content in contents] == list(range(len(contents)))
    events: list[Any] = [stream_events().validate_python(content) for content in contents]
    kinds = [event.type.removeprefix("response.") for event in events]
    begin, text = ["output_item.added", "content_part.added"], ["content_part.done", "output_item.done"]
    reasoning = [*begin, "reasoning_text.delta", "reasoning_text.done", *text] if is_thinking else []
    message = [*begin, "output_text.delta", "output_text.done", *text]
    assert [kind for kind, _ in groupby(kinds)] == [
        "created", "in_progress", *reasoning, *message, whole.status
    ]  # fmt: skip
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    assert "".join(event.delta for event in deltas) == whole.output_text
    (part,) = whole.output[-1].content
    logprobs = [found.to_dict() for event in deltas for found in event.logprobs]
    assert [one["logprob"] for one in logprobs] == [one.logprob for one in part.logprobs]
    assert all(len(one.top_logprobs) == 2 for one in part.logprobs)
    last: Any = events[-1].response
    changing = {"id", "created_at", "output"}
    assert last.model_dump(exclude=changing) == whole.model_dump(exclude=changing)
    assert [item.content for item in last.output] == [item.content for item in whole.output]
    assert [event.item for event in events if event.type == "response.output_item.done"] == last.output


def blank_tokenizer() -> Any:
    tokenizer = sentencepiece_tokenizer("prepend")
    parts = [tokenizer.backend_tokenizer.decoder, decoders.Strip(" ", 1, 0)]
    tokenizer.backend_tokenizer.decoder = decoders.Sequence(parts)  # as that of Llama 2
    return tokenizer


EURO = ["\\xe2", "\\x82", "\\xac"]


@pytest.mark.parametrize(
    ("tokenizer", "names", "tokens", "text", "offsets"),
    [
        (byte_tokenizer(), "\u00e2 \u0124 \u00ac \u0120 a", [*EURO, " ", "a"], "\u20ac a", [0, 0, 0, 1, 2]),
        (blank_tokenizer(), "\u2581the <0xE2> <0x82> <0xAC> \u2581a b", [" the", *EURO, " a", "b"],
         "the\u20ac ab", [0, 3, 3, 3, 4, 6]),
    ],
)  # fmt: skip
def test_logprobs_have_bytes_and_places_of_tokens(
    tokenizer: Any, names: str, tokens: list[str], text: str, offsets: list[int]
) -> None:
    tokenizer.chat_template = "{{ messages[0]['content'] }}?"
    ids = tokenizer.convert_tokens_to_ids(["?", *names.split()])
    client = client_of(Engine(scripted_llama(ids, len(tokenizer), 512), tokenizer, name="tiny"))
    options: Any = {"max_tokens": len(tokens)}
    (choice,) = post(client, TEXT, prompt="who?", logprobs=20, **options)["choices"]
    found = choice["logprobs"]
    assert (choice["text"], found["tokens"], found["text_offset"]) == (text, tokens, offsets)
    assert all(len(top) == 20 for top in found["top_logprobs"])
    chat = {"messages": [{"role": "user", "content": "who?"}], "logprobs": True, "top_logprobs": 20}
    content = post(client, CHAT, **chat, **options)["choices"][0]["logprobs"]["content"]
    assert [token["token"] for token in content] == tokens
    assert bytes(chain(*(token["bytes"] for token in content))).decode().lstrip() == text
    assert all(len({bytes(one["bytes"] or []) for one in token["top_logprobs"]}) > 15 for token in content)


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("stop", [[], ["n"]])
def test_thinking_is_apart_from_the_text(path: str, stop: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop strings end the answer, not its thinking part."""
    thought = "Ben did not, so it is no one but An"
    engine = Engine(*thinking_model(), name="tiny")
    markers, whole = find_markers(engine.tokenizer), f"<think>{thought}</think>Ana"
    monkeypatch.setattr(
        engine, "decode_answer", lambda ids, _: split_thinking(whole[: 4 * len(ids)], markers)
    )
    body = {**(BODY if path == CHAT else PROMPT), "max_tokens": 20, "stop": stop}
    engine.stop_token_ids = frozenset()
    client = client_of(engine)
    (choice,) = post(client, path, **body)["choices"]
    part = choice["message"] if path == CHAT else choice
    text = part["content" if path == CHAT else "text"]
    assert (part["reasoning_content"], text) == (thought, "A" if stop else "Ana")
    deltas = [event["choices"][0] for event in stream(client, path, **body)]
    parts = [delta["delta"] if path == CHAT else delta for delta in deltas]
    name = "content" if path == CHAT else "text"
    assert "".join(one.get("reasoning_content", "") for one in parts) == thought
    assert "".join(one.get(name, "") for one in parts) == text
    assert sum("reasoning_content" in one for one in parts) > 1


@example(["ab", "a"], ["b", "aba"])
@example(["aba"], ["b", "aba"])
@given(
    st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=8),
    st.lists(st.text("ab", min_size=1, max_size=3), max_size=2),
)
def test_text_ends_before_first_stop_string(tokens: list[str], stops: list[str]) -> None:
    response, shown = ResponseText(stops), ""
    for step in range(len(tokens)):
        shown += response.add(TokenGenerated("pine", step, 0, "".join(tokens[: step + 1])))[1]
    whole = "".join(tokens)
    complete = next((end for end in range(len(whole)) if whole[: end + 1].endswith(tuple(stops))), None)
    assert shown == response.text
    if complete is not None:
        read = whole[: complete + 1]
        longest = max((stop for stop in stops if read.endswith(stop)), key=len)
        assert shown == read.removesuffix(longest) and response.finish_reason == "stop"
    else:
        held = max(map(len, stops), default=1) - 1
        assert shown == whole[: max(0, len(whole) - held)] and response.finish_reason is None


LONG = "a" * 4000


@pytest.mark.parametrize(
    ("path", "body", "status", "field", "code"),
    [
        (CHAT, {"documents": DOCUMENTS}, 400, "messages", "invalid_value"),
        (CHAT, {**BODY, "messages": []}, 400, "messages", "invalid_value"),
        (CHAT, {**BODY, "messages": [{**USER, "content": " "}]}, 400, "messages", "invalid_value"),
        *((CHAT, {"messages": [USER | {name: 1}]}, 400, f"messages[0].{name}", "invalid_value")
          for name in ("cache_control", "timestamp")),
        (CHAT, {**BODY, "messages": [{**USER, "role": "tool"}]}, 400, "messages[0].role", "invalid_value"),
        (CHAT, {**BODY, "documents": ["a", 3]}, 400, "documents[1]", "invalid_value"),
        (CHAT, {**BODY, "documents": "a"}, 400, "documents", "invalid_value"),
        (CHAT, {**BODY, "method": "gpt"}, 400, "method", "invalid_value"),
        (CHAT, {**BODY, "task": "poem"}, 400, "task", "invalid_value"),
        (CHAT, {**BODY, "model": "gpt-4o"}, 404, "model", "model_not_found"),
        (CHAT, {**BODY, "model": "gpt-4o", "method": "pine"}, 404, "model", "model_not_found"),
        (CHAT, {**BODY, "max_tokens": 0}, 400, "max_tokens", "invalid_value"),
        (CHAT, {**BODY, "max_tokens": "1"}, 400, "max_tokens", "invalid_value"),
        (CHAT, {**BODY, "max_tokens": True}, 400, "max_tokens", "invalid_value"),
        (CHAT, {**BODY, "stream": 1}, 400, "stream", "invalid_value"),
        (CHAT, {**BODY, "logprobs": 1}, 400, "logprobs", "invalid_value"),
        *((CHAT, {**BODY, **change}, 400, next(iter(change)), "unsupported_parameter") for change in
          ({"n": True}, {"enable_thinking": False}, {"reasoning_effort": "low"})),
        (CHAT, {**BODY, **dict.fromkeys(map(str, range(65)))}, 400, None, "invalid_value"),
        (CHAT, {**BODY, "top_logprobs": 21}, 400, "top_logprobs", "invalid_value"),
        (CHAT, {**BODY, "stop": [""]}, 400, "stop[0]", "invalid_value"),
        (CHAT, {**BODY, "repetition_penalty": 2}, 400, "repetition_penalty", "invalid_value"),
        (CHAT, {"messages": [USER], "method": "pine"}, 400, "documents", "invalid_value"),
        (CHAT, {"messages": [USER], "instruction": "Say."}, 400, "documents", "invalid_value"),
        (CHAT, {**BODY, "documents": [LONG, LONG]}, 400, "messages", "context_length_exceeded"),
        (CHAT, {**BODY, "instruction": 40 * LONG}, 400, "messages", "context_length_exceeded"),
        (RESPONSES, {"input": LONG + LONG}, 400, "input", "context_length_exceeded"),
        (RESPONSES, {"input": [{**USER, "role": "tool"}]}, 400, "input[0].role", "invalid_value"),
        (RESPONSES, {"input": [THOUGHT, {**USER, "role": "tool"}]}, 400, "input[1].role", "invalid_value"),
        (RESPONSES, {"input": "a", "include": ["b"]}, 400, "include[0]", "invalid_value"),
        (RESPONSES, {"input": "a", "conversation": "b"}, 400, "conversation", "unsupported_parameter"),
        (TEXT, {"prompt": LONG + LONG}, 400, "prompt", "context_length_exceeded"),
        (TEXT, {"prompt": ["a", "b"]}, 400, "prompt", "invalid_value"),
        (TEXT, {"prompt": [5, 6]}, 400, "prompt", "invalid_value"),
        *((TEXT, {"prompt": text}, 400, "prompt", "invalid_value") for text in ("", "a")),
        (TEXT, {"prompt": MARKED + "<document>"}, 400, "documents", "invalid_value"),
        (TEXT, [], 400, None, "invalid_value"),
    ],
)  # fmt: skip
def test_wrong_request_is_an_error_of_the_api(
    client: TestClient, path: str, body: Any, status: int, field: str | None, code: str
) -> None:
    response = client.post(path, json=body)
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (status, field, code)
    assert error["type"] == "invalid_request_error" and "\n" not in error["message"]
    assert len(response.content) < 1500


def test_long_prompt_is_not_tokenized(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_app, "tokenize_body", lambda *_: pytest.fail())
    response = client.post(TEXT, json={"prompt": "a " * 4096 * MAX_CHARACTERS_PER_TOKEN})
    assert response.json()["error"]["code"] == "context_length_exceeded"


def test_request_of_wrong_form_is_rejected(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    as_json = {"content-type": "application/json"}
    assert client.post(CHAT, content="{", headers=as_json).status_code == 400
    assert client.post(CHAT, content="[" * 100_000, headers=as_json).status_code == 400
    assert (
        client.post(CHAT, content=json.dumps(BODY), headers={"content-type": "text/plain"}).status_code == 415
    )
    assert client.get("/v1/images").json()["error"]["code"] == "not_found"
    assert client.get(CHAT).status_code == 405
    response = client.get("/health", headers={"host": "evil.example"})
    assert (response.status_code, response.json()["error"]["code"]) == (400, "unknown_host")
    monkeypatch.setattr(server_app, "MAX_BYTES", 20)
    assert client.post(CHAT, json=BODY).status_code == 413


def test_api_key_is_required_and_names_the_client(engine: Engine) -> None:
    client = client_of(engine, api_keys=("first", "zweiter-schlüssel"))
    assert client.get("/health").status_code == 200
    for key in ("", "wrong", "firs"):
        response = client.get("/v1/models", headers={"authorization": f"Bearer {key}"})
        assert (response.status_code, response.json()["error"]["code"]) == (401, "invalid_api_key")
        assert client.post(CHAT, json=BODY, headers={"authorization": key}).status_code == 401
    for header in ("Bearer first", "bearer  first"):
        assert client.get("/v1/models", headers={"authorization": header}).status_code == 200


def test_browsers_of_allowed_origins_may_read(engine: Engine) -> None:
    origin, header = "https://app.example", "access-control-allow-origin"
    headers = {"origin": origin, "access-control-request-method": "POST"}
    headers["access-control-request-headers"] = "authorization,content-type,x-stainless-lang"
    client = client_of(engine, allowed_origins=(origin,), api_keys=("a",))
    preflight = client.options(CHAT, headers=headers)
    assert preflight.is_success and preflight.headers[header] == origin
    assert client.post(CHAT, json=BODY, headers={"origin": origin}).headers[header] == origin  # an error
    assert header not in client.options(CHAT, headers=headers | {"origin": "https://b.example"}).headers
    assert header not in client_of(engine).post(CHAT, json=BODY, headers={"origin": origin}).headers


def test_full_queue_and_long_answers_are_rejected(engine: Engine) -> None:
    server = Server(engine, ServerSettings(queue_size=1))
    client = TestClient(server.app(), base_url="http://localhost")
    with ExitStack() as stack:
        for address in ("a", "b"):
            stack.enter_context(server.runs.queue.join(Client(address, address))).wait(0)
        for body in (BODY, {**BODY, "stream": True}):
            response = client.post(CHAT, json=body)
            assert response.status_code == 429 and response.headers["retry-after"]
            assert response.json()["error"]["code"] == "rate_limit_exceeded"
    post(client, CHAT, **BODY)
    slow = client_of(engine, max_seconds=0.001, max_new_tokens=2000)
    response = slow.post(CHAT, json=BODY | {"max_tokens": 2000})
    assert (response.status_code, response.json()["error"]["code"]) == (504, "timeout")
    *_, last = slow.post(CHAT, json=BODY | {"max_tokens": 2000, "stream": True}).text.strip().split("\n\n")
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "timeout"


@pytest.mark.parametrize("error", [ZeroDivisionError("secret"), ModelError("The head is missing.")])
def test_fault_of_server_is_logged(
    engine: Engine, error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_app, "tokenize_body", MagicMock(side_effect=error))
    response = client_of(engine).post(CHAT, json=BODY)
    assert response.status_code == 500 and "secret" not in response.text
    (record,) = caplog.records
    assert record.exc_info and record.exc_info[1] is error


MORE: list[dict[str, Any]] = [{}, {"stream": True}, {"documents": []}]
REASON = "roles must alternate user/assistant"
ALTERNATING = (
    "{% for message in messages %}{% if loop.index0 % 2 and message['role'] == 'user' %}"
    f"{{{{ raise_exception('{REASON}') }}}}{{% endif %}}{{% endfor %}}{CHAT_TEMPLATE}"
)


@pytest.mark.parametrize(
    ("template", "more", "field", "word"),
    [*((ALTERNATING, more, "messages", REASON) for more in MORE),
     *((template, {}, "chat_template", "Error")
       for template in ("{{ messages[9].content | upper }}", "{{ 1 / 0 }}", "{% for %}"))],
)  # fmt: skip
def test_failure_of_the_template_is_an_error_of_the_request(
    engine: Engine, template: str, more: dict[str, Any], field: str, word: str,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(engine.tokenizer, "chat_template", template)
    response = client_of(engine).post(CHAT, json=BODY | more | {"messages": [*MESSAGES, USER]})
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, field)
    assert word in error["message"] and not caplog.records


@pytest.mark.parametrize("kind", ["message", "text"])
def test_messages_of_clients_are_accepted(client: TestClient, kind: str) -> None:
    more: dict[str, Any] = {"type": kind, "name": "ann", "tool_calls": None, "audio": None}
    parts = [{"type": "output_text", "text": "Ann.", "annotations": []}]
    answer: dict[str, Any] = {"role": "assistant", "content": parts}
    answer |= {"reasoning_content": "Who?", "refusal": "No.", "annotations": [{}], "function_call": None}
    plain = post(client, CHAT, messages=[USER, {"role": "assistant", "content": "Ann."}, USER], max_tokens=3)
    options: Any = {"max_tokens": 3, "stop": None, "stream_options": {"include_usage": None}}
    found = post(client, CHAT, messages=[{**USER, **more}, {**answer, **more}, USER], **options)
    names = ("choices", "usage")
    assert [found[name] for name in names] == [plain[name] for name in names]


@pytest.mark.parametrize(
    ("more", "name"),
    [({"tool_calls": [{"id": "1"}]}, "tool_calls"), ({"function_call": {"name": "f"}}, "function_call"),
     ({"role": "tool", "tool_call_id": "1"}, "tool_call_id"), ({"type": "reasoning"}, "reasoning"),
     ({"content": [{"type": "image_url", "image_url": {"url": "a"}}]}, "image_url"),
     ({"content": [{"type": "input_image"}]}, "input_image")],
)  # fmt: skip
def test_tools_and_images_are_refused_by_name(client: TestClient, more: dict[str, Any], name: str) -> None:
    response = client.post(CHAT, json=BODY | {"messages": [{**USER, **more}, USER]})
    error = response.json()["error"]
    assert response.status_code == 400 and error["param"].startswith("messages[0]")
    assert name in error["message"]


@pytest.mark.parametrize("role", ["assistant", "user", "system"])
def test_empty_message_is_left_out(client: TestClient, role: str) -> None:
    plain = post(client, CHAT, messages=[USER], max_tokens=1)
    parts = [{"type": "text", "text": text} for text in ("", "Who?")]
    chats: list[Any] = [[{**USER, "content": parts}]]
    for content in ("", None, " \n", [], parts[:1]):
        empty = {"role": role, "content": content}
        chats += [[empty, USER], [USER, empty]]
        answer = post(client, RESPONSES, input=[empty, USER], max_output_tokens=1)
        assert answer["usage"]["input_tokens"] == plain["usage"]["prompt_tokens"]
    for chat in chats:
        found = post(client, CHAT, messages=chat, max_tokens=1)
        assert (found["choices"], found["usage"]) == (plain["choices"], plain["usage"])


@pytest.mark.parametrize(
    ("path", "name", "body"),
    [(CHAT, "max_tokens", BODY), (CHAT, "max_completion_tokens", {"messages": [USER]}),
     (TEXT, "max_tokens", PROMPT), (RESPONSES, "max_output_tokens", {"input": "Who?"})],
)  # fmt: skip
def test_answer_beyond_the_limit_is_capped(engine: Engine, path: str, name: str, body: Any) -> None:
    client = client_of(engine, max_new_tokens=3)
    found = post(client, path, **body | {name: 10**30})
    assert found["pine_engine"]["max_new_tokens"] == 3
    usage = found["usage"]
    assert usage.get("completion_tokens", usage.get("output_tokens")) == 3
    reason = found.get("incomplete_details") or found["choices"][0]
    assert reason.get("finish_reason", reason.get("reason")) in ("length", "max_output_tokens")


@pytest.fixture
def running(engine: Engine) -> Iterator[tuple[str, Server]]:
    with running_server(engine, max_new_tokens=3000) as found:
        yield found


LONG_BODY = {**BODY, "max_tokens": 3000}


@pytest.mark.parametrize("is_stream", [False, True])
def test_disconnected_client_stops_its_computation(running: tuple[str, Server], is_stream: bool) -> None:
    url, server = running
    if is_stream:
        with httpx.stream("POST", f"{url}{CHAT}", json={**LONG_BODY, "stream": True}) as response:
            lines = response.iter_lines()
            while '"content": ""' in (line := next(lines)) or not line:
                pass
            assert "content" in line
    else:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{url}{CHAT}", json=LONG_BODY, timeout=0.5)
    wait_until(lambda: server.runs.num_open == 0 and not server.runs.queue.waiting)
    wait_until(lambda: not server.runs.queue._tickets, seconds=2.0)
    assert server.runs.outcomes == {"disconnected": 1}


def test_queued_client_may_leave(running: tuple[str, Server]) -> None:
    url, server = running
    with server.runs.queue.join() as ticket:
        assert ticket.wait(0) == 0
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{url}{CHAT}", json=BODY, timeout=0.3)
        wait_until(lambda: server.runs.num_open == 0 and server.runs.queue.waiting == 0)
    assert httpx.get(f"{url}/health").json()["status"] == "ready"
    values = metric_values(httpx.get(f"{url}/metrics").text)
    assert values["pine_requests_total", "disconnected"] == 1
    assert values["pine_running",] == values["pine_waiting",] == 0


def test_health_has_the_fields_of_the_page(running: tuple[str, Server]) -> None:
    page = (ROOT / "docs" / "hosting.md").read_text(encoding="utf-8").partition("`GET /health`")[2]
    record = page[page.index("{") : page.index("}") + 1]
    assert httpx.get(f"{running[0]}/health").json().keys() == json.loads(record).keys()


def test_request_has_its_place_while_it_is_tokenized(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    is_free = threading.Event()

    def tokenize_later(*arguments: Any) -> Any:
        if arguments[1].messages[-1].content == "Wait":
            is_free.wait(20)
        return tokenize_body(*arguments)

    monkeypatch.setattr(server_app, "tokenize_body", tokenize_later)
    waiting = {**BODY, "messages": [{"role": "user", "content": "Wait"}]}
    with running_server(engine, queue_size=4, api_keys=("a", "b")) as (url, server), ExitStack() as stack:
        stack.callback(is_free.set)
        for _ in range(2):
            with pytest.raises(httpx.ReadTimeout):
                post_with_key(url, "a", waiting)
        assert len(server.runs.queue._tickets) == 2
        assert post_with_key(url, "a", BODY).status_code == 429  # half of the queue
        assert post_with_key(url, "b", BODY, seconds=60).is_success
        is_free.set()
        assert server.runs.wait(20)
        assert server.runs.outcomes == {"disconnected": 2, "rejected": 1, "done": 1}


def post_with_key(url: str, key: str, body: Any, seconds: float = 0.5) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"}
    return httpx.post(f"{url}{CHAT}", json=body, headers=headers, timeout=seconds)


def test_concurrent_requests_are_all_answered(running: tuple[str, Server]) -> None:
    url, server = running
    with ThreadPoolExecutor(6) as threads:
        answers = threads.map(lambda _: httpx.post(f"{url}{CHAT}", json=BODY, timeout=60).json(), range(6))
    assert len({answer["choices"][0]["message"]["content"] for answer in answers}) == 1
    assert server.runs.wait(10)  # a run ends after its answer
    assert server.runs.outcomes == {"done": 6} and server.tokens["generated"] == 36


def test_half_requests_are_closed_while_others_are_answered(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 1.0)
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
    with running_server(engine) as (address, _), ExitStack() as stack:
        port = httpx.URL(address).port
        half = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 20)) for _ in range(50)]
        for number, connection in enumerate(half):
            connection.sendall(head[: number % len(head)])
        assert httpx.get(f"{address}/health", timeout=20).is_success
        assert [connection.recv(1000) for connection in half] == [b""] * len(half)
