"""`pipeline("pine-text-generation")`: against the engine, from a folder and from a loaded model."""

from pathlib import Path
from typing import Any

import pytest
from transformers import pipeline

from pine_engine import Engine, InputError, PinePipeline

DOCUMENTS = ["Ann has it.", {"title": "B", "text": "Ben."}]


@pytest.fixture(scope="module")
def pipe(tiny: Path) -> Any:
    make: Any = pipeline  # its overloads have the tasks of transformers alone
    return make("pine-text-generation", model=str(tiny), max_new_tokens=4, device="cpu")


def answer_of(pipe: PinePipeline, method: str = "pine", **parts: Any) -> dict[str, str]:
    run = Engine(pipe.model, pipe.tokenizer).run(
        documents=DOCUMENTS, methods=method, max_new_tokens=4, **parts
    )
    return {"answer": run.answers[method].text}


@pytest.mark.parametrize("method", ["vanilla", "pine"])
def test_questions_and_chats_have_answers_of_engine(pipe: Any, method: str) -> None:
    questions = ["Who?", "Where is it?"]
    expected = [answer_of(pipe, method, question=question) for question in questions]
    for batch_size in (1, 2):
        found = pipe(questions, documents=DOCUMENTS, method=method, batch_size=batch_size)
        assert found == expected
    assert pipe(questions[1], documents=DOCUMENTS, method=method) == expected[1]
    chat = [{"role": "system", "content": "Brief."}, {"role": "user", "content": "Who?"}]
    assert pipe(chat, documents=DOCUMENTS, method=method) == answer_of(pipe, method, messages=chat)


def test_request_of_own_documents_precedes_options(pipe: Any) -> None:
    request = {"question": "Who?", "documents": DOCUMENTS}
    assert pipe(request, documents=["Cy."]) == answer_of(pipe, question="Who?")


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({}, "documents"),
        ({"documents": DOCUMENTS, "temperature": 1}, "temperature"),
        ({"documents": DOCUMENTS, "method": ["vanilla", "pine"]}, "method"),
        ({"documents": DOCUMENTS, "methods": ["pine"]}, "method"),
    ],
)
def test_wrong_option_raises(pipe: Any, options: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as raised:
        pipe("Who?", **options)
    assert raised.value.field == field
