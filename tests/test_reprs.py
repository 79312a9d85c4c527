"""Records show themselves in a line, however much they hold, and their text is never markup."""

from typing import Any

import numpy as np
import pytest
import torch

from pine_engine import METHODS, Answer, Document, Prompt, RunResult, TokenLayout, Trace
from pine_engine.engine.orders import OrderComparison, OrderResult
from pine_engine.prompts.prompt import Piece
from pine_engine.reprs import html_table, shorten

LONG = "very " * 999
LAYOUT = TokenLayout(tuple(range(999)), tuple(tuple(range(500)) for _ in range(99)), (7,))
ANSWER = Answer("pine", f"<b>{LONG}", tuple(range(999)), (-0.25,) * 999, 0.5, 0.1, "length")
TRACE = Trace(
    "pine", LAYOUT, np.zeros((30, 9, 99, 99), np.int32), np.zeros((30, 9, 64, 99), np.int32),
    np.zeros((30, 9, 99, 99), np.float32),
)  # fmt: skip
RESULT = RunResult(LAYOUT, dict.fromkeys(METHODS, ANSWER), {"pine": TRACE}, {"pine": torch.zeros(99, 97)})
CELL = OrderComparison(ANSWER, True, None, 0.0, True, -1.0)


def test_repr_of_short_record_is_complete() -> None:
    layout = TokenLayout((5, 9), ((11, 12), (21,)), (51,))
    assert eval(repr(layout)) == layout
    assert repr(Document("red", "R")) == "Document(text='red', title='R')"


RECORDS: list[Any] = [LAYOUT, ANSWER, TRACE, RESULT, CELL, Document(LONG), OrderResult((1, 0), {}, RESULT)]


@pytest.mark.parametrize("record", [*RECORDS, Prompt((Piece(LONG),), ((Piece(LONG),),) * 99, ())], ids=type)
def test_repr_of_long_record_is_one_line(record: Any) -> None:
    shown = repr(record)
    assert shown.startswith(f"{type(record).__name__}(") and "\n" not in shown
    assert len(shown) < 2500, shown


def test_repr_has_shapes_and_lengths() -> None:
    assert "document_starts=int32 (30, 9, 99, 99)" in repr(TRACE)
    assert "... 999 in all" in repr(LAYOUT)
    assert shorten(torch.zeros(2, 3)) == "float32 (2, 3)"


def test_html_table_escapes_answers() -> None:
    table = RESULT._repr_html_()
    assert table.count("<tr>") == 1 + len(METHODS)
    assert f"&lt;b&gt;{LONG}" in table and "<b>" not in table
    assert ANSWER._repr_html_().count("<tr>") == 2
    cells = html_table(["<i>"], [["<u>", '"&']])
    assert all(text in cells for text in ("&lt;i&gt;</th>", "&lt;u&gt;</th>", "&quot;&amp;</td>"))
