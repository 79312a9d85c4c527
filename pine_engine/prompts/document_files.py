"""Users' own files as documents: JSONL, CSV, plain text and PDF, with errors that name file and line."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, model_validator

from pine_engine.errors import InputError
from pine_engine.prompts.csv_table import Record, check_columns, read_table
from pine_engine.prompts.inputs import DocumentInput, each_line, parse, read_text, to_document, unexpected
from pine_engine.prompts.parse_errors import ValidationErrors, rows_or_mistakes
from pine_engine.prompts.pdf import read_pdf
from pine_engine.prompts.prompt import Document

MAX_BYTES = 20_000_000
"""The largest file that is read; its text would fill many contexts."""

NO_TEXT = "has no text; write some, or remove it"


def read_documents(paths: Sequence[Path], limit: int | None = None) -> list[Document]:
    """The documents of all files, in their order, at most `limit`; what is behind these is not parsed.

    .jsonl: one text or {"text", "title"} a line, a list of them, or rows that have such "documents". .csv: a
    header with the column text and perhaps title, one document a row. .txt, .md, .pdf: one document, titled
    by the file's name.
    Raises InputError that names the file, and all lines where it has lines, for what cannot be read, has
    another ending, or has no text.
    """
    if not paths:
        raise InputError("no files were given; give at least one")
    return list(islice((document for path in paths for document in _read(path)), limit))


def _read(path: Path) -> Iterator[Document]:
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path} is of no kind that can be read; give one of: {', '.join(_READERS)}")
    if path.is_file() and path.stat().st_size > MAX_BYTES:
        raise InputError(
            f"{path} has {path.stat().st_size:,} bytes, more than {MAX_BYTES:,}; give a part of it"
        )
    return reader(path)


class DocumentLine(BaseModel):
    """A line of JSONL: one document, or several, alone or in a row; other fields are ignored."""

    text: str = ""
    title: str = ""
    documents: list[DocumentInput] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        if isinstance(given, str):
            return {"text": given}
        if isinstance(given, list):
            return {"documents": given}
        if isinstance(given, dict):
            return given
        raise unexpected(given, 'a text, {"text", "title"}, or a list of them')

    def read(self) -> list[Document]:
        """The documents of the line. Raises ValidationErrors that names all that have no text."""
        if not self.documents:
            return [_with_text(Document(self.text, self.title))]
        documents = list(map(to_document, self.documents))
        if empty := [place for place, each in enumerate(documents, start=1) if not each.text.strip()]:
            raise ValidationErrors(*(f"document {place} {NO_TEXT}" for place in empty))
        return documents


def _from_jsonl(path: Path) -> Iterator[Document]:
    def read(number: int, line: str) -> list[Document]:
        return parse(DocumentLine, line, number).read()

    for _, documents in rows_or_mistakes(path, each_line(path), read):
        yield from documents


def _from_csv(path: Path) -> Iterator[Document]:
    table = read_table(path)
    check_columns(path, table.header, needed={"text"}, allowed={"title"})

    def read(_: int, record: Record) -> Document:
        row = table.row(record)
        return _with_text(Document(row["text"], row.get("title", "")))

    for _, document in rows_or_mistakes(path, table.records, read):
        yield document


def _from_text(path: Path) -> Iterator[Document]:
    text = read_text(path).removeprefix("\ufeff").strip()
    if not text:
        raise InputError(f"{path} {NO_TEXT}")
    yield Document(text, path.stem)


def _from_pdf(path: Path) -> Iterator[Document]:
    yield Document(read_pdf(path), path.stem)


def _with_text(document: Document) -> Document:
    if not document.text.strip():
        raise InputError(f"it {NO_TEXT}")
    return document


_READERS: dict[str, Callable[[Path], Iterator[Document]]] = {
    ".jsonl": _from_jsonl,
    ".csv": _from_csv,
    ".txt": _from_text,
    ".md": _from_text,
    ".pdf": _from_pdf,
}
"""What reads each ending of a file's name."""
