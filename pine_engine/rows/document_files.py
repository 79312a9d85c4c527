"""Documents from files of rows (files.py), plain text, PDF, and files of office programs."""

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from pine_engine.errors import InputError
from pine_engine.optional_packages import how_to_install
from pine_engine.rows.documents import HALF_CHARACTER, Document, DocumentInput, DocumentsInput, has_surrogates
from pine_engine.rows.files import KINDS, PLAIN_TEXT, file_kind, parse_rows, read_text
from pine_engine.rows.office_files import TEXTS, read_office_text
from pine_engine.rows.parse_errors import Problem, ValidationErrors, format_validation_errors, unusable_file
from pine_engine.rows.published import has_documents, row_fields

if TYPE_CHECKING:
    from pypdf import PdfReader

MAX_BYTES = 20_000_000  # largest file that is read; its text would fill many contexts

MAX_PAGES = 200
"""Pages of a PDF file. More would take minutes, and fill the context of any model."""

MAX_SECONDS = 30.0
"""Seconds of CPU time for a PDF file, checked at each page and operand; a server also limits its process."""

NO_TEXT = "has no text; write some, or remove it"

TEXT_KINDS = (*PLAIN_TEXT, ".pdf", *TEXTS)
"""Endings of files that are one document."""


def read_documents(paths: Sequence[Path], limit: int | None = None) -> list[Document]:
    """Return the documents of all files in order, at most `limit`; content after these is not parsed.

    A row of a file of rows is a text, an object with a text and optionally a title, a list of these, or has
    "documents". Any other file is one document, with the file name as its title.
    """
    if not paths:
        raise InputError("no files were selected; give at least one", field="paths")
    return list(islice((document for path in paths for document in _read(path)), limit))


def _read(path: Path) -> Iterator[Document]:
    kind = file_kind(path)
    if kind not in (*KINDS, *TEXT_KINDS):
        raise unusable_file(path, f"has an unknown type; give one of: {', '.join((*KINDS, *TEXT_KINDS))}")
    if path.is_file() and (size := path.stat().st_size) > MAX_BYTES:
        raise unusable_file(path, f"has {size:,} bytes, more than {MAX_BYTES:,}; give a part of it")
    if kind in KINDS:
        for _, documents in parse_rows(path, _documents_of, MAX_BYTES):
            yield from documents
        return
    if kind == ".pdf":
        text = read_pdf(path)
    else:
        text = read_office_text(path) if kind in TEXTS else read_text(path, MAX_BYTES).strip()
    if not text:
        raise unusable_file(path, NO_TEXT)
    yield Document(text, join_surrogates(path.stem))


_DOCUMENT, _DOCUMENTS = TypeAdapter(DocumentInput), TypeAdapter(dict[str, DocumentsInput])


def _documents_of(_: int, row: Any) -> list[Document]:
    """Return the documents of a row. Raises ValidationErrors, also for a document without text."""
    several = row if isinstance(row, list) else row_fields(row)["documents"] if has_documents(row) else None
    try:
        if several is None:
            documents = [_DOCUMENT.validate_python(row)]
        else:
            documents = _DOCUMENTS.validate_python({"documents": several})["documents"]
    except ValidationError as error:
        raise ValidationErrors(format_validation_errors(error)) from error
    problems = []
    for index, document in enumerate(documents):
        field, label = ("", "it") if several is None else (f"documents[{index}]", f"document {index + 1}")
        if not document.text.strip():
            problems.append(Problem(f"{label} {NO_TEXT}", field))
        elif any(map(has_surrogates, (document.text, document.title))):
            problems.append(Problem(f"{label} {HALF_CHARACTER}", field))
    if problems or not documents:
        raise ValidationErrors(problems or [Problem(f"it {NO_TEXT}")])
    return documents


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
                raise unusable_file(path, "is not a PDF file; give one, or plain text as .txt")
            return _pdf_text(PdfReader(file), path)
    except (InputError, MemoryError):
        raise
    except Exception as error:  # pypdf raises any type for a damaged file: KeyError, RecursionError, ...
        problem = f"is damaged and cannot be read as PDF ({type(error).__name__}); save it again"
        if isinstance(error, OSError):
            problem = f"cannot be read: {error.strerror}; give the path of a file that exists"
        elif isinstance(error, FileNotDecryptedError | DependencyError):
            problem = "is encrypted; save it without a password"
        raise unusable_file(path, problem) from error


def _pdf_text(reader: "PdfReader", path: Path) -> str:
    count = len(reader.pages)
    if count > MAX_PAGES:
        raise unusable_file(path, f"has {count} pages, more than {MAX_PAGES}; give those that matter")
    end = time.thread_time() + MAX_SECONDS

    def check_time(*_: Any) -> None:
        if time.thread_time() > end:
            raise unusable_file(path, f"takes more than {MAX_SECONDS:.0f} s to read; give its text as .txt")

    pages = []
    for page in reader.pages:
        check_time()
        pages.append(page.extract_text(visitor_operand_before=check_time).strip())
    text = join_surrogates("\n".join(filter(None, pages))).strip()
    if not text:
        raise unusable_file(path, "has no text, perhaps images of it; recognize its text (OCR) first")
    return text


def join_surrogates(text: str) -> str:
    """Return the text with halves of surrogate pairs joined to characters; other halves are left out.

    Fonts of PDF files name a character such as an emoji by two halves.
    """
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")
