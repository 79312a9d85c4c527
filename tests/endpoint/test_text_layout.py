"""Prompts as bytes: no text is lost, no data is a control token, and documents move as wholes."""

from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st

from pine_engine import TASKS, Document, Request
from pine_engine.endpoint.text_layout import ROLES, TextTokenizer, as_text
from pine_engine.prompts.layout import tokenize
from pine_engine.prompts.messages import Message

ENDPOINT = SimpleNamespace(tokenizer=TextTokenizer())
TEXTS = st.one_of(st.text(min_size=1), st.sampled_from([f"<|{role}|>" for role in ROLES])).filter(
    lambda text: text.strip() and text.encode(errors="replace").decode() == text
)


@given(st.lists(TEXTS, min_size=1, max_size=4), TEXTS, TEXTS, st.randoms(use_true_random=False))
def test_messages_are_those_of_the_task(texts: list[str], question: str, system: str, random: Random) -> None:
    order = list(range(len(texts)))
    random.shuffle(order)
    request = Request(question=question, documents=list(map(Document, texts)), system=system)
    layout = tokenize(request.prompt(ENDPOINT), ENDPOINT.tokenizer).reorder(order)
    task = TASKS[request.task]
    documents = "".join(task.untitled_document.format(text=texts[index]) for index in order)
    content = (
        task.prefix.format(instruction=task.instruction) + documents + task.suffix.format(question=question)
    )
    assert as_text(layout) == [{"role": "system", "content": system}, {"role": "user", "content": content}]


def test_earlier_turns_keep_their_roles() -> None:
    turns = [Message("user", "Hi."), Message("assistant", "Yes?"), Message("user", "Who?")]
    prompt = Request(documents=[Document("Ann.")], messages=turns).prompt(ENDPOINT)
    messages = as_text(tokenize(prompt, ENDPOINT.tokenizer))
    assert isinstance(messages, list)
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert messages[:2] == [{"role": turn.role, "content": turn.content} for turn in turns[:2]]


@pytest.mark.parametrize("task", [name for name, task in TASKS.items() if not task.uses_chat_template])
def test_task_without_chat_template_is_plain_text(task: str) -> None:
    text = as_text(
        tokenize(
            Request(question="Who?", documents=[Document("Ann.")], task=task).prompt(ENDPOINT),
            ENDPOINT.tokenizer,
        )
    )
    assert isinstance(text, str) and "Ann." in text and "Who?" in text
