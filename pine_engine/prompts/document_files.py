"""Documents from JSONL, CSV, plain text and PDF files, and tables from CSV files."""

import csv
import io
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field, model_validator

from pine_engine.errors import InputError, how_to_install
from pine_engine.prompts.parse_errors import Problem, ValidationErrors, rows_or_mistakes, unexpected
from pine_engine.prompts.prompt import Document, DocumentInput
from pine_engine.prompts.request import each_line, parse_json, read_text

if TYPE_CHECKING:
    from pypdf import PdfReader

MAX_BYTES = 20_000_000  # largest file that is read; its text would fill many contexts

MAX_PAGES = 200
"""Pages of a PDF file. More would take minutes, and fill the context of any model."""

MAX_SECONDS = 30.0
"""Seconds of CPU time for a PDF file, checked at each page and operand; a server also limits its process."""

NO_TEXT = "has no text; write some, or remove it"


def _unusable(path: Path, problem: str) -> InputError:
    return InputError(f"{path} {problem}", field=str(path))


def read_documents(paths: Sequence[Path], limit: int | None = None) -> list[Document]:
    """Return the documents of all files in order, at most `limit`; content after these is not parsed.

    .jsonl: one text or {"text", "title"} per line, a list of them, or rows with "documents". .csv: columns
    text and optionally title. .txt, .md, .pdf: one document, with the file name as its title.
    """
    if not paths:
        raise InputError("no files were selected; give at least one", field="paths")
    return list(islice((document for path in paths for document in _read(path)), limit))


def _read(path: Path) -> Iterator[Document]:
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise _unusable(path, f"has an unknown type; give one of: {', '.join(_READERS)}")
    if path.is_file() and (size := path.stat().st_size) > MAX_BYTES:
        raise _unusable(path, f"has {size:,} bytes, more than {MAX_BYTES:,}; give a part of it")
    return reader(path)


class _JsonLine(BaseModel):
    """A line of JSONL: one document, or a row of several; other fields are ignored."""

    text: str = ""
    title: str = ""
    documents: list[DocumentInput] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _fields(cls, value: Any) -> Any:
        if isinstance(value, str | list):
            return {"text" if isinstance(value, str) else "documents": value}
        if isinstance(value, dict):
            return value
        raise unexpected(value, 'a text, {"text", "title"}, or a list of them')


def _from_jsonl(path: Path) -> Iterator[Document]:
    def read(_: int, line: str) -> list[Document]:
        row = parse_json(_JsonLine, line, is_line=True)
        documents = row.documents or [Document(row.text, row.title)]
        empty = [index for index, document in enumerate(documents) if not document.text.strip()]
        fields = [f"documents.{index}" if row.documents else "" for index in empty]
        if empty:
            label = "a document" if row.documents else "it"
            raise ValidationErrors([Problem(f"{label} {NO_TEXT}", field) for field in fields])
        return documents

    for _, documents in rows_or_mistakes(path, each_line(path), read):
        yield from documents


def _from_csv(path: Path) -> Iterator[Document]:
    columns, lines = read_csv(path)
    check_columns(path, columns, required={"text"}, optional={"title"})

    def read(_: int, cells: list[str]) -> Document:
        row = csv_row(columns, cells)
        if not row["text"].strip():
            raise InputError(f"it {NO_TEXT}", field="text")
        return Document(row["text"], row.get("title", ""))

    for _, document in rows_or_mistakes(path, lines, read):
        yield document


def _from_text(path: Path) -> Iterator[Document]:
    is_pdf = path.suffix.lower() == ".pdf"
    text = read_pdf(path) if is_pdf else read_text(path).strip()
    if not text:
        raise _unusable(path, NO_TEXT)
    yield Document(text, path.stem)


_READERS = {".jsonl": _from_jsonl, ".csv": _from_csv, **dict.fromkeys((".txt", ".md", ".pdf"), _from_text)}
"""Reader of each file name extension."""


