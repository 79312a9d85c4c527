"""The client of OpenAI, as it is, against the server on a port."""

from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionUserMessageParam

from pine_engine import Engine
from tests.support.api_server import running_server
from tests.support.families import TinyLlama
from tests.support.tokenizers import letter_tokenizer

TEXTS = ["Ann has it.", "Ben has none."]
QUESTION: ChatCompletionUserMessageParam = {"role": "user", "content": "Who?"}


@pytest.mark.slow
def test_openai_client_reads_all_answers(tiny_llama: TinyLlama) -> None:
    engine = Engine(tiny_llama(max_context_length=4096), letter_tokenizer(), name="tiny")
    documents = {"documents": TEXTS, "method": "pine"}
    run = engine.run(question="Who?", documents=TEXTS, methods="pine", max_new_tokens=6)
    answer = run.answers["pine"]
    with running_server(engine, api_keys=("a-key",), max_active_runs=1) as (address, _):
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="a-key")
        assert next(iter(client.models.list())).id == "tiny"
        chat = client.chat.completions.create(
            model="default",
            messages=[QUESTION],
            max_tokens=6,
            logprobs=True,
            top_logprobs=3,
            extra_body=documents,
        )
        (choice,) = chat.choices
        assert choice.message.content == answer.text and choice.logprobs and choice.logprobs.content
        assert tuple(token.logprob for token in choice.logprobs.content) == answer.logprobs
        assert all(len(token.top_logprobs) == 3 for token in choice.logprobs.content)
        stream = client.chat.completions.create(
            model="default",
            messages=[QUESTION],
            max_tokens=6,
            stream=True,
            extra_body=documents,
        )
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == answer.text
        response = client.responses.create(
            model="tiny:pine", input="Who?", max_output_tokens=6, extra_body={"documents": TEXTS}
        )
        assert response.output_text == answer.text and response.usage
        events = client.responses.create(
            model="tiny:pine",
            input="Who?",
            max_output_tokens=6,
            stream=True,
            extra_body={"documents": TEXTS},
        )
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        assert "".join(deltas) == answer.text
        turns: list[Any] = [QUESTION, choice.message, QUESTION]
        again = client.chat.completions.create(model="default", messages=turns, max_tokens=2)
        assert again.usage and again.usage.completion_tokens <= 2
        with pytest.raises(openai.BadRequestError) as raised:
            client.responses.create(model="default", input="Who? " * 4000, max_output_tokens=6)
        assert raised.value.code == "context_length_exceeded"
