"""Files into inputs, and one clear sentence for every file that cannot be used."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaForCausalLM

from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError
from pine_engine.prompts.inputs import DataRow, DocumentInput, Request, read_comparison, read_rows
from pine_engine.prompts.tasks import TASKS
from tests.support.tokenizers import letter_tokenizer

COMPARISON: dict[str, Any] = {"question": "Why?", "documents": ["one", {"title": "Two", "text": "two"}]}
ROW: dict[str, Any] = {
    "id": "a-1",
    "task": "retrieval_qa",
    "question": "Why?",
    "documents": [{"text": "one"}, {"text": "two"}],
}

DOCUMENT = 'a text or {"text": ..., "title": ...}'
UNKNOWN = "but there is no such field; remove it, or correct its name"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "given.json"


def write(file: Path, content: Any) -> Path:
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return file


def sentence(read: Callable[[Path], Any], path: Path) -> str:
    with pytest.raises(InputError) as raised:
        read(path)
    text = str(raised.value)
    assert "\n" not in text
    return text


# one comparison


def test_a_comparison_is_read_as_it_is_written(file: Path) -> None:
    given = {**COMPARISON, "instruction": "In a word.", "system": "Be kind.", "task": "math_reasoning"}
    assert read_comparison(write(file, given)) == Request(
        question="Why?",
        documents=[DocumentInput(text="one"), DocumentInput(title="Two", text="two")],
        instruction="In a word.",
        system="Be kind.",
        task="math_reasoning",
    )


def test_only_documents_are_required_and_questions_over_documents_are_the_task(file: Path) -> None:
    comparison = Request.model_validate({"documents": ["one"]})
    assert comparison.model_dump() == {
        "question": "",
        "documents": [{"text": "one", "title": ""}],
        "instruction": "",
        "system": "",
        "task": "retrieval_qa",
    }


def test_a_plain_list_of_texts_is_the_documents(file: Path) -> None:
    given = ["one", {"title": "Two", "text": "two"}]
    assert Request.model_validate(given) == Request(documents=COMPARISON["documents"])
    assert sentence(read_comparison, write(file, given)) == f"{file}: there is no question; write one"


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    missing = tmp_path / "no such file.json"
    assert sentence(read_comparison, missing) == (
        f"{missing} cannot be read: No such file or directory; give the path of a file that exists"
    )
    assert sentence(read_rows, tmp_path) == (
        f"{tmp_path} cannot be read: Is a directory; give the path of a file that exists"
    )


def test_a_file_that_is_not_text_is_said(file: Path) -> None:
    file.write_bytes(b'{"question": "\xff"}')
    assert sentence(read_comparison, file) == f"{file} is not UTF-8 text; save it as UTF-8"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "it is not JSON: Expecting value at line 1 column 1"),
        ('{"question": }', "it is not JSON: Expecting value at line 1 column 14"),
        ('{\n"question": "a\n"}', "it is not JSON: Invalid control character at at line 2 column 15"),
        ("[" * 100_000, "it cannot be read as JSON: a number in it is too long, or it is nested too deeply"),
        ("1" * 5_000, "it cannot be read as JSON: a number in it is too long, or it is nested too deeply"),
    ],
    ids=["empty", "no value", "open string", "deep", "long number"],
)
def test_a_file_that_is_not_json_is_said(file: Path, content: str, problem: str) -> None:
    assert sentence(read_comparison, write(file, content)) == f"{file}: {problem}"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("three", 'got the text \'three\', expected an object with "documents", or a list of texts'),
        ({"question": "Why?"}, "documents: it is missing; give it"),
        ({"documents": []}, "documents: got 0 items, expected 1 or more"),
        ({"documents": "one"}, "documents: got the text 'one', expected a list"),
        ({"documents": ["one", 2]}, f"documents.1: got int 2, expected {DOCUMENT}"),
        (["one", None], f"documents.1: got None, expected {DOCUMENT}"),
        ({"documents": [{"title": "T"}]}, "documents.0.text: it is missing; give it"),
        ({"documents": [{"text": 3}]}, "documents.0.text: got int 3, expected text"),
        ({"documents": [{"text": "a", "titel": "T"}]}, f"documents.0.titel: got the text 'T', {UNKNOWN}"),
        ({"documents": ["a"], "question": 1}, "question: got int 1, expected text"),
        ({"documents": ["a"], "questions": "Why?"}, f"questions: got the text 'Why?', {UNKNOWN}"),
        ({"documents": ["a", " "], "question": "Why?"},
         "document 2 is empty; write some text or remove it"),
        ({"documents": ["a"], "task": "poetry"}, f"unknown task 'poetry'; choose from: {', '.join(TASKS)}"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named(file: Path, content: Any, problem: str) -> None:
    assert sentence(read_comparison, write(file, json.dumps(content))) == f"{file}: {problem}"


def test_all_wrong_fields_are_named_at_once(file: Path) -> None:
    write(file, {"question": 1, "documents": ["a", 2, {"text": "b", "titel": "T"}]})
    with pytest.raises(InputError) as raised:
        read_comparison(file)
    assert str(raised.value).splitlines() == [
        f"{file} has 3 mistakes:",
        "question: got int 1, expected text;",
        f"documents.1: got int 2, expected {DOCUMENT};",
        f"documents.2.titel: got the text 'T', {UNKNOWN}",
    ]


# rows


def test_rows_are_read_with_what_else_is_in_them_left_out(file: Path) -> None:
    write(file, "\n".join([json.dumps({**ROW, "meta": {}, "license": "CC0"}), "", json.dumps(ROW), ""]))
    rows = read_rows(file)
    assert rows == [DataRow.model_validate(ROW)] * 2
    assert rows[0].documents == [DocumentInput(text="one"), DocumentInput(text="two")]


def test_no_more_rows_than_the_limit_are_read(file: Path) -> None:
    write(file, "\n".join([json.dumps(ROW), json.dumps({**ROW, "id": "a-2"}), "not JSON"]))
    assert [row.id for row in read_rows(file, limit=2)] == ["a-1", "a-2"]
    assert [row.id for row in read_rows(file, limit=1)] == ["a-1"]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085"])
def test_only_newlines_end_a_row(file: Path, separator: str) -> None:
    text = json.dumps({**ROW, "question": f"Why?{separator}Or not?"}, ensure_ascii=False)
    (row,) = read_rows(write(file, text))
    assert row.question == f"Why?{separator}Or not?"


def test_lines_may_end_as_windows_ends_them(file: Path) -> None:
    file.write_bytes(b"\r\n".join([json.dumps(ROW).encode()] * 2) + b"\r\n")
    assert len(read_rows(file)) == 2


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "it is not JSON: Expecting property name enclosed in double quotes at column 2"),
        (json.dumps({**ROW, "id": 7}), "id: got int 7, expected text"),
        (json.dumps({**ROW, "documents": []}), "documents: got 0 items, expected 1 or more"),
        (json.dumps({**ROW, "documents": [["one"]]}),
         f"documents.0: got list ['one'], expected {DOCUMENT}"),
        (json.dumps(["one", "two"]), "there is no question; write one"),
        (json.dumps({**ROW, "task": "poetry"}), f"unknown task 'poetry'; choose from: {', '.join(TASKS)}"),
        (json.dumps({**ROW, "question": "\ud800"}),
         "it holds half of a surrogate pair, which is no character; remove it"),
    ],
)  # fmt: skip
def test_the_line_of_a_wrong_row_is_named(file: Path, line: str, problem: str) -> None:
    write(file, f"{json.dumps(ROW)}\n\n{line}\n")
    assert sentence(read_rows, file) == f"{file}, line 3: {problem}"


def test_a_row_may_be_as_short_as_a_question_and_texts_or_texts_alone(file: Path) -> None:
    """Ids, tasks and titles have defaults."""
    short = {"question": "Why?", "documents": ["one", {"text": "two", "title": "T"}]}
    alone = {"task": "molecule_generation", "documents": ["one"]}
    rows = read_rows(write(file, "\n".join(map(json.dumps, [{**short, "id": ""}, short, alone]))))
    assert [(row.id, row.task) for row in rows] == [
        ("line 1", "retrieval_qa"), ("line 2", "retrieval_qa"), ("line 3", "molecule_generation")
    ]  # fmt: skip
    assert rows[0].documents == [DocumentInput(text="one"), DocumentInput(text="two", title="T")]


def test_all_wrong_lines_are_named_at_once_up_to_twenty_mistakes(file: Path) -> None:
    wrong = ["{", json.dumps({**ROW, "id": 7, "documents": []}), json.dumps({**ROW, "question": " "})]
    write(file, "\n".join([json.dumps(ROW), *wrong, json.dumps(ROW), *["[3]"] * 18]))
    with pytest.raises(InputError) as raised:
        read_rows(file, limit=2)
    lines = str(raised.value).splitlines()
    assert lines[:6] == [
        f"{file} has 22 mistakes:",
        "line 2: it is not JSON: Expecting property name enclosed in double quotes at column 2;",
        "line 3: documents: got 0 items, expected 1 or more;",
        "line 3: id: got int 7, expected text;",
        "line 4: there is no question; write one;",
        f"line 6: documents.0: got int 3, expected {DOCUMENT};",
    ]
    assert lines[20:] == [f"line 21: documents.0: got int 3, expected {DOCUMENT};", "and 2 more"]
    assert read_rows(file, limit=1) == [DataRow.model_validate(ROW)]


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_a_file_without_rows_is_said(file: Path, content: str) -> None:
    assert sentence(read_rows, write(file, content)) == (
        f"{file} has no rows; expected one JSON object per line"
    )


# what they become


@pytest.fixture(scope="module")
def engine(tiny_llama: Callable[..., LlamaForCausalLM]) -> Engine:
    return Engine(tiny_llama(), letter_tokenizer(chat_template=None))


def read_back(engine: Engine, ids: tuple[int, ...]) -> str:
    return "".join(engine.tokenizer.convert_ids_to_tokens(ids))


def test_a_comparison_becomes_the_tokens_of_its_task(engine: Engine) -> None:
    comparison = Request(**{**COMPARISON, "instruction": "Go.", "system": "Be kind."})
    layout = comparison.tokenize(engine)
    assert read_back(engine, layout.prefix) == "Be kind.\n\nGo.\n\n"
    assert [read_back(engine, ids) for ids in layout.documents] == [
        "Document: one\n", "Document (Title: Two) two\n"
    ]  # fmt: skip
    assert read_back(engine, layout.suffix) == "\nQuestion: Why?\nAnswer:"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"question": " "}, "there is no question; write one"),
        ({"documents": ["a", ""]}, "document 2 is empty; write some text or remove it"),
        ({"documents": [{"title": "T", "text": "\t"}]}, "document 1 is empty; write some text or remove it"),
        (
            {"question": "a\ud800"},
            "the text around the documents holds half of a surrogate pair .*; remove it",
        ),
        ({"task": "poetry"}, "unknown task 'poetry'; choose from: .*"),
    ],
)
def test_what_no_prompt_can_be_made_of_is_refused(
    engine: Engine, change: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InputError, match=f"^{problem}$"):
        Request(**{**COMPARISON, **change}).tokenize(engine)


@pytest.mark.parametrize(
    ("task", "instruction", "system"),
    [("retrieval_qa", "In a word.", "Be kind."), ("judge_pair", "Be kind.", "")],
)
def test_a_rows_texts_stand_where_its_task_has_them(task: str, instruction: str, system: str) -> None:
    """Judges are instructed in the system message; elsewhere the instruction opens the user's."""
    row = DataRow(**{**ROW, "task": task, "system": "Be kind.", "prefix": "In a word."})
    assert row.comparison() == Request(
        question="Why?",
        documents=[DocumentInput(text="one"), DocumentInput(text="two")],
        instruction=instruction,
        system=system,
        task=task,
    )


