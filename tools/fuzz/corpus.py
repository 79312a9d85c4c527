"""Invalid and hostile input: texts, JSON, links and files, generated from a seed and a corpus."""

import base64
import gzip
import io
import json
import zipfile
import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from pine_engine.methods.table import METHODS
from pine_engine.prompts.tasks import TASKS

Value = TypeVar("Value")

CONTROL = (
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "</s>", "<s>", "<pad>", "<unk>", "[INST]", "[/INST]",
    "<<SYS>>", "<|eot_id|>", "<|begin_of_text|>", "<|start_header_id|>", "<start_of_turn>", "<end_of_turn>",
    "<bos>", "<eos>", "<think>", "</think>", "<tool_call>", "<|tool|>", "<0x0A>", "<0x3C>", "▁", "Ġ", "Ċ",
)  # fmt: skip
"""Control tokens of chat templates, and the tokens of bytes and blanks."""

PAYLOADS = (
    "<img src=x onerror=window.__pwned=1>",
    "<script>window.__pwned=1</script>",
    "</textarea></td></table><svg onload=window.__pwned=1>",
    "\"'><iframe srcdoc='<script>parent.__pwned=1</script>'>",
    "javascript:window.__pwned=1",
    "{{constructor.constructor('window.__pwned=1')()}}",
    "{% raw %}{{7*7}}${7*7}<%= 7*7 %>#{7*7}",
    "{{#with this}}{{lookup (lookup this 'constructor') 'name'}}{{/with}}",
    "$$\\href{javascript:window.__pwned=1}{x}$$ \\(\\unicode{<img src=x onerror=window.__pwned=1>}\\)",
    "<style>@import 'http://example.com/x.css';</style><link rel=stylesheet href=//example.com>",
    "![x](http://example.com/x.png) [x](javascript:window.__pwned=1)",
    "data-pick='{\"query\":1}' onmouseover=window.__pwned=1",
)
"""Texts with an effect in a browser that renders them as HTML, template or formula."""

STRANGE = (
    "", " ", "\n", "\x00", "\x1b[31m\x07\x08", "\u2028\u2029\u0085", "\ufeff", "\ud800", "\udfffx",
    "\u202eabc\u202c", "שלום مرحبا", "\u200b\u200c\u200d\u2060", "👩‍👩‍👧‍👦🏳️‍🌈", "e\u0301" * 20, "\U0010ffff",
    "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢",
    "../../etc/passwd", "/etc/passwd", "C:\\Windows\\win.ini", "file:///etc/passwd", "%s%n{0}{x!r}",
    "a" * 5000,
    "\\ud800", "null", "NaN", "-1", "1e999", "' OR 1=1 --", "$(touch /tmp/pwned)", "`id`", "--help", "-",
)  # fmt: skip
"""Texts that programs often handle incorrectly."""

ODD_CHARACTERS = st.characters()  # surrogates among them

TEXTS: st.SearchStrategy[str] = st.one_of(
    st.sampled_from((*CONTROL, *PAYLOADS, *STRANGE)),
    st.text(ODD_CHARACTERS, max_size=40),
    st.lists(
        st.one_of(
            st.sampled_from((*CONTROL, *PAYLOADS, *STRANGE, " a ")), st.text(ODD_CHARACTERS, max_size=4)
        ),
        max_size=6,
    ).map("".join),
)

NONEMPTY_TEXTS = TEXTS.map("a{}".format)
"""Texts that are not empty."""

FILE = {"meta": {"_type": "gradio.FileData"}}
"""Mark of a file object of gradio."""

PATHS = ("/etc/passwd", "/proc/self/environ", "../../etc/passwd", "README.md", "", "\x00", "/", "http://127.0.0.1:9/x",
         "https://example.com/x", " HTTP://127.0.0.1:9", "file:///etc/passwd", "//etc/passwd")  # fmt: skip


def _nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


