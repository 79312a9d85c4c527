"""Lines over slots: measurements with intervals."""

from dataclasses import replace

import numpy as np
import pytest

import viz
from pine_engine.evaluation.intervals import Estimate
from pine_engine.evaluation.report.tables import Curve, CurveLine
from tests.support.viz_reading import HOSTILE

CURVE = Curve(
    name="by-slot",
    title="By slot",
    x_title="slot",
    y_title="%",
    places=("1", "2", "3"),
    lines=(CurveLine("PINE", 1, (Estimate(50, 40, 65, 9), None, Estimate(70, 70, float("inf"), 9))),),
    levels=(CurveLine("shuffled", 1, (Estimate(55, 50.5, 60, 9),)),),
    areas=(("causal", (1.0, 2.0, 3.0), (2.0, 1.0, 5.0)),),
)
BARE = CurveLine("PINE", 1, (Estimate(50, None, None, 9), None, Estimate(70, None, None, 9)))


@pytest.mark.parametrize("has_bars", [True, False])
def test_means_have_their_intervals_and_gaps(has_bars: bool) -> None:
    area_start, area_end, line, level = viz.plot_bias_curve(replace(CURVE, has_bars=has_bars)).data
    assert line.type == ("bar" if has_bars else "scatter")
    np.testing.assert_array_equal(line.y, np.array([50, np.nan, 70], np.float32))
    assert (line.error_y.array.tolist(), line.error_y.arrayminus.tolist()) == ([15, 0, 0], [10, 0, 0])
    assert set(level.y) == {55.0}
    assert (area_start.y.tolist(), area_end.y.tolist()) == ([1, 2, 3], [2, 1, 5])


def test_curves_stand_below_each_other_and_a_method_is_named_once() -> None:
    figure = viz.plot_bias_curve([CURVE, CURVE])
    assert figure.layout.yaxis.domain[0] > figure.layout.yaxis2.domain[1]
    assert [line.showlegend for line in figure.data if line.name == "PINE"] == [True, False]


def test_bias_curve_areas_break_at_missing_values() -> None:
    none = float("nan")
    areas = (
        ("causal", (1.0, 2.0, 3.0, none, 5.0, None), (2.0, 1.5, None, 4.0, 7.0, 1.0)),
        ("positions", (0.0, None, 0.0, 0.0, None, None), (1.0, 2.0, 3.0, 4.0, 5.0, None)),
    )
    curve = replace(CURVE, places=tuple("123456"), lines=(), levels=(), areas=areas)
    drawn = viz.plot_bias_curve(curve).data
    edges = [
        (list(start.x), start.y.tolist(), end.y.tolist())
        for start, end in zip(drawn[::2], drawn[1::2], strict=True)
    ]
    assert edges == [
        (["1", "2"], [1, 2], [2, 1.5]),
        (["5"], [5], [7]),
        (["1"], [0], [1]),
        (["3", "4"], [0, 0], [3, 4]),
    ]
    assert all(end.fill == "tonexty" for end in drawn[1::2]) and not any(start.fill for start in drawn[::2])
    assert [end.customdata.tolist() for end in drawn[1::2]] == [[1, -0.5], [2], [1], [3, 4]]
    assert [end.fillpattern.shape for end in drawn[1::2]] == [None, None, "|", "|"]
    assert [trace.name for trace in drawn if trace.showlegend] == ["causal", "positions"]


@pytest.mark.parametrize("has_bars", [True, False])
def test_bias_curve_caption_names_intervals_only_where_drawn(has_bars: bool) -> None:
    curve = replace(CURVE, areas=(), levels=(), has_bars=has_bars, note="A note.")
    bare = replace(curve, lines=(BARE,))
    captions = [viz.plot_bias_curve(one).layout.meta["caption"] for one in (curve, bare)]
    assert "95 %" in captions[0] and captions[0].endswith(" A note.")
    assert captions[1] == "A note."


def test_bias_curve_error_bars_do_not_overlap() -> None:
    lines = (CURVE.lines[0], replace(CURVE.lines[0], label="NIA", mark=0))
    figure = viz.plot_bias_curve(replace(CURVE, lines=lines))
    assert figure.layout.scattermode == "group"
    *_, pine, nia, _ = figure.data
    assert len({pine.offsetgroup, nia.offsetgroup}) == 2
    bare = replace(CURVE, lines=tuple(replace(BARE, label=line.label) for line in lines))
    assert viz.plot_bias_curve(bare).layout.scattermode != "group"


def test_bias_curve_with_intervals_does_not_include_zero() -> None:
    curve = replace(
        CURVE,
        areas=(),
        lines=(replace(CURVE.lines[0], values=(Estimate(50, 40, 65, 9), None, Estimate(70, None, None, 9))),),
    )
    low, high = viz.plot_bias_curve(curve).layout.yaxis.range
    assert 37 < low < 40 and 70 < high < 73


def test_bars_are_distinct_without_color() -> None:
    lines = tuple(replace(CURVE.lines[0], label=str(mark), mark=mark) for mark in range(24))
    bars = viz.plot_bias_curve(replace(CURVE, has_bars=True, lines=lines, areas=(), levels=())).data
    assert len({bar.marker.pattern.shape for bar in bars[:8]}) == 8
    assert len({(bar.marker.pattern.shape, bar.marker.color) for bar in bars}) == 24


@pytest.mark.parametrize("has_bars", [True, False])
def test_bias_curve_escapes_untrusted_text(has_bars: bool) -> None:
    text = " ".join(HOSTILE)
    curve = replace(
        CURVE,
        title=text, x_title=text, y_title=text, places=(text, "2", "3"), has_bars=has_bars,
        lines=(replace(CURVE.lines[0], label=text),),
        levels=(replace(CURVE.levels[0], label=text),),
        areas=((text, *CURVE.areas[0][1:]),),
    )  # fmt: skip
    figure = viz.plot_bias_curve(curve)
    layout = figure.layout
    shown = [layout.title.text, layout.xaxis.title.text, layout.yaxis.title.text]
    shown += [trace.name for trace in figure.data] + [place for trace in figure.data for place in trace.x]
    assert not any("<" in words or ">" in words for words in shown)