def test_the_system_text_of_a_judges_row_is_written_once(engine: Engine) -> None:
    row = DataRow(**{**ROW, "task": "judge_pair", "system": "You judge."})
    text = read_back(engine, row.comparison().tokenize(engine).prefix)
    assert text.count("You judge.") == 1
    assert "impartial judge" not in text


def test_a_row_asked_as_another_task_takes_its_instruction() -> None:
    """Data sets store the wording of their own task; under another it would be the wrong one."""
    own = TASKS["retrieval_qa"].instruction
    row = DataRow(**{**ROW, "prefix": own, "system": "Be kind."}).asked_as("retrieval_qa_numbered")
    assert row == DataRow(**{**ROW, "task": "retrieval_qa_numbered", "system": "Be kind."})
    judged = DataRow(**{**ROW, "task": "judge_pair", "system": TASKS["judge_pair"].instruction})
    assert judged.asked_as("kv_retrieval") == DataRow(**{**ROW, "task": "kv_retrieval"})


def test_an_instruction_of_ones_own_stays_when_a_row_is_asked_as_another_task() -> None:
    row = DataRow(**{**ROW, "prefix": "In a word."})
    assert row.asked_as("retrieval_qa_numbered").comparison().instruction == "In a word."
    assert row.asked_as("retrieval_qa") == row
    with pytest.raises(InputError, match="^unknown task 'poetry'; choose from: "):
        row.asked_as("poetry")
