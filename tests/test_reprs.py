"""Records show themselves in a line, however much they hold, and their text is never markup."""

from typing import Any

import numpy as np
import torch

from pine_engine import METHODS, Answer, Document, Engine, Prompt, RunResult, TokenLayout, Trace
from pine_engine.engine.orders import OrderComparison, OrderResult
from pine_engine.prompts.prompt import Piece
from pine_engine.reprs import html_table, shorten

LONG = "very " * 999
LAYOUT = TokenLayout(tuple(range(999)), tuple(tuple(range(500)) for _ in range(99)), (7,))
ANSWER = Answer("pine", f"<b>{LONG}", tuple(range(999)), (-0.25,) * 999, 0.5, 0.1, "length")
TRACE = Trace(
    "pine",
    LAYOUT,
    np.zeros((30, 9, 99, 99), np.int32),
    np.zeros((30, 9, 64, 99), np.int32),
    np.zeros((30, 9, 99, 99), np.float32),
)
RESULT = RunResult(LAYOUT, dict.fromkeys(METHODS, ANSWER), {"pine": TRACE}, {"pine": torch.zeros(99, 97)})
CELL = OrderComparison(ANSWER, True, None, 0.0, True, -1.0)


def test_what_is_short_is_shown_whole() -> None:
    layout = TokenLayout((5, 9), ((11, 12), (21,)), (51,))
    assert repr(layout) == "TokenLayout(prefix=(5, 9), documents=((11, 12), (21,)), suffix=(51,))"
    assert eval(repr(layout)) == layout
    assert repr(Document("red", "R")) == "Document(text='red', title='R')"


def test_what_is_long_is_one_line() -> None:
    parts: Any = (LONG, [LONG] * 99, (Piece(LONG),))
    prompt = Prompt(*parts)
    for record in (
        LAYOUT,
        ANSWER,
        TRACE,
        RESULT,
        CELL,
        prompt,
        Document(LONG),
        OrderResult((1, 0), {}, RESULT),
    ):
        shown = repr(record)
        assert shown.startswith(f"{type(record).__name__}(") and "\n" not in shown
        assert len(shown) < 1500, shown
    assert "document_starts=int32 (30, 9, 99, 99)" in repr(TRACE)
    assert "... 999 in all" in repr(LAYOUT)
    assert shorten(torch.zeros(2, 3)) == "float32 (2, 3)"
    assert repr(OrderResult((1, 0), {"pine": CELL}, RESULT)).startswith(
        "OrderResult((1, 0), pine='<b>very very"
    )


def test_run_is_a_table_of_answers_in_which_text_is_text() -> None:
    table = RESULT._repr_html_()
    assert table.count("<tr>") == 1 + len(METHODS)
    assert f"&lt;b&gt;{LONG}" in table and "<b>" not in table
    assert ANSWER._repr_html_().count("<tr>") == 2
    assert html_table(["<i>"], [["<u>", '"&']]) == (
        '<table><thead><tr><th scope="col">&lt;i&gt;</th></tr></thead>'
        '<tbody><tr><th scope="row">&lt;u&gt;</th>'
        '<td style="text-align: left">&quot;&amp;</td></tr></tbody></table>'
    )


def test_engine_is_its_model() -> None:
    engine = object.__new__(Engine)
    engine.model_name, engine.decode_in_4bit = "tiny", False
    model: Any = torch.nn.Linear(1, 1)
    model.dtype, model.device = torch.float32, torch.device("cpu")
    engine.model = model
    assert repr(engine) == "Engine(tiny, float32 on cpu)"
    engine.decode_in_4bit = True
    assert repr(engine) == "Engine(tiny, 4bit on cpu)"
