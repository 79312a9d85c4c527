"""Users' own files as documents: JSONL, CSV, plain text and PDF, with errors that name file and line."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from pydantic import BaseModel, Field

from pine_engine.errors import InputError
from pine_engine.prompts.csv_table import check_columns, read_table
from pine_engine.prompts.inputs import DocumentInput, each_line, read_text
from pine_engine.prompts.pdf import read_pdf
from pine_engine.prompts.prompt import Document

MAX_BYTES = 20_000_000
"""The largest file that is read; its text would fill many contexts."""


def read_documents(paths: Sequence[Path], limit: int | None = None) -> list[Document]:
    """The documents of all files, in their order, at most `limit`; what is behind these is not parsed.

    .jsonl: one {"text", "title"} a line, or rows that have such "documents". .csv: a header with the column
    text and perhaps title, one document a row. .txt, .md, .pdf: one document, titled by the file's name.
    Raises InputError that names the file, and the line where it has lines, for what cannot be read, has
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
    """A line of JSONL: one document, or a row with several; other fields are ignored."""

    text: str = ""
    title: str = ""
    documents: list[str | DocumentInput] = Field(default_factory=list)

    def read(self) -> Iterator[Document]:
        """The documents of the line, the one without text that it is where it has none."""
        if not self.documents:
            yield Document(self.text, self.title)
        for given in self.documents:
            yield Document(given) if isinstance(given, str) else Document(given.text, given.title)


def _from_jsonl(path: Path) -> Iterator[Document]:
    for number, line in each_line(DocumentLine, path):
        for place, document in enumerate(line.read(), start=1):
            which = f": document {place}" if line.documents else ""
            _check(document.text, f"{path}, line {number}{which}")
            yield document


def _from_csv(path: Path) -> Iterator[Document]:
    table = read_table(path)
    check_columns(path, table.header, needed={"text"}, allowed={"title"})
    for number, row in table.rows:
        _check(row["text"], f"{path}, line {number}")
        yield Document(row["text"], row.get("title", ""))


def _from_text(path: Path) -> Iterator[Document]:
    text = read_text(path).removeprefix("\ufeff").strip()
    _check(text, str(path))
    yield Document(text, path.stem)


def _from_pdf(path: Path) -> Iterator[Document]:
    yield Document(read_pdf(path), path.stem)


def _check(text: str, where: str) -> None:
    if not text.strip():
        raise InputError(f"{where} has no text; write some, or remove it")


_READERS: dict[str, Callable[[Path], Iterator[Document]]] = {
    ".jsonl": _from_jsonl,
    ".csv": _from_csv,
    ".txt": _from_text,
    ".md": _from_text,
    ".pdf": _from_pdf,
}
"""What reads each ending of a file's name."""
