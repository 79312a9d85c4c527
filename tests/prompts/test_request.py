"""Requests, rows and documents from files, and file, line and field of each problem."""

import csv
import io
import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pypdf import PdfWriter
from pypdf.generic import DictionaryObject, NameObject, StreamObject

from pine_engine import TASKS, Document, Engine, InputError, Request
from pine_engine.lab.evaluation.settings import Settings
from pine_engine.prompts.examples import read_examples
from pine_engine.prompts.request import DataRow, read_requests, read_rows
from pine_engine.rows import document_files
from pine_engine.rows.document_files import read_documents
from pine_engine.rows.parse_errors import MAX_SHOWN, ValidationErrors
from tests.support.errors import has_field
from tests.support.families import TinyLlama
from tests.support.pdf_files import PDF_OF_BOMBS, pdf_of
from tests.support.tiers import first_daily
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


def problems_of(read: Callable[[], object], file: Path) -> list[tuple[int | None, str]]:
    with pytest.raises(ValidationErrors) as raised:
        read()
    assert raised.value.source == str(file) and str(raised.value).startswith(str(file))
    return [(problem.line, problem.field) for problem in raised.value.problems]


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
    ("task", "instruction", "system"),
    [("retrieval_qa", "In a word.", "Be kind."), ("judge", "Be kind.", "")],
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


Write = Callable[[str, str | bytes], Path]


@pytest.fixture
def put(tmp_path: Path) -> Write:
    def write_file(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write_file


def pdf_bytes(*pages: str, password: str | None = None, owner: str | None = None) -> bytes:
    writer = PdfWriter()
    names = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica"}
    font = DictionaryObject({NameObject(key): NameObject(value) for key, value in names.items()})
    for text in pages:
        page = writer.add_blank_page(width=300, height=100)
        content = StreamObject()
        content.set_data(f"BT /F1 12 Tf 20 50 Td ({text}) Tj ET".encode("latin-1") if text else b"")
        page[NameObject("/Contents")] = writer._add_object(content)
        fonts = DictionaryObject({NameObject("/F1"): writer._add_object(font)})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
    if password is not None:
        writer.encrypt(password, owner, algorithm="RC4-128")
    file = io.BytesIO()
    writer.write(file)
    return file.getvalue()


def test_documents_follow_the_order_of_their_files(put: Write) -> None:
    files: dict[str, tuple[str | bytes, Document]] = {
        "notes.TXT": ("\ufeff\nOne.\n\nTwo.\n", Document("One.\n\nTwo.", "notes")),
        "more.jsonl": ('{"text": "two", "title": "T"}\n', Document("two", "T")),
        "table.csv": ("text\nthree\n", Document("three")),
        "read me.md": ("# Four\n", Document("# Four", "read me")),
        "five.v2.pdf": (pdf_bytes("Page 1.", "", "Page 3."), Document("Page 1.\nPage 3.", "five.v2")),
        "locked.pdf": (pdf_bytes("Six", password="", owner="o"), Document("Six", "locked")),
    }
    paths = [put(name, content) for name, (content, _) in files.items()]
    documents = [document for _, document in files.values()]
    assert read_documents(paths) == documents
    assert read_documents(paths, limit=2) == documents[:2]
    assert read_documents(paths[::-1]) == documents[::-1]


def test_json_line_holds_one_or_several_documents(put: Write) -> None:
    several = [{"text": "two", "title": "T"}, {"text": "three"}]
    lines = [{"text": "one", "url": "ignored"}, {"id": "a-1", "documents": several}, "four", ["five"]]
    found = read_documents([put("a.jsonl", "\n\n".join(map(json.dumps, lines)))])
    assert [document.text for document in found] == ["one", "two", "three", "four", "five"]
    assert [document.title for document in found] == ["", "T", "", "", ""]


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=20)


