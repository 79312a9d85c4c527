"""What every method answers in every order of the documents: a letter and a colour for each answer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import plotly.graph_objects as go

from viz.drawing.identity import document_letter, ink_on
from viz.drawing.numbers import format_difference
from viz.figures.frame import named, new_figure, plain
from viz.figures.shuffle import answer_color, answer_letter, answer_numbers

_LONGEST = 90
"""Characters of an answer that are written when a cell is pointed at."""

_LINE = 45


class AnsweredOnce(Protocol):
    """What is drawn of one answer: `OrderComparison` of the engine has it, and what the page keeps."""

    @property
    def text(self) -> str:
        """The answer."""

    @property
    def max_abs_logit_diff(self) -> float:
        """The largest difference to the first order's logits."""

    @property
    def bitwise_identical(self) -> bool:
        """Whether no bit of them differs."""

    @property
    def reference_logprob(self) -> float:
        """Log-probability, in nats, of the first order's answer."""


class OrderTried(Protocol):
    """The answers in one order: `OrderResult` of the engine, or what the page keeps.

    order: which document, as entered, stands in each slot. cells: by method.
    """

    @property
    def order(self) -> tuple[int, ...]:
        """The order."""

    @property
    def cells(self) -> Mapping[str, AnsweredOnce]:
        """By method."""


def plot_shuffle(
    rows: Sequence[OrderTried],
    *,
    labels: Mapping[str, str] | None = None,
    is_right: Callable[[str], bool] | None = None,
) -> go.Figure:
    """Heatmap of letters: an order a row, a method a column, the same letter for the same answer of any
    method.

    rows: the orders tried, the first the one that is compared with; a method may be missing in the last ones,
    which are still computed. labels: of the methods. is_right: whether an answer is right, where that is
    known.

    z is the number of the answer, float32 (R, M), in the order in which answers come; NaN where there is none
    yet.
    """
    methods = list(rows[0].cells) if rows else []
    numbers = answer_numbers(
        row.cells[method].text for row in rows for method in methods if method in row.cells
    )
    cells = [[row.cells.get(method) for method in methods] for row in rows]
    z = np.array(
        [[np.nan if cell is None else numbers[cell.text] for cell in row] for row in cells], dtype=np.float32
    ).reshape(len(rows), len(methods))
    count = max(len(numbers), 1)
    scale = [[edge / count, answer_color(place)] for place in range(count) for edge in (place, place + 1)]
    kinds = [len({row.cells[method].text for row in rows if method in row.cells}) for method in methods]
    columns = [
        f"{name}<br>{kind} answer{'s' * (kind != 1)}"
        for name, kind in zip(named(methods, labels), kinds, strict=True)
    ]
    figure = new_figure(
        name="shuffle",
        title="The answer in every order",
        caption="The same letter is the same answer; a click shows it beside the first row’s.",
        height=86 + 34 * max(len(rows), 1),
        coloraxis={"showscale": False, "colorscale": scale, "cmin": -0.5, "cmax": count - 0.5},
        margin={"b": 16},
    )
    figure.add_heatmap(
        z=z,
        x=columns,
        y=list(range(len(rows))),
        coloraxis="coloraxis",
        xgap=3,
        ygap=3,
        text=[[_in_cell(cell, numbers, is_right) for cell in row] for row in cells],
        texttemplate="%{text}",
        textfont={"size": 15},
        customdata=[[_told(cell) for cell in row] for row in cells],
        hovertemplate="order %{y}, %{x}: %{text}<br>%{customdata}<extra></extra>",
        meta={
            "x": [{"method": method} for method in methods],
            "y": [{"tried": place} for place in range(len(rows))],
            "cells": [
                [
                    None if cell is None else f"{answer_letter(numbers[cell.text])}: {cell.text}"
                    for cell in row
                ]
                for row in cells
            ],
        },
    )
    figure.update_xaxes(side="top", type="category")
    figure.update_yaxes(
        autorange="reversed",
        tickvals=list(range(len(rows))),
        ticktext=[" ".join(map(document_letter, row.order)) for row in rows],
    )
    return figure


def _in_cell(
    cell: AnsweredOnce | None, numbers: Mapping[str, int], is_right: Callable[[str], bool] | None
) -> str:
    if cell is None:
        return ""
    mark = "" if is_right is None else " ✓" if is_right(cell.text) else " ✗"
    number = numbers[cell.text]
    ink = ink_on(answer_color(number))
    return f'<span style="color:{ink}">{answer_letter(number)}{mark}</span>'


def _told(cell: AnsweredOnce | None) -> str:
    """What pointing at a cell says: the answer, and how it differs from the first row's."""
    if cell is None:
        return "not computed yet"
    text = " ".join(cell.text.split()) or "(empty answer)"
    text = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    lines = [plain(text[start : start + _LINE]) for start in range(0, len(text), _LINE)]
    equal = "equal to the last bit" if cell.bitwise_identical else format_difference(cell.max_abs_logit_diff)
    return "<br>".join([*lines, f"largest logit difference: {equal}"])
