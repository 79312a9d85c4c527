"""Chats in rows of preference data and of pipelines: their last message is the answer, in every file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from pine_engine import Document, LabeledRequest, Request
from pine_engine.cli.output import BAD_INPUT
from pine_engine.prompts.examples import Example, read_examples
from pine_engine.prompts.request import read_requests
from pine_engine.rows.document_files import read_documents
from pine_engine.rows.parse_errors import ValidationErrors
from tests.support.commands import Run


def chat(*texts: str) -> list[dict[str, Any]]:
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]


def sharegpt(*texts: str) -> list[dict[str, str]]:
    return [{"from": ("human", "gpt")[place % 2], "value": text} for place, text in enumerate(texts)]


def hh(*texts: str) -> str:
    speakers = ("Human", "Assistant")
    return "".join(f"\n\n{speakers[place % 2]}: {text}" for place, text in enumerate(texts))


def in_parts(*texts: str) -> list[dict[str, Any]]:
    return [{**one, "content": [{"type": "text", "text": one["content"]}]} for one in chat(*texts)]


def in_columns(*texts: str) -> dict[str, list[str]]:
    return {key: [one[key] for one in chat(*texts)] for key in ("role", "content")}


def as_json(*texts: str) -> str:
    return json.dumps(chat(*texts))


def answer_alone(text: str) -> list[dict[str, Any]]:
    return chat("", text)[1:]


def pair(make: Callable[..., Any], *texts: str) -> dict[str, Any]:
    return {"chosen": make(*texts, "Ann."), "rejected": make(*texts, "Ben.")}


PLAIN = {"chosen": "Ann.", "rejected": "Ben."}
TURNS, WHO = ("Hi", "Hello", "Who?"), "User: Hi\n\nAssistant: Hello\n\nUser: Who?"
PREFERENCES: dict[str, tuple[dict[str, Any], str]] = {
    "UltraFeedback": ({"prompt": "Who?", **pair(chat, "Who?")}, "Who?"),
    "UltraFeedback of the hub": (
        {"prompt": "Who?", "prompt_id": "1", "messages": chat("Who?", "Ann."), **pair(chat, "Who?")},
        "Who?",
    ),
    "without prompt": (pair(chat, "Who?"), "Who?"),
    "DPO of TRL": ({"prompt": chat("Who?"), **pair(answer_alone)}, "Who?"),
    "several turns": (pair(chat, *TURNS) | {"rejected": chat("Hi", "Hello ", "Who?", "Ben.")}, WHO),
    "turns in prompt": ({"prompt": chat(*TURNS), **PLAIN}, WHO),
    "ShareGPT": (pair(sharegpt, "Who?"), "Who?"),
    "HH-RLHF": (pair(hh, *TURNS), WHO),
    "HH-RLHF with prompt": ({"prompt": hh("Who?", ""), **PLAIN}, "Who?"),
    "columns of messages": (pair(in_columns, "Who?"), "Who?"),
    "messages as JSON": (pair(as_json, "Who?"), "Who?"),
    "contents in parts": (pair(in_parts, "Who?"), "Who?"),
    "lists of chats": ({"chosen": [chat("Who?", "Ann.")], "rejected": [chat("Who?", "Ben.")]}, "Who?"),
    "system of the assistants": (
        {"system": "Be kind.", "question": "Who?", **PLAIN},
        "System: Be kind.\n\nUser: Who?",
    ),
    "JudgeBench": (
        {"question": "Who?", "response_A": chat("Who?", "Ann."), "response_B": "Ben.", "label": "A>B"},
        "Who?",
    ),
    "own documents": (
        {
            **{"task": "judge", "question": "Who?", "answers": ["A"], "gold_index": 0},
            "documents": [chat("Who?", "Ann."), chat("Who?", "Ben.")],
        },
        "Who?",
    ),
}


def in_files(row: dict[str, Any], folder: Path) -> list[Path]:
    """Write a row as JSON lines, Parquet, CSV, and as CSV of a table that was read from Parquet."""
    paths = [folder / name for name in ("row.jsonl", "row.parquet", "row.csv", "again.csv")]
    paths[0].write_text(json.dumps(row) + "\n", encoding="utf-8")
    pd.DataFrame([row]).to_parquet(paths[1])
    pd.DataFrame([row]).to_csv(paths[2], index=False)
    pd.read_parquet(paths[1]).to_csv(paths[3], index=False)  # arrays of numpy, without commas
    return paths


@pytest.mark.parametrize("name", PREFERENCES)
def test_last_messages_are_the_compared_answers(name: str, tmp_path: Path) -> None:
    row, question = PREFERENCES[name]
    for path in in_files(row, tmp_path):
        try:
            (example,) = read_examples(path)
        except ValidationErrors as error:  # a printed array within a list or an object
            assert path.name == "again.csv" and error.problems[0].line == 2 and error.field in row
            continue
        assert (example.task, example.question, example.system) == ("judge", question, "")
        assert (example.documents, example.answers) == ([Document("Ann."), Document("Ben.")], ["A"])
        assert example.gold_index == 0
        assert read_documents([path]) == example.documents
        if "system" not in row:
            ((_, request),) = read_requests(path, LabeledRequest)
            assert (request.question, request.documents) == (question, example.documents)


def test_texts_of_several_answers_stay_a_list(tmp_path: Path) -> None:
    row = {"prompt": "Who?", "chosen": ["Ann.", "She."], "rejected": ["Ben.", "Cy."]}
    for path in in_files(row, tmp_path):
        (example,) = read_examples(path)
        assert [one.text for one in example.documents] == ["Ann.", "She.", "Ben.", "Cy."]
        assert example.answers == ["A", "B"]


def test_chats_that_differ_early_keep_their_turns(tmp_path: Path) -> None:
    row = {"chosen": hh("Hi", "Hello", "Who?", "Ann."), "rejected": hh("Hi", "Hey", "Who?", "Ben.")}
    (example,) = read_examples(in_files(row, tmp_path)[0])
    assert example.question == "Hi"
    assert example.documents[1].text == "Assistant: Hey\n\nUser: Who?\n\nAssistant: Ben."


NO_ANSWER: list[tuple[dict[str, Any], str]] = [
    ({"chosen": chat("Who?"), "rejected": chat("Who?", "Ben.")}, "chosen"),
    ({"chosen": chat("Who?", "Ann."), "rejected": chat("Who?", "Ben.", "Why?")}, "rejected"),
    ({"chosen": chat("Who?", " "), "rejected": chat("Who?", "Ben.")}, "chosen"),
    ({"chosen": chat("Who?", "Ann."), "rejected": chat("Whom?", "Ben.")}, "chosen"),
    ({"question": "Who?", "response_A": sharegpt("Who?"), "response_B": "Ben."}, "response_A"),
    ({"conversation_a": chat("Who?", "Ann."), "conversation_b": chat("Who?")}, "conversation_b"),
    ({"conversation_a": "Ann.", "conversation_b": chat("Who?")}, "conversation_a"),
    ({"prompt": ["Who?"], **PLAIN}, "question"),
    ({"question": "Who?", "documents": ["Ann.", "Ben."], "answers": chat("Who?")}, "answers"),
    ({"question": "Who?", "documents": ["Ann.", "Ben."], "choices": [chat("Who?")]}, "choices"),
    ({"question": "Who?", "documents": chat("Who?", "Ann."), "task": "judge"}, "documents"),
    ({"question": "Who?", "documents": [chat("Who?"), chat("Who?", "Ann.")], "task": "judge"}, "documents"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "field"), NO_ANSWER, ids=lambda value: str(value)[:60])
def test_chat_without_answer_names_row_and_field(row: dict[str, Any], field: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in (PREFERENCES["UltraFeedback"][0], row)))
    with pytest.raises(ValidationErrors) as raised:
        read_examples(path)
    assert [(problem.line, problem.field) for problem in raised.value.problems] == [(2, field)]


def test_answers_of_assistants_may_have_roles() -> None:
    answers = [{"role": "assistant", "content": text} for text in ("Ann.", "Ben.")]
    Request.model_validate({"question": "Who?", "documents": answers, "task": "judge"}).check()
    messages = {"question": "Who?", "documents": chat("Who?", "Ann.")}  # searched by retrieval
    Request.model_validate(messages).check()


@pytest.mark.parametrize("name", ["answers", "answer", "ground_truth"])
@pytest.mark.parametrize("value", [chat("Who?", "Ann"), sharegpt("Who?", "Ann"), chat("", "Ann")[1]])
def test_chat_is_one_accepted_answer(name: str, value: Any) -> None:
    row = {"question": "Who?", "documents": ["a", "b"], name: value, "choices": [value, "Ben"]}
    example = Example.model_validate(row)
    assert (example.answers, example.choices) == (["Ann"], ["Ann", "Ben"])


def test_evaluate_rejects_chat_without_answer(tmp_path: Path, pine: Run) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(NO_ANSWER[0][0]), encoding="utf-8")
    printed = pine("evaluate", path, "--output-dir", tmp_path / "run")
    assert printed.status == BAD_INPUT and "line 1: chosen" in printed.stderr
