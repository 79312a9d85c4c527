"""Rows of multiple choice as published: the right question, options and accepted letters, or an error."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from pine_engine import InputError
from pine_engine.lab.evaluation.settings import choose
from pine_engine.prompts.examples import Example, read_examples
from pine_engine.prompts.request import LabeledRequest, read_requests
from pine_engine.rows.parse_errors import ValidationErrors

STEM = "Which planet is the largest?"
TEXTS = ["Mars", "Venus", "Jupiter", "Earth"]
LETTERS = list("ABCD")
PUBLISHED: dict[str, dict[str, Any]] = {
    "mmlu": {"question": STEM, "subject": "astronomy", "choices": TEXTS, "answer": 2},
    "mmlu-pro": {"question_id": 7, "question": STEM, "options": TEXTS, "answer": "C", "answer_index": 2},
    "mmmlu": {"Question": STEM, **dict(zip(LETTERS, TEXTS, strict=True)), "Answer": "C"},
    "arc": {"id": "x", "question": STEM, "choices": {"text": TEXTS, "label": LETTERS}, "answerKey": "C"},
    "arc by number": {"question": STEM, "choices": {"text": TEXTS, "label": list("1234")}, "answerKey": "3"},
    "openbookqa": {"question_stem": STEM, "choices": {"text": TEXTS, "label": LETTERS}, "answerKey": "C"},
    "commonsenseqa": {
        "question": STEM, "question_concept": "planet", "answerKey": "C",
        "choices": {"label": LETTERS, "text": TEXTS},
    },
    "commonsenseqa of its authors": {
        "answerKey": "C", "id": "y",
        "question": {"stem": STEM, "choices": [
            {"label": label, "text": text} for label, text in zip(LETTERS, TEXTS, strict=True)
        ]},
    },
    "medqa": {
        "question": STEM, "answer": "Jupiter", "answer_idx": "C",
        "options": dict(zip(LETTERS, TEXTS, strict=True)),
    },
    "by letter": {"question": STEM, "options": TEXTS, "answer": "(c)"},
    "by text": {"question": STEM, "options": TEXTS, "answer": "Jupiter"},
    "by index as text": {"question": STEM, "options": TEXTS, "answer": "2"},
    "list": {"question": STEM, "options": TEXTS, "answers": ["C"]},
    "documents": {"task": "options", "question": STEM, "documents": TEXTS, "answers": ["C"], "gold_index": 2},
}  # fmt: skip


def read(tmp_path: Path, *rows: Any, task: str = "") -> list[Example]:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return read_examples(path, task=task)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_row_has_its_question_and_options(name: str, tmp_path: Path) -> None:
    (example,) = read(tmp_path, PUBLISHED[name])
    assert (example.task, example.question) == ("options", STEM)
    assert [document.text for document in example.documents] == TEXTS
    assert (example.answers, example.gold_index) == (["C"], 2)
    assert example.scored_choices == tuple(LETTERS)


@pytest.mark.parametrize(("task", "choices"), [("options", LETTERS), ("option_texts", LETTERS), ("judge", 4)])
def test_task_option_replaces_the_task_of_rows(task: str, choices: Any, tmp_path: Path) -> None:
    (example,) = read(tmp_path, PUBLISHED["mmlu"], task=task)
    assert example.task == task and len(example.scored_choices) == 4
    assert choices in (list(example.scored_choices), 4)


@pytest.mark.parametrize("ending", ["csv", "json"])
@pytest.mark.parametrize("name", ["mmlu", "arc", "mmmlu", "by text"])
def test_tables_and_arrays_have_the_same_rows(name: str, ending: str, tmp_path: Path) -> None:
    path, rows = tmp_path / f"rows.{ending}", [PUBLISHED[name]] * 2
    rows = [{**row, "id": str(number)} for number, row in enumerate(rows)]
    if ending == "csv":
        pd.DataFrame(rows).to_csv(path)
    else:
        path.write_text(json.dumps(rows), encoding="utf-8")
    first, second = read_examples(path)
    assert first.answers == second.answers == ["C"] and first.documents == second.documents
    assert [document.text for document in first.documents] == TEXTS


@pytest.mark.parametrize(
    ("row", "letters"),
    [
        ({"options": ["1", "2", "4"], "answer": 1}, ["B"]),  # a number is an index
        ({"options": ["1", "2", "4"], "answer": 4}, ["C"]),  # or else a text
        ({"options": [2, 4, 8], "answer": "8"}, ["C"]),
        ({"options": ["True", "False"], "answer": False}, ["B"]),
        ({"options": list("abcdefghijkl"), "answer": "L"}, ["L"]),
        ({"options": ["x", "y", "z"], "answer": ["A", "z"]}, ["A", "C"]),
        ({"options": ["x", "y"], "answer": ""}, []),
        ({"options": ["x", "y"]}, []),
        ({"choices": {"text": ["x", "y"], "label": ["B", "A"]}, "answerKey": "B"}, ["A"]),
    ],
)
def test_answer_names_options(row: dict[str, Any], letters: list[str], tmp_path: Path) -> None:
    (example,) = read(tmp_path, {"question": STEM, **row})
    assert example.answers == letters
    assert (example.gold_index is None) == (len(letters) != 1)


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"options": ["x", "y"], "answer": "E"}, "answer"),
        ({"options": ["x", "y"], "answer": 2}, "answer"),
        ({"choices": ["x", "y"], "answer": -1}, "answer"),
        ({"options": ["O", "AB", "B", "A"], "answer": "A"}, "answer"),  # a letter and another text
        ({"options": ["2", "1", "0"], "answer": "0"}, "answer"),  # an index and another text
        ({"options": ["x", "x"], "answer": "x"}, "answer"),
        ({"options": "A) x B) y", "answer": "A"}, "options"),
        ({"options": ["x", " "], "answer": "A"}, "options[1]"),
        ({"options": ["x", None], "answer": "A"}, "options[1]"),
        ({"choices": {"text": ["x", "y"], "label": ["A"]}, "answerKey": "A"}, "choices"),
        ({"options": ["x"], "answer": "A"}, "documents"),
        ({"options": list(map(str, range(27))), "answer": "A"}, "options"),
        ({"A": "x", "B": "y", "D": "z", "answer": "A"}, "a"),
    ],
)
def test_malformed_row_is_refused_by_its_field(row: dict[str, Any], field: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationErrors) as caught:
        read(tmp_path, PUBLISHED["mmlu"], {"question": STEM, **row})
    (problem,) = caught.value.problems
    assert (problem.field, problem.line) == (field, 2)


def test_passage_precedes_the_question(tmp_path: Path) -> None:
    (example,) = read(tmp_path, {**PUBLISHED["by text"], "article": "Planets."})
    assert example.question == f"Planets.\n\n{STEM}"


@pytest.mark.parametrize(
    "row",
    [
        {"task": "few_shot", "question": STEM, "choices": ["x", "y"], "answers": ["x"]},
        {"question": STEM, "documents": ["Mars is red."], "choices": ["yes", "no"], "answers": ["no"]},
        {"question": STEM, "context": ["Mars is red."], "options": ["yes", "no"], "answers": ["no"]},
    ],
)
def test_rows_of_other_tasks_keep_their_documents(row: dict[str, Any], tmp_path: Path) -> None:
    if "documents" not in row and "context" not in row:
        with pytest.raises(InputError):
            read(tmp_path, row)
        return
    (example,) = read(tmp_path, row)
    assert (example.task, len(example.documents), example.answers) == ("retrieval_qa", 1, ["no"])


def test_rows_are_requests_of_other_commands(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(PUBLISHED["arc"]), encoding="utf-8")
    ((name, request),) = read_requests(path, LabeledRequest)
    assert (name, request.task, request.question, len(request.documents)) == ("x", "options", STEM, 4)


def test_rows_of_several_sizes_have_letters_of_their_own(tmp_path: Path) -> None:
    rows = [{"question": STEM, "options": TEXTS[:count], "answer": 1} for count in (2, 3, 4)]
    examples = read(tmp_path, *rows)
    assert [len(example.scored_choices) for example in examples] == [2, 3, 4]
    choose(examples, methods=["pride", "permutation_cyclic", "calibration_labels"])
