"""Documents from files, and file, line and field of each problem."""

import csv
import io
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pypdf import PdfWriter
from pypdf.generic import DictionaryObject, NameObject, StreamObject

from pine_engine import Document, InputError
from pine_engine.prompts.examples import read_examples
from pine_engine.rows import document_files
from pine_engine.rows.document_files import read_documents
from pine_engine.rows.parse_errors import ValidationErrors
from tests.support.errors import has_field
from tests.support.pdf_files import PDF_OF_BOMBS, pdf_of
from tests.support.tiers import first_daily

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
        *((name, ["text"], "") for name in ("letter.odt", "letter")),
        *((f"missing{suffix}", [None], "") for suffix in (".txt", ".csv", ".jsonl", ".pdf")),
        ("a.jsonl", [b"text\ncaf\xe9\n"], ""),
        *(
            (f"a{suffix}", [b"PNG\n" + bytes(range(1, 256)) * 3, "text".encode("utf-16-le")], "")
            for suffix in (".txt", ".csv")
        ),
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


@pytest.mark.parametrize(
    ("name", "count"), first_daily([("document", 100_000), ("document", 560_000), ("x", 1_000_000)])
)
def test_wide_file_is_rejected_in_linear_time(tmp_path: Path, name: str, count: int) -> None:
    """Comparing each of the names with all others would take minutes, and days for the largest files."""
    file = tmp_path / "wide.csv"
    header = ",".join(["id", "question", "answers", *(f"{name}{10**7 + number}" for number in range(count))])
    file.write_text(f"{header}\n1\n")
    for read in (lambda: read_documents([file]), lambda: read_examples(file)):
        began = time.thread_time()
        with pytest.raises(InputError):
            read()
        assert time.thread_time() - began < count / 10_000


@pytest.mark.parametrize("rows", ["text\na\nb\n\nc,d\n", '{"text": "a"}\n{"text": "b"}\n{\n'])
def test_rows_after_the_limit_are_not_parsed(tmp_path: Path, rows: str) -> None:
    file = tmp_path / ("rows.csv" if rows.startswith("text") else "rows.jsonl")
    file.write_text(rows)
    assert [document.text for document in read_documents([file], 2)] == ["a", "b"]
    with pytest.raises(InputError):
        read_documents([file])
