"""Time of every function that scans text of users: it grows linearly with the length of the text."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from pine_engine import TASKS, InputError
from pine_engine.lab.debias.combining import named_label
from pine_engine.prompts.answer_words import contains_words
from pine_engine.prompts.layout import tokenize_text
from pine_engine.prompts.marked import MARK, split_documents
from tests.support.tokenizers import byte_tokenizer
from viz.page.form.pasted import split_pasted
from viz.page.serving.escaped_output import escaped

LENGTH = 4000  # characters of the shorter text; a quadratic scan of four times as many takes 10 to 100 ms
ALLOWED = 8.0  # times as long for a text four times as long
ALLOWED_S = 0.01
NUM_ATTEMPTS = 4  # programs on the same cores also take time of the thread, as they fill its caches
TOKENIZER = byte_tokenizer()

FUNCTIONS: dict[str, Callable[[str], Any]] = {
    "split_documents": split_documents,
    "split_documents, earlier": lambda text: split_documents(text, ignores_earlier=True),
    "MARK": MARK.findall,
    "tokenize_text": lambda text: tokenize_text(text, TOKENIZER),
    "named_label": lambda text: named_label(text, ["A", "B"]),
    "contains_words": lambda text: contains_words(text, ["a b", "the a", "?", "nn"], besides=["x x", "1"]),
    "split_pasted": split_pasted,
    "escaped": escaped,
    "tasks": lambda text: [
        (task.parse(text), task.normalize(text), task.score(text, ["12"])) for task in TASKS.values()
    ],
}
UNITS = [
    *(
        "<document>", "</document>", "<", "<|im_end|>", "[[", "[[A]]", "]]", "Answer", "1,", "1", "---",
        "---\n",
    ),
    *(" ", "\n", "\t", "#", "x", "x ", "?", '"', "“", ".", "Mr. ", "3. ", "Ann has 3. ", "She has 3. "),
    *("as many ", "as ", "more ", "than ", "on ", "teen", "the "),
]  # fmt: skip
PARTS = st.sampled_from(UNITS)


def seconds(function: Callable[[str], Any], text: str) -> float:
    """Return the shortest of three times."""
    times = []
    for _ in range(3):
        began = time.thread_time()
        with suppress(InputError):
            function(text)
        times.append(time.thread_time() - began)
    return min(times)


@pytest.mark.parametrize("name", FUNCTIONS)
@example(["<document>"])
@example(["<"])
@example(["[["])
@example(["Mr. "])
@example(["3. "])
@example(["as many ", "3 ", ". A?"])
@given(st.lists(PARTS, min_size=1, max_size=3))
@settings(max_examples=settings().max_examples // 3)
def test_time_of_scan_is_linear(name: str, parts: list[str]) -> None:
    def text_of(length: int) -> str:
        share = length // len(parts)
        return "".join((part * (share // len(part) + 1))[:share] for part in parts)

    def is_linear() -> bool:
        short, long = (seconds(FUNCTIONS[name], text_of(length)) for length in (LENGTH, 4 * LENGTH))
        return long < ALLOWED * short + ALLOWED_S

    assert any(is_linear() for _ in range(NUM_ATTEMPTS))
