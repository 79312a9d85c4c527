"""PDF files: of one text, without an end, and small ones that unpack to long contents."""

import zlib
from functools import cache


def _pdf(contents: bytes, kids: bytes = b"[3 0 R]", count: int = 1, to_unicode: bytes = b"") -> bytes:
    """Return a PDF with this content stream in each page; kids: references to its pages.

    to_unicode: character map of its font.
    """
    packed = zlib.compress(contents, 9)
    objects = (
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids%s/Count %d>>" % (kids, count),
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Resources<</Font<</F<</Type/Font/Subtype/Type1"
        b"/BaseFont/Helvetica%s>>>>>>/Contents 4 0 R>>" % (b"/ToUnicode 5 0 R" * bool(to_unicode)),
        b"<</Filter/FlateDecode/Length %d>>stream\n%s\nendstream " % (len(packed), packed),
        b"<</Length %d>>stream\n%s\nendstream " % (len(to_unicode), to_unicode),
    )
    text, offsets = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        offsets.append(b"%010d 00000 n \n" % len(text))
        text += b"%d 0 obj%s endobj\n" % (number, content)
    table = b"xref\n0 6\n0000000000 65535 f \n%strailer<</Root 1 0 R/Size 6>>\n" % b"".join(offsets)
    return text + table + b"startxref\n%d\n%%%%EOF" % len(text)


def pdf_of(text: str) -> bytes:
    """Return a PDF of one page with a text without parentheses."""
    return _pdf(b"BT /F 9 Tf (%s) Tj ET" % text.encode())


def pdf_of_characters(codes: list[str]) -> bytes:
    """Return a PDF of one page, whose font maps its bytes, from 1, to these UTF-16 codes."""
    numbers = range(1, len(codes) + 1)
    pairs = "".join(f"<{number:02x}> <{code}>\n" for number, code in zip(numbers, codes, strict=True))
    space = "1 begincodespacerange\n<00> <ff>\nendcodespacerange\n"
    characters = f"begincmap\n{space}{len(codes)} beginbfchar\n{pairs}endbfchar\nendcmap"
    return _pdf(b"BT /F 9 Tf <%s> Tj ET" % bytes(numbers).hex().encode(), to_unicode=characters.encode())


PDF_OF_BOMBS = _pdf(b"BT /F 9 Tf (x) Tj ET " * 20_000, kids=b"[%s]" % (b"3 0 R " * 150), count=150)
PDF_LOOP = _pdf(b"BT /F 9 Tf (x) Tj ET", kids=b"[2 0 R]")
PDF_MANY = _pdf(b"BT /F 9 Tf (x) Tj ET", count=999_999_999)


@cache
def pdf_bomb() -> bytes:
    """Return a PDF of one page with 3 million words."""
    return _pdf(b"BT /F 9 Tf (x) Tj ET " * 3_000_000)


@cache
def pdf_of_comments() -> bytes:
    """Return a PDF of one page with 20 million comments."""
    return _pdf(b"%\n" * 20_000_000)