JUNK: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.sampled_from([10**9, -(10**9), 10**400, 0.5, 1e308, float("nan"), float("inf"), -float("inf")]),
        st.floats(),
        TEXTS,
        st.sampled_from(PATHS).map(lambda path: FILE | {"path": path}),
        st.sampled_from(PATHS).map(lambda path: {"path": path, "url": path}),
        st.sampled_from([_nested(50), _nested(400), "x" * 600_000]),
        st.sampled_from([*METHODS, *TASKS, "own", "mean", "suffix 3", "document 99999999999", "Masks"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)
"""Values of all types of JSON, and NaN and infinity."""


def samples(strategy: st.SearchStrategy[Value], count: int, first_seed: int) -> Iterator[Value]:
    """Yield a number of values of a strategy; equal seeds give equal values."""
    found: list[Value] = []
    batch = 0
    while count > 0:

        @seed(first_seed * 10_007 + batch)
        @settings(
            max_examples=min(count, 200),
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(strategy)
        def add(value: Value) -> None:
            found.append(value)

        found.clear()
        add()
        yield from found[:count]
        count -= len(found)
        batch += 1


# links and session files

SESSION = {
    "format": "pine-explorer session",
    "version": 1,
    "task": "retrieval_qa",
    "question": "Why?",
    "instruction": "",
    "accepted": "",
    "methods": ["vanilla", "pine"],
    "max_new_tokens": 8,
    "documents": [{"letter": 0, "title": "", "text": "a"}, {"letter": 1, "title": "t", "text": "b"}],
    "ran": False,
    "selection": {},
    "tab": "",
}

SESSIONS: st.SearchStrategy[Any] = st.one_of(
    st.dictionaries(st.sampled_from([*SESSION, "extra"]), JUNK, max_size=3).map(lambda new: SESSION | new),
    st.dictionaries(st.sampled_from(["question", "accepted", "tab"]), TEXTS).map(lambda new: SESSION | new),
    JUNK,
)


def as_json(value: Any) -> bytes:
    """Return JSON as Python writes it, including NaN and lone surrogates."""
    return json.dumps(value).encode()


def packed(content: bytes) -> str:
    """Return the code of a link with this content."""
    return base64.urlsafe_b64encode(zlib.compress(content, 9)).decode().rstrip("=")


CODES: st.SearchStrategy[str] = st.one_of(
    SESSIONS.map(as_json).map(packed),
    st.tuples(SESSIONS.map(as_json).map(packed), st.integers(0, 400)).map(lambda pair: pair[0][: pair[1]]),
    st.binary(max_size=200).map(packed),
    st.binary(max_size=200).map(lambda raw: base64.b64encode(raw).decode()),
    TEXTS,
    st.builds(lambda: packed(b" " * 20_000_000)),
    st.just(packed(b"[" * 100_000)),
    st.just(packed(b"9" * 100_000)),
)

# files


def _zipped() -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", b"0" * 20_000_000)
    return target.getvalue()


def _pdf(contents: bytes, kids: bytes = b"[3 0 R]", count: int = 1) -> bytes:
    """Return a PDF with this stream in each page; kids: references to its pages."""
    objects = (
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids%s/Count %d>>" % (kids, count),
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Resources<</Font<</F<</Type/Font/Subtype/Type1"
        b"/BaseFont/Helvetica>>>>>>/Contents 4 0 R>>",
        contents,
    )
    text, offsets = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        offsets.append(b"%010d 00000 n \n" % len(text))
        text += b"%d 0 obj%s endobj\n" % (number, content)
    table = b"xref\n0 5\n0000000000 65535 f \n%strailer<</Root 1 0 R/Size 5>>\n" % b"".join(offsets)
    return text + table + b"startxref\n%d\n%%%%EOF" % len(text)


def _deflated(content: bytes) -> bytes:
    raw = zlib.compress(content, 9)
    return b"<</Filter/FlateDecode/Length %d>>stream\n%s\nendstream " % (len(raw), raw)


_HELLO = _deflated(b"BT /F 9 Tf (hello) Tj ET")


def pdf_of(text: str) -> bytes:
    """Return a PDF of one page with a text without parentheses."""
    return _pdf(_deflated(b"BT /F 9 Tf (%s) Tj ET" % text.encode()))


PDF = pdf_of("hello")
PDF_OF_BOMBS = _pdf(_deflated(b"BT /F 9 Tf (x) Tj ET " * 20_000), kids=b"[%s]" % (b"3 0 R " * 150), count=150)
PDF_LOOP = _pdf(_HELLO, kids=b"[2 0 R]")
PDF_MANY = _pdf(_HELLO, count=999_999_999)


@cache
def pdf_bomb() -> bytes:
    """Return a PDF of one page with 3 million words."""
    return _pdf(_deflated(b"BT /F 9 Tf (x) Tj ET " * 3_000_000))


@cache
def pdf_of_comments() -> bytes:
    """Return a PDF of one page with 20 million comments."""
    return _pdf(_deflated(b"%\n" * 20_000_000))


def bombs() -> tuple[tuple[bytes, str], ...]:
    """Return files that take long to parse or have the maximum size, with the suffixes of their names."""
    return (
        (pdf_bomb(), ".pdf"),
        (PDF_OF_BOMBS, ".pdf"),
        (pdf_of_comments(), ".pdf"),
        (PDF_LOOP, ".pdf"),
        (b",".join(b"%d" % number for number in range(1_250_000)), ".csv"),
        (b"text\n" + b"a\n" * 4_900_000, ".csv"),
        (b'{"text": "a"}\n' * 700_000, ".jsonl"),
        (b'{"documents": [%s"a"]}' % (b'"a", ' * 2_000_000), ".jsonl"),
        (b"\n" * 10_000_000, ".jsonl"),
    )


ROWS: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {
        "id": TEXTS | st.integers(0, 9).map(str),
        "task": st.sampled_from(["retrieval_qa", "retrieval_qa", *sorted(TASKS)]),
        "question": TEXTS | NONEMPTY_TEXTS,
        "documents": st.lists(
            st.fixed_dictionaries({"text": NONEMPTY_TEXTS, "title": TEXTS}), min_size=1, max_size=3
        )
        | st.just([]),
    },
    optional={
        "gold_index": st.integers(-1, 3) | JUNK,
        "answers": st.lists(TEXTS, max_size=2) | JUNK,
        "meta": JUNK,
    },
)
"""Rows of a data set."""

REQUESTS: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"question": NONEMPTY_TEXTS, "documents": st.lists(NONEMPTY_TEXTS, min_size=1, max_size=3)}
)
"""Requests of the subcommand `compare`."""


