"""Lines over slots: measurements with intervals."""

from dataclasses import replace

import numpy as np
import pytest

import viz
from pine_engine.lab.evaluation.intervals import Estimate
from pine_engine.lab.evaluation.report.tables import Curve, CurveLine

CURVE = Curve(
    name="by-slot", title="By slot", x_title="slot", y_title="%", places=("1", "2", "3"),
    lines=(CurveLine("PINE", 1, (Estimate(50, 40, 65, 9), None, Estimate(70, 70, float("inf"), 9))),),
    levels=(CurveLine("shuffled", 1, (Estimate(55, 50.5, 60, 9),)),),
    areas=(("causal", (1.0, 2.0, 3.0), (2.0, 1.0, 5.0)),),
)  # fmt: skip
BARE = CurveLine("PINE", 1, (Estimate(50, None, None, 9), None, Estimate(70, None, None, 9)))
HAS_BARS = pytest.mark.parametrize("has_bars", [True, False])


@HAS_BARS
def test_means_have_their_intervals_and_gaps(has_bars: bool) -> None:
    area_start, area_end, line, level = viz.plot_bias_curve(replace(CURVE, has_bars=has_bars)).data
    assert line.type == ("bar" if has_bars else "scatter")
    np.testing.assert_array_equal(line.y, np.array([50, np.nan, 70], np.float32))
    assert (line.error_y.array.tolist(), line.error_y.arrayminus.tolist()) == ([15, 0, 0], [10, 0, 0])
    assert [text.split()[-3:] for text in line.customdata][:2] == [["40", "to", "65"], []]
    assert set(level.y) == {55.0}
    assert (area_start.y.tolist(), area_end.y.tolist()) == ([1, 2, 3], [2, 1, 5])


def test_curves_are_stacked_and_share_a_legend() -> None:
    figure = viz.plot_bias_curve([CURVE, CURVE])
    assert figure.layout.yaxis.domain[0] > figure.layout.yaxis2.domain[1]
    assert [line.showlegend for line in figure.data if line.name == "PINE"] == [True, False]
    assert [line.yaxis for line in figure.data if line.name == "PINE"] == ["y", "y2"]


def test_areas_break_at_missing_values() -> None:
    none = float("nan")
    areas = (
        ("causal", (1.0, 2.0, 3.0, none, 5.0, None), (2.0, 1.5, None, 4.0, 7.0, 1.0)),
        ("positions", (0.0, None, 0.0, 0.0, None, None), (1.0, 2.0, 3.0, 4.0, 5.0, None)),
    )
    drawn = viz.plot_bias_curve(replace(CURVE, places=tuple("123456"), lines=(), levels=(), areas=areas)).data
    starts, ends = drawn[::2], drawn[1::2]
    assert [(list(one.x), one.y.tolist()) for one in starts] == [
        *((["1", "2"], [1, 2]), (["5"], [5]), (["1"], [0]), (["3", "4"], [0, 0]))
    ]
    assert [one.y.tolist() for one in ends] == [[2, 1.5], [7], [1], [3, 4]]
    assert [one.customdata.tolist() for one in ends] == [[1, -0.5], [2], [1], [3, 4]]
    assert [one.fillpattern.shape for one in ends] == [None, None, "|", "|"]
    assert [trace.name for trace in drawn if trace.showlegend] == ["causal", "positions"]


@HAS_BARS
def test_intervals_are_explained_and_separate_where_drawn(has_bars: bool) -> None:
    lines = (CURVE.lines[0], replace(CURVE.lines[0], label="NIA", mark=0))
    curve = replace(CURVE, lines=lines, areas=(), levels=(), has_bars=has_bars, note="A note.")
    figure, bare = (viz.plot_bias_curve(one) for one in (curve, replace(curve, lines=(BARE,))))
    assert "95%" in figure.layout.meta["caption"] and bare.layout.meta["caption"] == "A note."
    assert (figure.layout.scattermode, bare.layout.scattermode) == ("group", None)
    assert len({line.offsetgroup for line in figure.data}) == 2


def test_range_of_intervals_does_not_include_zero() -> None:
    values = (Estimate(50, 40, 65, 9), None, Estimate(70, None, None, 9))
    curve = replace(CURVE, areas=(), lines=(replace(CURVE.lines[0], values=values),))
    low, high = viz.plot_bias_curve(curve).layout.yaxis.range
    assert (low, high) == pytest.approx((40 - 0.06 * 30, 70 + 0.06 * 30))
