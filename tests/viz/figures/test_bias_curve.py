"""Lines over slots: of a sweep, of its two effects, and of measurements with intervals."""

from dataclasses import replace

import numpy as np
import pytest

import viz
from pine_engine.engine.likelihood import Score
from pine_engine.evaluation.report.tables import Between, Curve, CurveLine, Level
from pine_engine.invariance.position_sweep import SlotScored, order_effects

STEPS = [
    SlotScored(slot, (0, 1), {m: Score(m, "x", (1, 2), (at, -0.5)) for m, at in scores.items()})
    for slot, scores in enumerate([{"vanilla": -1.0, "pine": -2.0}, {"vanilla": -3.0, "pine": -2.0}])
]
CURVE = Curve(
    name="by-slot",
    title="By slot",
    x_title="slot",
    y_title="%",
    places=("1", "2", "3"),
    lines=(CurveLine("PINE", 1, (50.0, None, 70.0), ((40.0, 65.0), None, (70.0, float("inf")))),),
    levels=(Level("shuffled", 1, 55.0, None),),
    areas=(Between("causal", (1.0, 2.0, 3.0), (2.0, 1.0, 5.0)),),
)


def test_a_line_is_the_log_probability_in_each_slot() -> None:
    figure = viz.plot_answer_position(STEPS, slots=5, labels={"pine": "PINE"})
    vanilla, pine = figure.data
    assert (list(vanilla.x), vanilla.y.tolist()) == ([1, 2], [-1.5, -3.5])
    assert (pine.name, pine.y.tolist()) == ("PINE", [-2.5, -2.5])
    assert figure.layout.xaxis.range == (0.5, 5.5)


def test_the_two_effects_add_up() -> None:
    total, rope, causal = viz.plot_order_effects(order_effects([-1, -3, -2], [-2, -2, -5])).data
    np.testing.assert_allclose(rope.y + causal.y, total.y, rtol=1e-6)


def test_means_have_their_intervals_and_gaps() -> None:
    area_start, area_end, line, level = viz.plot_bias_curve(CURVE).data
    np.testing.assert_array_equal(line.y, np.array([50, np.nan, 70], np.float32))
    assert (line.error_y.array.tolist(), line.error_y.arrayminus.tolist()) == ([15, 0, 0], [10, 0, 0])
    assert set(level.y) == {55.0}
    assert (area_start.y.tolist(), area_end.y.tolist()) == ([1, 2, 3], [2, 1, 5])


def test_curves_stand_below_each_other_and_a_method_is_named_once() -> None:
    figure = viz.plot_bias_curve([CURVE, CURVE])
    assert figure.layout.yaxis.domain[0] > figure.layout.yaxis2.domain[1]
    assert [line.showlegend for line in figure.data if line.name == "PINE"] == [True, False]


@pytest.mark.parametrize("has_bars", [True, False])
def test_bars_and_lines_have_the_same_values(has_bars: bool) -> None:
    figure = viz.plot_bias_curve(replace(CURVE, has_bars=has_bars, areas=(), levels=()))
    (drawn,) = figure.data
    assert drawn.type == ("bar" if has_bars else "scatter")
    np.testing.assert_array_equal(drawn.y, np.array([50, np.nan, 70], np.float32))
