"""Colors and markers of methods: one of each in all figures, and none of a document."""

import math
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

import viz
from pine_engine import Score, SlotScored
from pine_engine.lab.debias.measured import method_mark
from pine_engine.methods.table import METHODS
from tests.support.figure_records import LEFT_OUT, answer_with, cell, order_row
from viz.drawing.identity import PREFIX, SUFFIX, document_segment
from viz.theme import CHOSEN, LINES, SIGNS, SYMBOLS, bar_pattern, line_color, line_style, method_number

MIN_DISTANCE = 0.07
"""Between the colors of a method and a document, in OKLab; the two nearest documents have 0.11."""


def oklab(color: str) -> tuple[float, ...]:
    """Return the coordinates of #RRGGBB in OKLab (Ottosson 2020)."""
    channels = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    to_cones = [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
    to_lab = [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
    return tuple(np.array(to_lab) @ np.cbrt(np.array(to_cones) @ linear))


def by_label(figure: go.Figure, style: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the style of each trace by the method of its label."""
    return {trace.name.lower(): style(trace) for trace in figure.data}


def test_method_has_no_color_of_a_document() -> None:
    documents = [document_segment(index).color for index in range(11)]
    for color in LINES:
        nearest = min(math.dist(oklab(color), oklab(other)) for other in (*documents, CHOSEN))
        assert nearest >= MIN_DISTANCE, color
        assert color not in (PREFIX.color, SUFFIX.color)
    assert min(math.dist(oklab(one), oklab(other)) for one, other in combinations(LINES, 2)) >= MIN_DISTANCE


def test_method_has_the_style_of_evaluations() -> None:
    assert {name: method_number(name) for name in METHODS} == {name: method_mark(name) for name in METHODS}
    styles = [line_style(method_number(f"{method.label} (last run)")) for method in METHODS.values()]
    looks = {(style["marker"]["symbol"], style["line"]["color"]) for style in styles}
    assert len(looks) == len(METHODS)
    assert len(SIGNS) == len(set(SIGNS)) <= len(SYMBOLS)


@pytest.mark.parametrize("names", [("pine", "vanilla"), ("vanilla", "pine"), ("pine",)])
def test_method_has_one_style_in_every_figure(names: tuple[str, ...]) -> None:
    labels = {name: method.label for name, method in METHODS.items()}
    styles = {name: line_style(method_number(name)) for name in names}
    looks = {name: (style["marker"]["color"], style["marker"]["symbol"]) for name, style in styles.items()}
    rows = [order_row((0, 1), {name: cell("x") for name in names})]
    step = SlotScored(0, (0, 1), {name: Score(name, "x", (1,), (-1.0,)) for name in names})
    lines = viz.plot_position_sweep([step], labels=labels)
    dots = viz.plot_logprob_by_order(rows, labels=labels)
    for figure in (lines, dots):
        assert by_label(figure, lambda trace: (trace.marker.color, trace.marker.symbol)) == looks
    colors = {name: line_color(method_number(name)) for name in names}
    weights = {name: np.eye(3, dtype=np.float32) for name in names}
    assert by_label(viz.plot_query_attention(weights, 1), lambda trace: trace.marker.color) == colors
    pair = (*names, *names)[:2]
    shares = viz.plot_answer_attention([answer_with(labels[name], ["x"]) for name in pair])
    assert [trace.marker.color for trace in shares.data] == [colors[name] for name in pair]
    left_out = {name: LEFT_OUT[name] for name in names}
    bars = by_label(viz.plot_leave_one_out(left_out), lambda trace: trace.marker.pattern.shape)
    assert bars == {name: bar_pattern(method_number(name)) for name in names}
