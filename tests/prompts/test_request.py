"""Requests and rows from files, and file, line and field of each problem."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from pine_engine import TASKS, Document, Engine, InputError, Request
from pine_engine.lab.evaluation.settings import Settings
from pine_engine.prompts.request import DataRow, read_requests, read_rows
from pine_engine.rows.parse_errors import MAX_SHOWN, ValidationErrors
from tests.support.errors import has_field, problems_of
from tests.support.families import TinyLlama
from tests.support.tokenizers import letter_tokenizer

DOCUMENTS = ["one", {"title": "Two", "text": "two"}]
REQUEST: dict[str, Any] = {"question": "Why?", "documents": DOCUMENTS}
ROW: dict[str, Any] = {"id": "a-1", "task": "retrieval_qa", **REQUEST}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "input.json"


def write(file: Path, *lines: Any) -> Path:
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    file.write_text("\n".join(texts), encoding="utf-8-sig")  # some editors write a byte order mark
    return file


def rows_of(file: Path, limit: int | None = None) -> list[DataRow]:
    return list(read_rows(file, DataRow, limit).values())


def test_request_has_defaults_and_accepts_texts_as_documents(file: Path) -> None:
    full = {**REQUEST, "instruction": "In a word.", "system": "Be kind.", "task": "math_reasoning"}
    documents = [Document("one"), Document("two", "Two")]
    assert read_requests(write(file, full), Request)[0][1] == Request(**{**full, "documents": documents})
    assert Request.model_validate(DOCUMENTS) == Request(documents=documents)
    assert json.loads(Request.model_validate(["one"]).model_dump_json()) == {
        "question": "", "documents": [{"text": "one", "title": ""}],
        "instruction": "", "system": "", "task": "retrieval_qa",
    }  # fmt: skip


WRONG: list[tuple[Any, str]] = [
    *(({**REQUEST, "documents": value}, "documents") for value in ([], "one", ["one"] * 10_001)),
    ({**REQUEST, "documents": ["one", 2]}, "documents[1]"), (["one", None], "documents[1]"),
    *(({**REQUEST, "documents": [value]}, "documents[0]") for value in ({"title": "T"}, {"text": None})),
    *(({**REQUEST, "documents": [{"text": "a", "title": "T", name: 3}]}, f"documents[0].{name}")
      for name in ("text", "title")),
    ({**REQUEST, "documents": ["a", " "]}, "documents[1]"),
    *(({**REQUEST, "question": value}, "question") for value in (1, " ")),
    ({**REQUEST, "task": "poetry"}, "task"), ({**REQUEST, "question": "\ud800"}, ""), ({}, "documents"),
    (["one", "two"], "question"), ("{", ""), ("[" * 100_000, ""), ("1" * 5_000, ""), ('"three"', ""),
]  # fmt: skip


@pytest.mark.parametrize(("content", "field"), WRONG, ids=lambda value: str(value)[:40])
def test_wrong_field_is_named_with_its_line(content: Any, field: str, file: Path) -> None:
    write(file, content)
    assert problems_of(lambda: read_requests(file, Request)[0][1], file) == [(None, field)]
    write(file, ROW, "", content)
    assert problems_of(lambda: rows_of(file), file) == [(3, field)]


def test_all_problems_are_reported_at_once(file: Path) -> None:
    write(file, {"question": 1, "documents": ["a", 2, {"text": "b", "title": 3}]})
    assert problems_of(lambda: read_requests(file, Request)[0][1], file) == [
        (None, "question"), (None, "documents[1]")  # of a list the first one
    ]  # fmt: skip

    wrong = ["{", {**ROW, "id": [7], "documents": []}, {**ROW, "question": " "}]
    write(file, ROW, *wrong, ROW, *["[3]"] * 18)
    fields = ["", "documents", "id", "question"] + ["documents[0]"] * 17
    lines = [2, 3, 3, 4, *range(6, 23)]  # one more than the message lists
    assert problems_of(lambda: rows_of(file, limit=2), file) == list(zip(lines, fields, strict=True))
    assert rows_of(file, limit=1) == [DataRow.model_validate(ROW)]

    with pytest.raises(ValidationErrors) as raised:
        rows_of(file)
    assert len(raised.value.problems) == MAX_SHOWN + 1
    assert str(raised.value).splitlines()[-1].startswith("lines 6, 7, 8, 9, ")  # the same problem
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (copy.problems, str(copy)) == (raised.value.problems, str(raised.value))


def test_unreadable_file_is_rejected_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b'{"question": "\xff"}')
    (tmp_path / "blank").write_text("\n \n")
    (tmp_path / "nul").write_bytes(bytes(9))
    (tmp_path / "utf16").write_bytes(json.dumps(ROW).encode("utf-16-le"))  # without byte order mark
    for name in ("missing", "latin", "blank", "nul", "utf16", ""):
        with pytest.raises(InputError, check=has_field(str(tmp_path / name))):
            rows_of(tmp_path / name)


def test_rows_ignore_other_fields_and_stop_at_limit(file: Path) -> None:
    write(file, {**ROW, "meta": {}, "license": "CC0"}, "", {**ROW, "id": "a-2"}, "not JSON")
    assert rows_of(file, limit=1) == [DataRow.model_validate(ROW)]
    assert [(line, row.id) for line, row in read_rows(file, DataRow, 2).items()] == [(1, "a-1"), (3, "a-2")]


def test_row_without_id_is_named_by_its_line(file: Path) -> None:
    write(file, {**REQUEST, "id": ""}, {"task": "molecule_generation", "documents": ["one"]})
    names = [(row.id, row.task) for row in rows_of(file)]
    assert names == [("line 1", "retrieval_qa"), ("line 2", "molecule_generation")]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085"])
def test_only_newlines_end_a_row(file: Path, separator: str) -> None:
    (row,) = rows_of(write(file, json.dumps({**ROW, "question": f"Why?{separator}No?"}, ensure_ascii=False)))
    assert row.question == f"Why?{separator}No?"
    file.write_bytes(b"\r\n".join([json.dumps(ROW).encode()] * 2) + b"\r\n")
    assert len(rows_of(file)) == 2


@pytest.fixture(scope="module")
def engine(tiny_llama: TinyLlama) -> Engine:
    return Engine(tiny_llama(), letter_tokenizer(chat_template=None))


def text_of(engine: Engine, ids: tuple[int, ...]) -> str:
    return "".join(engine.tokenizer.convert_ids_to_tokens(ids))


@pytest.mark.parametrize(
    ("task", "instruction", "system"), [("retrieval_qa", "In a word.", "Be kind."), ("judge", "Be kind.", "")]
)
def test_row_texts_have_roles_of_task(task: str, instruction: str, system: str, engine: Engine) -> None:
    row = DataRow(**{**ROW, "task": task, "system": "Be kind.", "prefix": "In a word."})
    request = row.comparison()
    assert (request.instruction, request.system, request.task) == (instruction, system, task)
    assert (request.question, request.documents) == (row.question, row.documents)
    assert text_of(engine, request.tokenize(engine).prefix).count("Be kind.") == 1


def test_row_with_another_task_keeps_only_user_instruction() -> None:
    """Data sets contain the instruction of their task, which would be wrong under another task."""
    default = TASKS["retrieval_qa"].instruction
    row = DataRow(**{**ROW, "prefix": default, "system": "Be kind."}).with_task("retrieval_qa_numbered")
    assert row == DataRow(**{**ROW, "task": "retrieval_qa_numbered", "system": "Be kind."})
    judged = DataRow(**{**ROW, "task": "judge", "system": TASKS["judge"].instruction})
    assert judged.with_task("kv_retrieval") == DataRow(**{**ROW, "task": "kv_retrieval"})
    custom = DataRow(**{**ROW, "prefix": "In a word."})
    assert custom.with_task("retrieval_qa_numbered").comparison().instruction == "In a word."
    with pytest.raises(InputError):
        custom.with_task("poetry")


def test_former_name_of_a_task_is_read_as_the_present_one() -> None:
    content = {"question": "Who?", "documents": ["Ann.", "Ben."], "task": "judge_pair"}
    assert Request.model_validate(content).task == "judge"
    assert Settings.model_validate({"task": "judge_pair", "methods": ["pine"]}).task == "judge"
    assert TASKS["Judge_Pair"] is TASKS["judge"]
