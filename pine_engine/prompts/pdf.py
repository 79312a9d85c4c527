"""The text of a PDF file, page after page; needs pypdf, which the engine alone does not bring."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pine_engine.errors import InputError
from pine_engine.extras import how_to_install

if TYPE_CHECKING:
    from pypdf import PdfReader

MAX_PAGES = 200
"""More would take minutes, and fill no model's context."""

MAX_SECONDS = 30.0
"""Of computing; a file of a few kilobytes can be packed so that its pages take hours.

The time is looked at before each page and at each operand. What has none, such as megabytes of comments, is
read to its end first: who reads the files of others sets a limit from outside, as the page does.
"""


def read_pdf(path: Path) -> str:
    """The text of all pages, with one newline between two of them.

    Raises InputError if pypdf is missing, or the file is no PDF, is damaged, is locked by a password, has
    more than MAX_PAGES pages, takes more than MAX_SECONDS, or holds no text.
    """
    try:
        from pypdf import PdfReader
        from pypdf.errors import DependencyError, FileNotDecryptedError
    except ImportError as error:
        raise InputError(
            f"{path.name} cannot be read: pypdf is not installed; {how_to_install('pypdf')}"
        ) from error
    try:
        with path.open("rb") as file:
            if b"%PDF-" not in file.read(1024):
                raise InputError(f"{path} is not a PDF file; give one, or plain text as .txt")
            return _text(PdfReader(file), path)
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}; give the path of a file that exists"
        ) from error
    except (FileNotDecryptedError, DependencyError) as error:
        raise InputError(f"{path} is encrypted; save it without a password") from error
    except (InputError, MemoryError):
        raise
    # A damaged file can make the reader fail in any way: KeyError, RecursionError, its own errors, ...
    except Exception as error:
        raise InputError(
            f"{path} is damaged and cannot be read as PDF ({type(error).__name__}); save it anew"
        ) from error


def _text(reader: "PdfReader", path: Path) -> str:
    count = len(reader.pages)
    if count > MAX_PAGES:
        raise InputError(f"{path} has {count} pages, more than {MAX_PAGES}; give those that matter")
    end = time.thread_time() + MAX_SECONDS

    def check_time(*_: Any) -> None:
        if time.thread_time() > end:
            raise InputError(f"{path} takes more than {MAX_SECONDS:.0f} s to read; give its text as .txt")

    pages = []
    for page in reader.pages:
        check_time()
        pages.append(page.extract_text(visitor_operand_before=check_time).strip())
    text = "\n".join(filter(None, pages))
    if not text:
        raise InputError(f"{path} holds no text, perhaps pictures of it; recognise its text (OCR) first")
    return text