@given(rows=st.lists(st.tuples(CELLS, CELLS.filter(str.strip)), min_size=1, max_size=4), bom=st.booleans())
def test_written_csv_is_read_back(rows: Any, bom: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = io.StringIO()
    csv.writer(file).writerows([("title", " Text "), *rows])
    path = tmp_path_factory.getbasetemp() / "table.csv"
    path.write_bytes(("\ufeff" * bom + file.getvalue()).encode())
    assert read_documents([path]) == [Document(text, title) for title, text in rows]


@pytest.mark.parametrize(
    ("name", "content", "problems"),
    [
        ("a.jsonl", '"one"\n\n{', [(3, "")]),
        ("a.jsonl", '"one"\n{"text": 3}\n{"txt": "two"}', [(2, "text"), (3, "")]),
        ("a.jsonl", "3", [(1, "")]),
        ("a.jsonl", '{"text": " "}\n{"title": "T"}\n[]\n{"documents": []}',
         [(1, ""), (2, ""), (3, ""), (4, "")]),
        ("a.jsonl", '["a", {"text": ""}, " "]', [(1, "documents[1]"), (1, "documents[2]")]),
        ("a.jsonl", '{"documents": [3, {"text": "", "title": 1}]}',
         [(1, "documents[0]")]),
        ("a.jsonl", '{"documents": [3, {"id": 3, "score": 0.7}]}', [(1, "documents[0]")]),
        ("a.jsonl", '{"text": "\\ud83d"}\n["a", {"text": "b", "title": "\\ude00"}]',
         [(1, ""), (2, "documents[1]")]),
        ("a.csv", "\ntext,TEXT\na,b\n", [(2, "")]),
        ("a.csv", "title,text\na,b\n\nc, d, e\n", [(4, "")]),
        ("a.csv", "title,text\nc\n", [(2, "")]),
        ("a.csv", 'title,text\n"a\nb",c\nd,\n', [(4, "")]),
        ("a.csv", 'text\na\n"b\n\nc', [(3, "")]),
        ("a.csv", 'text\n"a" b\n', [(2, "")]),
        ("a.csv", 'text\none\na,b\n\n" "\n"open', [(3, ""), (6, "")]),
        ("a.csv", '"text\n', [(1, "")]),
    ],
)  # fmt: skip
def test_wrong_lines_are_named(put: Write, name: str, content: str, problems: list[tuple[int, str]]) -> None:
    path = put(name, content)
    with pytest.raises(ValidationErrors) as raised:
        read_documents([path])
    assert [(problem.line, problem.field) for problem in raised.value.problems] == problems
    assert raised.value.source == str(path)


NOT_PDF = [b"", b"Tides follow the moon.", b"x" * 1024 + b"%PDF-1.7\n", b"%PDF-1.7\nand nothing else"]


@pytest.mark.parametrize(
    ("name", "contents", "field"),
    [
        *((name, ["text"], "") for name in ("letter.docx", "letter")),
        *((f"missing{suffix}", [None], "") for suffix in (".txt", ".csv", ".jsonl", ".pdf")),
        *((f"a{suffix}", [b"text\ncaf\xe9\n"], "") for suffix in (".txt", ".csv", ".jsonl")),
        ("a.txt", ["", " \n\t"], ""),
        ("a.csv", ["", "\n \n", "text\n"], ""),
        ("a.csv", ["title,body\na,b\n", "title|text\na|b\n"], "text"),
        ("a.csv", ["question,body\na,b\n"], "document1"),
        ("a.pdf", [pdf_bytes("Text.", password="s"), pdf_bytes("", ""), pdf_bytes("1", "2", "3")], ""),
        ("a.pdf", NOT_PDF, ""),
        ("a.md", ["x" * 2001], ""),
    ],
)
def test_unusable_file_is_rejected_with_path_or_column(
    put: Write, monkeypatch: pytest.MonkeyPatch, name: str, contents: list[Any], field: str
) -> None:
    monkeypatch.setattr(document_files, "MAX_BYTES", 2000)
    monkeypatch.setattr(document_files, "MAX_PAGES", 2)
    assert len(read_documents([put("b.md", "x" * 2000), put("b.pdf", pdf_bytes("1", "2"))])) == 2
    for content in contents:
        path = put("b.md", "").with_name(name) if content is None else put(name, content)
        with pytest.raises(InputError) as raised:
            read_documents([path])
        assert raised.value.field == (field or str(path))
        assert str(raised.value).startswith(str(path)) and "\n" not in str(raised.value)


@given(cut=st.integers(5, 500), junk=st.binary(max_size=30))
def test_damaged_pdf_may_be_rejected(cut: int, junk: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    whole = pdf_bytes("First page.")
    path = tmp_path_factory.getbasetemp() / "damaged.pdf"
    path.write_bytes(whole[:cut] + junk + whole[cut + len(junk) :])
    try:
        (document,) = read_documents([path])
    except InputError as error:
        assert error.field == str(path)
    else:
        assert document.text.strip()


def test_without_pypdf_other_files_are_read(put: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    assert read_documents([put("a.txt", "one")]) == [Document("one", "a")]
    for paths, field in (([put("b.pdf", pdf_bytes("Text."))], "pypdf"), ([], "paths")):
        with pytest.raises(InputError, check=has_field(field)):
            read_documents(paths)


@pytest.mark.slow
def test_slow_pdf_stops_at_the_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_files, "MAX_SECONDS", 0.2)
    file = tmp_path / "bomb.pdf"
    file.write_bytes(pdf_of("hello"))
    assert document_files.read_pdf(file) == "hello"
    file.write_bytes(PDF_OF_BOMBS)
    assert len(PDF_OF_BOMBS) < 4_000
    with pytest.raises(InputError, match="takes more than 0 s to read"):
        document_files.read_pdf(file)


@pytest.mark.parametrize(("name", "count"), first_daily([("document", 560_000), ("x", 1_000_000)]))
def test_wide_file_is_rejected_in_linear_time(tmp_path: Path, name: str, count: int) -> None:
    """Comparing each name with all others would take days."""
    file = tmp_path / "wide.csv"
    header = ",".join(["id", "question", "answers", *(f"{name}{10**7 + number}" for number in range(count))])
    file.write_text(f"{header}\n1\n")
    assert 8e6 < file.stat().st_size < 11e6
    with pytest.raises(InputError):
        read_documents([file])
    with pytest.raises(InputError):
        read_examples(file)


@pytest.mark.parametrize("rows", ["text\na\nb\n\nc,d\n", '{"text": "a"}\n{"text": "b"}\n{\n'])
def test_rows_after_the_limit_are_not_parsed(tmp_path: Path, rows: str) -> None:
    file = tmp_path / ("rows.csv" if rows.startswith("text") else "rows.jsonl")
    file.write_text(rows)
    assert [document.text for document in read_documents([file], 2)] == ["a", "b"]
    with pytest.raises(InputError):
        read_documents([file])


def test_former_name_of_a_task_is_read_as_the_present_one() -> None:
    content = {"question": "Who?", "documents": ["Ann.", "Ben."], "task": "judge_pair"}
    assert Request.model_validate(content).task == "judge"
    assert Settings.model_validate({"task": "judge_pair", "methods": ["pine"]}).task == "judge"
    assert TASKS["Judge_Pair"] is TASKS["judge"]
