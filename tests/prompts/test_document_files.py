"""Users' own files as documents, and one clear sentence for every file that cannot be used."""

import csv
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pypdf import PdfWriter
from pypdf.generic import DictionaryObject, NameObject, StreamObject

from pine_engine.errors import InputError
from pine_engine.extras import how_to_install
from pine_engine.prompts import document_files as user_data
from pine_engine.prompts import pdf
from pine_engine.prompts.document_files import read_documents
from pine_engine.prompts.prompt import Document

Write = Callable[[str, str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return written


def refusal(*paths: Path) -> str:
    with pytest.raises(InputError) as raised:
        read_documents(paths)
    text = str(raised.value)
    assert "\n" not in text
    return text


def pdf_bytes(*pages: str, password: str | None = None, owner: str | None = None) -> bytes:
    """A PDF with one line of text on every page; a page of no text is blank."""
    writer = PdfWriter()
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"),
            NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"),
        }
    )
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


# which file is read how


def test_documents_stand_in_the_order_of_their_files(write: Write) -> None:
    paths = [
        write("notes.TXT", "\ufeff\nTides follow the moon.\n\nAlways.\n"),
        write("more.jsonl", '{"text": "two", "title": "T"}\n'),
        write("table.csv", "text\nthree\n"),
        write("read me.md", "# Four\n"),
        write("five.v2.pdf", pdf_bytes("Five")),
    ]
    assert read_documents(paths) == [
        Document("Tides follow the moon.\n\nAlways.", "notes"),
        Document("two", "T"),
        Document("three"),
        Document("# Four", "read me"),
        Document("Five", "five.v2"),
    ]
    assert read_documents(paths[::-1])[0] == Document("Five", "five.v2")


def test_no_file_is_said() -> None:
    assert refusal() == "no files were given; give at least one"


def test_a_file_of_another_kind_is_said(write: Write) -> None:
    for name in ("letter.docx", "letter"):
        path = write(name, "text")
        assert refusal(path) == (
            f"{path} is of no kind that can be read; give one of: .jsonl, .csv, .txt, .md, .pdf"
        )


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.jsonl", "a.pdf"])
def test_a_file_that_is_not_there_is_said(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert refusal(path) == (
        f"{path} cannot be read: No such file or directory; give the path of a file that exists"
    )


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.jsonl"])
def test_text_that_is_not_utf8_is_said(write: Write, name: str) -> None:
    path = write(name, b"text\ncaf\xe9\n")
    assert refusal(path) == f"{path} is not UTF-8 text; save it as UTF-8"


def test_a_file_that_is_too_large_is_not_read(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_data, "MAX_BYTES", 1234)
    assert len(read_documents([write("a.txt", "x" * 1234)])) == 1
    path = write("b.txt", "x" * 1235)
    assert refusal(path) == f"{path} has 1,235 bytes, more than 1,234; give a part of it"


@pytest.mark.parametrize("content", ["", " \n\t"])
def test_a_text_file_without_text_is_said(write: Write, content: str) -> None:
    path = write("a.txt", content)
    assert refusal(path) == f"{path} has no text; write some, or remove it"


# JSONL


def test_a_line_is_a_document_or_a_row_of_several(write: Write) -> None:
    lines = [
        {"text": "one", "url": "left out"},
        {
            "id": "a-1",
            "task": "retrieval_qa",
            "documents": [{"text": "two", "title": "T"}, {"text": "three"}],
        },
        {"documents": ["four"]},
        "five",
        ["six", {"text": "seven", "title": "S"}],
    ]
    path = write("a.jsonl", "\n\n".join(map(json.dumps, lines)))
    assert read_documents([path]) == [
        Document("one"), Document("two", "T"), Document("three"), Document("four"), Document("five"),
        Document("six"), Document("seven", "S"),
    ]  # fmt: skip


def test_all_wrong_lines_are_named_at_once(write: Write) -> None:
    path = write("a.jsonl", '"one"\n{"text": 3}\n{"txt": "two"}\n["", {"text": "", "note": 1}]\n')
    with pytest.raises(InputError) as raised:
        read_documents([path])
    assert str(raised.value).splitlines() == [
        f"{path} has 3 mistakes:",
        "line 2: text: got int 3, expected text;",
        "line 3: it has no text; write some, or remove it;",
        "line 4: documents.1.note: got int 1, but there is no such field; remove it, or correct its name",
    ]
    table = write("a.csv", 'text\none\na,b\n\n" "\n"open')
    with pytest.raises(InputError) as raised:
        read_documents([table])
    assert str(raised.value).splitlines() == [
        f"{table} has 2 mistakes:",
        "line 3: the number of fields is 2, but 1 in the header; put a text that holds commas in quotation "
        "marks;",
        "line 6: unexpected end of data; check its quotation marks",
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "it is not JSON: Expecting property name enclosed in double quotes at column 2"),
        ('{"text": 3}', "text: got int 3, expected text"),
        ("3", 'got int 3, expected a text, {"text", "title"}, or a list of them'),
        ('{"title": "T"}', "it has no text; write some, or remove it"),
        ('{"text": " "}', "it has no text; write some, or remove it"),
        ("[]", "it has no text; write some, or remove it"),
        ('{"documents": []}', "it has no text; write some, or remove it"),
        ('["a", {"text": ""}]', "document 2 has no text; write some, or remove it"),
        ('{"documents": [3]}', 'documents.0: got int 3, expected a text or {"text": ..., "title": ...}'),
    ],
)
def test_a_wrong_line_is_named(write: Write, line: str, problem: str) -> None:
    path = write("a.jsonl", '{"text": "one"}\n\n' + line)
    assert refusal(path) == f"{path}, line 3: {problem}"


