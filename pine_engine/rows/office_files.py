"""Files of office programs and HTML, which need the optional package markitdown."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

from pine_engine.errors import InputError, one_line
from pine_engine.optional_packages import how_to_install, import_extra

SHEET = ".xlsx"
ZIPPED = (".docx", ".pptx")
TEXTS = (*ZIPPED, ".html", ".htm")

logger = logging.getLogger(__name__)


def read_office_text(path: Path) -> str:
    """Return the text of a file as Markdown. Raises InputError, also if markitdown is not installed."""
    with _markitdown(path) as markitdown:
        if path.suffix.lower() in ZIPPED and not is_zipfile(path):  # markitdown would return its bytes
            raise ValueError("no zip file")
        converter = markitdown.MarkItDown(enable_plugins=False)
        return str(converter.convert_local(str(path)).text_content).strip()


def read_sheet(path: Path) -> Iterator[tuple[int, list[str] | InputError]]:
    """Yield the cells of the first sheet of a workbook as texts, by row from 1, without empty rows.

    Raises InputError as `read_office_text`. pandas is a package that markitdown needs for workbooks.
    """
    with _markitdown(path):
        book = import_extra("pandas", "pandas").ExcelFile(path)
        first, *others = map(str, book.sheet_names)
        rows = book.parse(first, header=None, dtype=str, na_filter=False).itertuples(index=False, name=None)
    if others:
        logger.warning("%s: read the sheet %s only, not %s", path, first, ", ".join(others))
    yield from (
        (number, [*cells]) for number, cells in enumerate(rows, start=1) if any(map(str.strip, cells))
    )


@contextmanager
def _markitdown(path: Path) -> Iterator[Any]:
    """Import markitdown; raise its errors, of any type, as InputError with the file."""
    try:
        yield import_extra("markitdown", "markitdown")
    except InputError as error:
        raise InputError(f"{path} cannot be read: {error}", field=error.field) from error
    except Exception as error:
        advice = "save it again, or as .csv or .txt"
        if isinstance(error, ImportError) or "MissingDependency" in type(error).__name__:
            advice = how_to_install("markitdown")
        raise InputError(f"{path} cannot be read: {one_line(error)}; {advice}", field=str(path)) from error