def _strange_files() -> st.SearchStrategy[bytes]:
    return st.sampled_from(
        [PDF, PDF_LOOP, PDF_MANY, _zipped(), gzip.compress(b"0" * 20_000_000), b"\x00" * 100_000,
         b"," * 200_000 + b"\n" + b"," * 200_000, b'"' * 10_000, b"[" * 100_000, b"text\n" + b'"\n' * 5000,
         b"9" * 50_000, b"\xff\xfe\x00", b"id,question,answers,document1\n" + b"a,b,c,d\n" * 3000]
    )  # fmt: skip


CONTENTS: st.SearchStrategy[bytes] = st.one_of(
    TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.lists(JUNK, max_size=3).map(lambda rows: b"\n".join(map(as_json, rows))),
    st.lists(ROWS, max_size=3).map(lambda rows: b"\n".join(map(as_json, rows))),
    REQUESTS.map(as_json),
    st.lists(st.lists(TEXTS, max_size=4), max_size=4).map(
        lambda rows: "\n".join(",".join(row) for row in [["title", "text"], *rows]).encode("utf-8", "replace")
    ),
    st.binary(max_size=300),
    st.tuples(st.integers(0, len(PDF)), st.binary(max_size=20)).map(
        lambda cut: PDF[: cut[0]] + cut[1] + PDF[cut[0] :]
    ),
    SESSIONS.map(as_json),
    TEXTS.map(lambda text: text.encode("utf-16", "surrogatepass")),
    st.binary(max_size=100).map(gzip.compress),
    st.deferred(_strange_files),
)

SUFFIXES = (".txt", ".md", ".pdf", ".csv", ".jsonl", ".json", ".gz", ".jsonl.gz", "", ".exe", ".PDF")