def read_csv(path: Path) -> tuple[tuple[str, ...], Iterator[tuple[int, list[str]]]]:
    """Return the lower-case names of the columns, and the cells of each row with its first line number."""
    lines = _csv_lines(path)
    try:
        number, names = next(lines, (1, list[str]()))
    except ValidationErrors as error:
        raise ValidationErrors(error.problems, str(path)) from error
    columns = tuple(name.strip().lower() for name in names)
    if not columns:
        raise _unusable(path, "is empty; its first line has to name the columns")
    for name, count in Counter(columns).items():
        if count > 1:
            message = f"column {name!r} is there twice; give every column one name"
            raise ValidationErrors([Problem(message, line=number)], str(path))
    return columns, lines


def _csv_lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(read_text(path)), strict=True)
    start, count = 1, 0
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                count += 1
                yield start, cells
            start = reader.line_num + 1
    except csv.Error as error:
        raise ValidationErrors([Problem(f"{error}; check its quotation marks", line=start)]) from error
    if count == 1:
        raise _unusable(path, "has no rows under its header; write one row per line")


def check_columns(path: Path, columns: Sequence[str], *, required: set[str], optional: set[str]) -> None:
    """Raise InputError for a missing or an unknown column."""
    missing, unknown = required.difference(columns), set(columns) - required - optional
    for name in sorted(missing) + sorted(unknown):
        problem = "has no column" if name in missing else "has an unknown column"
        header, advice = ", ".join(columns), f"use {', '.join(sorted(required | optional))}"
        message = f"{path} {problem} {name!r}, its header reads {header!r}; {advice}"
        raise InputError(message, field=name)


def csv_row(columns: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    """Return the cells by column. Raises InputError for another number of cells than columns."""
    if len(cells) != len(columns):
        numbers = f"the number of fields is {len(cells)}, but {len(columns)} in the header"
        raise InputError(f"{numbers}; put a text that has commas in quotation marks")
    return dict(zip(columns, cells, strict=True))


def read_pdf(path: Path) -> str:
    """Return the text of all pages, separated by newlines. Needs pypdf, an optional dependency."""
    try:
        from pypdf import PdfReader
        from pypdf.errors import DependencyError, FileNotDecryptedError
    except ImportError as error:
        message = f"{path.name} cannot be read: pypdf is not installed; {how_to_install('pypdf')}"
        raise InputError(message, field="pypdf") from error
    try:
        with path.open("rb") as file:
            if b"%PDF-" not in file.read(1024):
                raise _unusable(path, "is not a PDF file; give one, or plain text as .txt")
            return _pdf_text(PdfReader(file), path)
    except (InputError, MemoryError):
        raise
    except Exception as error:  # pypdf raises any type for a damaged file: KeyError, RecursionError, ...
        problem = f"is damaged and cannot be read as PDF ({type(error).__name__}); save it again"
        if isinstance(error, OSError):
            problem = f"cannot be read: {error.strerror}; give the path of a file that exists"
        elif isinstance(error, FileNotDecryptedError | DependencyError):
            problem = "is encrypted; save it without a password"
        raise _unusable(path, problem) from error


def _pdf_text(reader: "PdfReader", path: Path) -> str:
    count = len(reader.pages)
    if count > MAX_PAGES:
        raise _unusable(path, f"has {count} pages, more than {MAX_PAGES}; give those that matter")
    end = time.thread_time() + MAX_SECONDS

    def check_time(*_: Any) -> None:
        if time.thread_time() > end:
            raise _unusable(path, f"takes more than {MAX_SECONDS:.0f} s to read; give its text as .txt")

    pages = []
    for page in reader.pages:
        check_time()
        pages.append(page.extract_text(visitor_operand_before=check_time).strip())
    text = "\n".join(filter(None, pages))
    if not text:
        raise _unusable(path, "has no text, perhaps images of it; recognize its text (OCR) first")
    return text
