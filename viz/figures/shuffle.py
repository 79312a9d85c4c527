"""Figure of the answers of all methods in all document orders: one letter and shade per distinct answer."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

import pine_engine as pine
from viz.drawing.identity import document_letter, ink_on, order_name
from viz.drawing.text import format_difference, shorten
from viz.figures.frame import FloatArray, add_cells, method_labels, new_figure, plain

_MAX_CHARACTERS, _LINE_CHARACTERS = 90, 45  # of an answer in hover text
_GOLDEN_RATIO = 0.618034


def plot_shuffle(
    rows: "Sequence[pine.OrderResult]",
    *,
    labels: Mapping[str, str] | None = None,
    is_right: Callable[[str], bool] | None = None,
) -> go.Figure:
    """Plot the answers as a heatmap of letters: orders in rows, methods in columns, one letter per answer.

    z is the number of the answer, float32 (R, M), in the sequence in which answers occur; NaN where there is
    no answer yet.

    Args:
        rows: Orders, the reference order first; the last ones may lack methods.
        labels: Labels of the methods.
        is_right: Check of an answer; None if the correct answer is not known.
    """
    methods = list(rows[0].comparisons) if rows else []
    cells = [[row.comparisons.get(method) for method in methods] for row in rows]
    texts = [[cell.text if cell else None for cell in row] for row in cells]
    return plot_answers(
        [row.order for row in rows],
        {method: [row[column] for row in texts] for column, method in enumerate(methods)},
        labels=labels,
        is_right=is_right,
        differences=[[_difference(cell) for cell in row] for row in cells],
    )


def plot_answers(
    orders: Sequence[Sequence[int]],
    answers: Mapping[str, Sequence[str | None]],
    *,
    labels: Mapping[str, str] | None = None,
    is_right: Callable[[str], bool] | None = None,
    differences: Sequence[Sequence[str]] | None = None,
) -> go.Figure:
    """Plot the figure of `plot_shuffle` from one answer per order for each method, None where missing."""
    rows = list(zip(*answers.values(), strict=True))
    z, numbers = _shuffle_info(rows, len(answers))
    count = max(len(numbers), 1)
    scale = [[edge / count, answer_color(number)] for number in range(count) for edge in (number, number + 1)]
    columns = []
    for name, texts in zip(method_labels(list(answers), labels), answers.values(), strict=True):
        num_answers = len({*texts} - {None})
        columns.append(f"{name}<br>{num_answers} answer{'s' * (num_answers != 1)}")
    figure = new_figure(
        name="shuffle",
        title="Answer by document order",
        caption="Equal letters mark equal answers. Click a cell to compare it with row 1.",
        height=86 + 34 * max(len(rows), 1),
        meta={"verbatim": ["customdata"]},
        coloraxis={"showscale": False, "colorscale": scale, "cmin": -0.5, "cmax": count - 0.5},
        margin={"b": 16},
    )
    selections = {
        "x": [{"method": method} for method in answers],
        "y": [{"tried": number} for number in range(len(rows))],
    }
    contents = [
        [text if text is None else f"{answer_letter(numbers[text])}: {text}" for text in row] for row in rows
    ]
    add_cells(
        figure,
        z,
        columns,
        y=list(range(len(rows))),
        gap=3,
        text=[[_cell_text(text, numbers, is_right) for text in row] for row in rows],
        texttemplate="%{text}",
        textfont={"size": 15},
        customdata=[["" if text is None else _broken_text(text) for text in row] for row in rows],
        hovertext=differences or [["" for _ in row] for row in rows],
        hover="order %{y}, %{x}: %{text}<br>%{customdata}%{hovertext}",
        meta={**selections, "cells": contents},
    )
    letters = [order_name(order) for order in orders]
    figure.update_yaxes(tickvals=list(range(len(rows))), ticktext=letters)
    return figure


def _shuffle_info(
    rows: Sequence[Sequence[str | None]], num_methods: int
) -> tuple[FloatArray, dict[str, int]]:
    """Return the numbers of the answers, (R, M) with NaN where there is none, and these by answer."""
    numbers = answer_numbers(text for row in rows for text in row if text is not None)
    z = [[np.nan if text is None else numbers[text] for text in row] for row in rows]
    return np.array(z, dtype=np.float32).reshape(len(rows), num_methods), numbers


def answer_numbers(texts: Iterable[str]) -> dict[str, int]:
    """Number the distinct answers from 0, in the sequence in which they occur."""
    return {text: number for number, text in enumerate(dict.fromkeys(texts))}


def answer_letter(number: int) -> str:
    """Return the letter of an answer: a .. z, aa, ab, ..."""
    return document_letter(number).lower()


def answer_color(number: int) -> str:
    """Return the shade of gray of an answer as #RRGGBB; colors are those of documents."""
    level = round(240 - 170 * (number * _GOLDEN_RATIO % 1))
    return f"#{level:02X}{level:02X}{level:02X}"


def _cell_text(answer: str | None, numbers: Mapping[str, int], is_right: Callable[[str], bool] | None) -> str:
    if answer is None:
        return ""
    mark = "" if is_right is None else " ✓" if is_right(answer) else " ✗"
    number = numbers[answer]
    return f'<span style="color:{ink_on(answer_color(number))}">{answer_letter(number)}{mark}</span>'


def _difference(cell: "pine.OrderComparison | None") -> str:
    """Return the difference from the reference order, in a line of its own if there is an answer."""
    if cell is None:
        return "Pending"
    if cell.bitwise_identical is None:
        return ""
    equal = "bitwise identical" if cell.bitwise_identical else format_difference(cell.max_abs_logit_diff)
    return f"<br>max |Δ logit|: {equal}"


def _broken_text(answer: str) -> str:
    text = shorten(" ".join(answer.split()) or "(empty answer)", _MAX_CHARACTERS)
    starts = range(0, len(text), _LINE_CHARACTERS)
    return "<br>".join(plain(text[start : start + _LINE_CHARACTERS]) for start in starts)
