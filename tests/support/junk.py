"""Hypothesis strategies of invalid and hostile input: texts, JSON, rows and contents of files."""

import json
from typing import Any

from hypothesis import strategies as st

from pine_engine.methods.table import METHODS
from pine_engine.prompts.tasks import TASKS
from tests.support.pdf_files import PDF_LOOP, PDF_MANY, pdf_of
from tests.support.viz_reading import HOSTILE

STRANGE = (
    "", " ", "\x00", "\x1b[31m\x07", "\u2028\u0085", "\ufeff", "\ud800", "\u202eabc", "\u200b",
    "\U0010ffff", "\U0001f469\u200d\U0001f467", "e\u0301" * 20, "a" * 999, "../../etc/passwd", "file:///etc/passwd",
    "%s{0}{x!r}", "null", "NaN", "-1", "1e999", "$(id)", "--help", "-", "</s>", "<0x0A>", "[INST]",
)  # fmt: skip
"""Texts that programs often handle incorrectly."""

TEXTS = st.sampled_from((*HOSTILE, *STRANGE)) | st.text(st.characters(), max_size=40)
"""Texts, with NUL and unpaired surrogates among them."""

NONEMPTY = TEXTS.map("a{}".format)

FORBIDDEN_FILE = "/etc/passwd"

PATHS = (
    FORBIDDEN_FILE, "../../../../../../../etc/passwd", "/", "", "\x00", "http://127.0.0.1:9/x",
    "//etc/passwd",
)  # fmt: skip


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
    | st.sampled_from([10**400, nested(100), *METHODS, "suffix 3", "document 99999999999"])
    | st.sampled_from(PATHS).map(lambda path: {"path": path, "meta": {"_type": "gradio.FileData"}}),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
"""JSON of all types, with NaN, file objects and deep lists among it."""

ROWS = st.fixed_dictionaries(
    {
        "id": TEXTS,
        "task": st.sampled_from(["retrieval_qa", *sorted(TASKS)]),
        "question": NONEMPTY,
        "documents": st.lists(
            st.fixed_dictionaries({"text": NONEMPTY, "title": TEXTS}), min_size=1, max_size=3
        ),
    },
    optional={"gold_index": st.integers(-1, 3) | JUNK, "answers": st.lists(TEXTS, max_size=2) | JUNK},
)
"""Nearly valid rows of a data set."""

REQUESTS = st.fixed_dictionaries(
    {"question": NONEMPTY, "documents": st.lists(NONEMPTY, min_size=1, max_size=3)}
)


def json_lines(values: list[Any]) -> bytes:
    """Return JSONL as Python writes it, with NaN and unpaired surrogates."""
    return "\n".join(map(json.dumps, values)).encode()


CONTENTS = st.one_of(
    TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass")),
    TEXTS.map(lambda text: text.encode("utf-16", "surrogatepass")),
    st.lists(JUNK | ROWS | REQUESTS, max_size=3).map(json_lines),
    st.lists(TEXTS, max_size=4).map(lambda row: f"title,text\n{','.join(row)}".encode("utf-8", "replace")),
    st.binary(max_size=300),
    st.tuples(st.integers(0, 600), st.binary(max_size=20)).map(
        lambda cut: pdf_of("hello")[: cut[0]] + cut[1] + pdf_of("hello")[cut[0] :]
    ),
    st.sampled_from([PDF_LOOP, PDF_MANY, b"\x00" * 20_000, b"," * 20_000, b'"' * 10_000, b"[" * 20_000]),
)
"""Contents of files of all types."""