# CSV

CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=20)


@given(rows=st.lists(st.tuples(CELLS, CELLS.filter(str.strip)), min_size=1, max_size=4), bom=st.booleans())
def test_whatever_is_written_as_csv_is_read_back(
    rows: list[tuple[str, str]], bom: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = io.StringIO()
    csv.writer(file).writerows([("title", " Text "), *rows])
    path = tmp_path_factory.getbasetemp() / "given.csv"
    path.write_bytes(("\ufeff" * bom + file.getvalue()).encode())
    assert read_documents([path]) == [Document(text, title) for title, text in rows]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", " is empty; its first line has to name the columns"),
        ("\n \n", " is empty; its first line has to name the columns"),
        ("text\n", " has no rows under its header; write one row per line"),
        ("title,body\na,b\n",
         " has no column 'text', its header reads 'title, body'; name the columns, separated by commas, "
         "in its first line"),
        ("title;text\na;b\n",
         " has no column 'text', its header reads 'title;text'; name the columns, separated by commas, "
         "in its first line"),
        ("titel,text\na,b\n", ": column 'titel' is not known; remove it, or use: text, title"),
        ("\ntext,TEXT\na,b\n", ", line 2: column 'text' is there twice; give every column one name"),
        ("title,text\na,b\n\nc, d, e\n",
         ", line 4: the number of fields is 3, but 2 in the header; put a text that holds "
         "commas in quotation marks"),
        ("title,text\nc\n",
         ", line 2: the number of fields is 1, but 2 in the header; put a text that holds "
         "commas in quotation marks"),
        ('title,text\n"a\nb",c\nd,\n', ", line 4: it has no text; write some, or remove it"),
        ('text\na\n"b\n\nc', ", line 3: unexpected end of data; check its quotation marks"),
        ('text\n"a" b\n', ", line 2: ',' expected after '\"'; check its quotation marks"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_table_is_said_with_its_line(write: Write, content: str, problem: str) -> None:
    path = write("a.csv", content)
    assert refusal(path) == f"{path}{problem}"


# PDF


def test_the_pages_of_a_pdf_follow_each_other(write: Write) -> None:
    path = write("paper.pdf", pdf_bytes("First page.", "", "Third page."))
    assert read_documents([path]) == [Document("First page.\nThird page.", "paper")]


def test_a_pdf_that_anyone_may_open_is_read(write: Write) -> None:
    path = write("locked for editing.pdf", pdf_bytes("Read me.", password="", owner="o"))
    assert [document.text for document in read_documents([path])] == ["Read me."]


def test_a_pdf_behind_a_password_is_said(write: Write) -> None:
    path = write("secret.pdf", pdf_bytes("Read me.", password="s"))
    assert refusal(path) == f"{path} is encrypted; save it without a password"


@pytest.mark.parametrize("content", [b"", b"Tides follow the moon.", b"x" * 1024 + b"%PDF-1.7\n"])
def test_a_file_that_only_is_called_pdf_is_said(write: Write, content: bytes) -> None:
    path = write("a.pdf", content)
    assert refusal(path) == f"{path} is not a PDF file; give one, or plain text as .txt"


def test_a_damaged_pdf_is_said(write: Write) -> None:
    path = write("a.pdf", b"%PDF-1.7\nand nothing of what should follow")
    assert refusal(path) == f"{path} is damaged and cannot be read as PDF (PdfStreamError); save it anew"


@given(cut=st.integers(5, 500), junk=st.binary(max_size=30))
def test_no_damage_to_a_pdf_is_worse_than_a_sentence(
    cut: int, junk: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = pdf_bytes("First page.")
    path = tmp_path_factory.getbasetemp() / "damaged.pdf"
    path.write_bytes(whole[:cut] + junk + whole[cut + len(junk) :])
    try:
        (document,) = read_documents([path])
    except InputError as error:
        assert str(error).startswith(f"{path} ")
    else:
        assert document.text.strip()


def test_a_pdf_of_pictures_is_said(write: Write) -> None:
    path = write("scan.pdf", pdf_bytes("", ""))
    assert refusal(path) == f"{path} holds no text, perhaps pictures of it; recognise its text (OCR) first"


def test_a_pdf_of_too_many_pages_is_said(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf, "MAX_PAGES", 2)
    assert len(read_documents([write("a.pdf", pdf_bytes("1", "2"))])) == 1
    path = write("b.pdf", pdf_bytes("1", "2", "3"))
    assert refusal(path) == f"{path} has 3 pages, more than 2; give those that matter"


def test_without_pypdf_the_other_files_are_read(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    assert read_documents([write("a.txt", "one")]) == [Document("one", "a")]
    path = write("b.pdf", pdf_bytes("Read me."))
    assert refusal(path) == f"b.pdf cannot be read: pypdf is not installed; {how_to_install('pypdf')}"
