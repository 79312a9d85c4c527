"""Text in bytes: UTF-8, UTF-16 with a byte order mark, or an encoding that is guessed."""

import codecs
import io
import re

from pine_engine.optional_packages import import_extra

CODE_PAGES = (
    *("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "cp874"),
    *("cp932", "cp949", "gb18030", "big5", "mac_roman"),
)
"""Encodings that a guess may be, those of spreadsheets. Where several give one text, the first is named."""


def decode(content: bytes, *, may_guess: bool) -> tuple[str, str]:
    r"""Return text with \n at line ends, and its encoding if that is a guess, else "". Raises ValueError."""
    is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    guess = ""
    try:
        text = _read(content, "utf-16" if is_utf16 else "utf-8-sig")
    except UnicodeDecodeError:
        guess = guess_encoding(content) if may_guess else ""
        if not guess:
            raise
        text = _read(content, guess)
    if "\0" in text:  # UTF-16 without a byte order mark, or no text
        raise ValueError("a NUL character")
    return text, guess


def guess_encoding(content: bytes) -> str:
    """Return the most likely encoding of bytes that are not UTF-8, "" for none."""
    normalizer = import_extra("charset_normalizer", "charset-normalizer")
    matches = normalizer.from_bytes(content, cp_isolation=list(CODE_PAGES))
    for match in matches:  # Japanese is valid Korean, too, and Korean has no hiragana
        if match.encoding == "cp932" and re.search("[\u3041-\u3096]", str(match)):
            return "cp932"
    equal = () if (best := matches.best()) is None else best.could_be_from_charset
    return next((name for name in CODE_PAGES if name in equal), "")


def _read(content: bytes, encoding: str) -> str:
    return io.TextIOWrapper(io.BytesIO(content), encoding).read()
