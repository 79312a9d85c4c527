"""Charts: where marks stand, what they say, and that they can be told apart and reached."""

import math
import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pine_engine.debias.measured import NUM_MEASURED, MeasuredMethod
from pine_engine.debias.table import WRAPPERS
from pine_engine.evaluation.summary.method_names import method_mark
from pine_engine.methods.table import METHODS
from tests.support.viz_reading import HOSTILE, Element, assert_harmless, read_html
from viz.figures.chart import (
    SMALLEST_TEXT,
    Across,
    Area,
    Series,
    Strip,
    bar_chart,
    dot_lanes,
    line_chart,
    nice_ticks,
    strip_chart,
    written,
)

VALUES = st.floats(-1e4, 1e4).map(lambda value: round(value, 6))
OF_A_MARK = 0.06
"""Units: coordinates are written with one decimal, so two of them may be off by this much."""


def lines(*rows: tuple[float | None, ...]) -> str:
    series = [Series(f"method {index}", row, index) for index, row in enumerate(rows)]
    labels = [str(slot + 1) for slot in range(len(rows[0]))]
    return line_chart(series, labels, x_title="slot", y_title="nats")


def strips(*rows: tuple[float, ...]) -> str:
    return strip_chart(
        [
            Strip(f"method {index}", row, tuple(f"{index}: {value!r}" for value in row), index % 2 == 0)
            for index, row in enumerate(rows)
        ],
        x_title="nats",
    )


def captured(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found is not None
    return found[1]


def place(mark: Element) -> tuple[float, float]:
    found = re.fullmatch(r"translate\(([-\d.]+) ([-\d.]+)\)", mark.attributes["transform"])
    assert found
    return float(found[1]), float(found[2])


def groups(html: str) -> list[list[Element]]:
    """The points of each line or row."""
    (walk,) = read_html(html).with_class("pine-walk")
    return [group.with_class("pine-point") for group in walk.children]


@given(st.lists(st.tuples(VALUES, VALUES, VALUES), min_size=1, max_size=4))
def test_every_mark_stands_where_the_axis_says(rows: list[tuple[float, ...]]) -> None:
    html = lines(*rows)
    root = read_html(html)
    heights = [float(grid.attributes["y1"]) for grid in root.with_class("pine-chart-grid")]
    ends = [text for text in root.all("text") if text.attributes["text-anchor"] == "end"]
    axis = [float(text.text) for text in ends]
    assert len(heights) == len(axis) >= 2
    assert axis == sorted(axis) and heights == sorted(heights, reverse=True)
    slope = (heights[-1] - heights[0]) / (axis[-1] - axis[0])
    rounding = 2 * OF_A_MARK + OF_A_MARK * 230 / abs(heights[-1] - heights[0])
    for row, points in zip(rows, groups(html), strict=True):
        xs, ys = zip(*map(place, points), strict=True)
        assert ys == pytest.approx([heights[0] + slope * (value - axis[0]) for value in row], abs=rounding)
        assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=2 * OF_A_MARK) and xs[1] > xs[0]


def test_a_line_stops_at_a_missing_value() -> None:
    root = read_html(lines((1.0, 2.0, None, 4.0, 5.0, math.nan, 7.0)))
    paths = [path.attributes["d"].count("L") for path in root.all("path") if "fill" in path.attributes]
    assert paths == [1, 1]
    said = [point.attributes["aria-label"] for point in root.with_class("pine-point")]
    assert [captured(r"slot (\d)", words) for words in said] == ["1", "2", "4", "5", "7"]


def test_a_mark_says_its_method_slot_and_value() -> None:
    (first, _), _ = groups(lines((-4.25, -3.5), (-4.0, -4.0)))
    assert first.attributes["data-readout"] == "method 0, slot 1: -4.250 (nats)"


@given(st.lists(st.tuples(VALUES, st.floats(0, 1e3), st.floats(0, 1e3)), min_size=2, max_size=4))
def test_bars_reach_from_end_to_end_of_an_interval(rows: list[tuple[float, float, float]]) -> None:
    """A bar stands where a line of its own, at the same height, would have its mark."""
    series = [
        Series(f"method {index}", (value, None), index, ((value - below, value + above), (0.0, 1.0)))
        for index, (value, below, above) in enumerate(rows)
    ]
    root = read_html(line_chart(series, ["1", "2"], x_title="slot", y_title="nats"))
    bars = [bar.attributes for bar in root.with_class("pine-interval")]
    points = [point for group in root.with_class("pine-walk")[0].children for point in group.children]
    assert len(bars) == len(points) == len(rows)
    heights = [float(grid.attributes["y1"]) for grid in root.with_class("pine-chart-grid")]
    axis = [float(text.text) for text in root.all("text") if text.attributes["text-anchor"] == "end"]
    slope = (heights[-1] - heights[0]) / (axis[-1] - axis[0])
    rounding = 2 * OF_A_MARK + OF_A_MARK * 230 / abs(heights[-1] - heights[0])
    for bar, point, (value, below, above) in zip(bars, points, rows, strict=True):
        ends = [heights[0] + slope * (end - axis[0]) for end in (value - below, value + above)]
        assert [float(bar["y1"]), float(bar["y2"])] == pytest.approx(ends, abs=rounding)
        assert bar["x1"] == bar["x2"] and float(bar["x1"]) == place(point)[0]
        assert 34 - OF_A_MARK <= float(bar["y2"]) <= float(bar["y1"]) <= 34 + 230 + OF_A_MARK
    xs = [float(bar["x1"]) for bar in bars]
    assert min(after - before for before, after in pairwise(xs)) > 1, "no bar hides another"
    assert ", interval " in points[0].attributes["aria-label"]


@given(
    st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=3),
    st.lists(st.tuples(VALUES, st.floats(0, 1e3)), min_size=1, max_size=4),
)
def test_a_level_lies_across_at_its_height_with_one_mark_of_its_own(
    rows: list[tuple[float, float]], values: list[tuple[float, float]]
) -> None:
    """As high as a line through that value would be; an interval is a bar, in which the mark stands."""
    series = [Series(f"method {index}", row, index) for index, row in enumerate(rows)]
    levels = [
        Across(f"method {index}, shuffled", value, index, (value - width, value + width))
        for index, (value, width) in enumerate(values)
    ]
    html = line_chart(series, ["1", "2"], x_title="slot", y_title="nats", levels=levels)
    root = read_html(html)
    heights = [float(grid.attributes["y1"]) for grid in root.with_class("pine-chart-grid")]
    axis = [float(text.text) for text in root.all("text") if text.attributes["text-anchor"] == "end"]
    slope = (heights[-1] - heights[0]) / (axis[-1] - axis[0])
    rounding = 2 * OF_A_MARK + OF_A_MARK * 230 / abs(heights[-1] - heights[0])
    lines_across = root.with_class("pine-chart-across")
    marks = [points for points in groups(html)][len(rows) :]
    assert len(lines_across) == len(marks) == len(levels)
    right = float(lines_across[0].attributes["x2"])
    for (value, _), line, points in zip(values, lines_across, marks, strict=True):
        (mark,) = points
        x, y = place(mark)
        assert y == pytest.approx(heights[0] + slope * (value - axis[0]), abs=rounding)
        assert float(line.attributes["y1"]) == float(line.attributes["y2"]) == pytest.approx(y, abs=OF_A_MARK)
        assert float(line.attributes["x1"]) < x <= right and "pine-hollow" in mark.classes
        assert mark.attributes["tabindex"] == "-1" and ", shuffled: " in mark.attributes["aria-label"]
    bars = [bar.attributes for bar in root.with_class("pine-interval")]
    assert all(34 - OF_A_MARK <= float(bar["y2"]) <= float(bar["y1"]) <= 264 + OF_A_MARK for bar in bars)
    xs = sorted(place(points[0])[0] for points in marks)
    assert all(after - before > 1 for before, after in pairwise(xs)), "no mark hides another"


@given(st.lists(st.tuples(VALUES, VALUES, VALUES), min_size=2, max_size=5))
def test_an_area_lies_between_its_lines_and_says_its_size_with_its_sign(
    rows: list[tuple[float, float, float]],
) -> None:
    """Its outline runs along one line and back along the other, and its hatching from one to the other."""
    first, second, third = (tuple(row[place] for row in rows) for place in range(3))
    labels = [str(slot) for slot in range(1, len(rows) + 1)]
    html = line_chart(
        [Series("one", first, 0), Series("two", second, 1), Series("three", third, 2)],
        labels,
        x_title="slot",
        y_title="nats",
        areas=[Area("between", first, second), Area("below", third, first)],
    )
    root = read_html(html)
    lines = [[place(point) for point in points] for points in groups(html)[:3]]
    outlines = [path.attributes["d"] for path in root.all("path")
                if path.classes & {"pine-area-filled", "pine-area-hatched"}]  # fmt: skip
    for outline, (forth, back) in zip(outlines, ((0, 1), (2, 0)), strict=True):
        corners = [tuple(map(float, corner.split())) for corner in outline.strip("MZ").split("L")]
        expected = [*lines[forth], *reversed(lines[back])]
        assert len(corners) == len(expected)
        for corner, there in zip(corners, expected, strict=True):
            assert corner == pytest.approx(there, abs=2 * OF_A_MARK)
    top, bottom = 34 - OF_A_MARK, 34 + 230 + OF_A_MARK
    strokes = [s.attributes for s in root.with_class("pine-area-stroke")]
    inside = [s for s in strokes if float(s["x1"]) <= max(x for x, _ in lines[0]) + OF_A_MARK]
    assert len(inside) > 4 * (len(rows) - 1)
    assert all(top <= float(s[end]) <= bottom for s in inside for end in ("y1", "y2"))
    for stroke in inside:
        x = float(stroke["x1"])
        for end, line in (("y1", lines[2]), ("y2", lines[0])):
            xs, ys = zip(*line, strict=True)
            # A coordinate that is off by a twentieth is so along a steep line, too.
            steepest = 1 + max(abs(after - before) for before, after in pairwise(ys)) / (xs[1] - xs[0])
            assert float(stroke[end]) == pytest.approx(np.interp(x, xs, ys), abs=2 * OF_A_MARK * steepest)
    said = [point.attributes["aria-label"] for points in groups(html)[3:] for point in points]
    assert [captured(r"slot (\d+): (\S+)", words) for words in said] == [*labels, *labels]
    sizes = [float(captured(r": (\S+) ", words)) for words in said]
    wide = max(map(abs, (*first, *second, *third))) * 0.02 + 1e-6
    assert sizes == pytest.approx(
        [b - a for a, b in zip(first + third, second + first, strict=True)], abs=wide
    )


def test_an_area_stops_where_a_line_does() -> None:
    series = [Series("one", (1.0, 2.0, None, 4.0, 5.0), 0), Series("two", (0.0,) * 5, 1)]
    areas = [Area("between", series[1].values, series[0].values)]
    html = line_chart(series, list("12345"), x_title="slot", y_title="%", areas=areas)
    outlines = [path.attributes["d"] for path in read_html(html).all("path")
                if "pine-area-filled" in path.classes]  # fmt: skip
    assert [outline.count("L") for outline in outlines] == [3, 3]
    nothing = [Area("nowhere", (None, None), (1.0, None))]
    line = [Series("one", (1.0, 2.0), 0)]
    assert "nowhere" not in line_chart(line, ["1", "2"], x_title="s", y_title="%", areas=nothing)


def test_an_area_has_no_marks_in_its_middle() -> None:
    """They would look like values there; the point that says its size can be reached, and is not drawn."""
    series = [Series("one", (1.0, 2.0), 0), Series("two", (0.0, 0.0), 1)]
    areas = [Area("between", series[1].values, series[0].values)]
    of_area = groups(line_chart(series, ["1", "2"], x_title="slot", y_title="%", areas=areas))[2]
    assert len(of_area) == 2
    for point in of_area:
        (target,) = point.all("circle")
        assert (target.attributes["fill"], target.attributes["stroke"]) == ("none", "none")
        assert not point.all("path")


def test_no_name_of_a_method_is_cut() -> None:
    """Also not of the longest, wrapped and on shuffled documents."""
    names = [
        MeasuredMethod(base, wrapper).label for base in METHODS.values() for wrapper in WRAPPERS.values()
    ]
    longest = max(names, key=len)
    levels = [Across(f"{longest}, shuffled", 1.5, 0)]
    html = line_chart([Series(longest, (1.0, 2.0), 0)], "12", x_title="slot", y_title="nats", levels=levels)
    texts = {text.text for text in read_html(html).all("text")}
    assert {longest, f"{longest}, shuffled"} <= texts


@given(st.permutations([1.0, 5.0, 9.0, 40.0]))
def test_a_legend_of_bars_is_in_the_order_of_the_bars(values: list[float]) -> None:
    series = [Series(f"method {index}", (value,), index) for index, value in enumerate(values)]
    root = read_html(bar_chart(series, ["a model"], x_title="model", y_title="%"))
    names = [text for text in root.all("text") if text.text.startswith("method ")]
    by_height = sorted(names, key=lambda text: float(text.attributes["y"]))
    assert [text.text for text in by_height] == [one.label for one in series]


@given(
    st.lists(st.tuples(st.floats(-100, 100), st.floats(-100, 100), st.floats(0, 30)), min_size=1, max_size=4)
)
def test_bars_reach_from_zero_to_their_value(rows: list[tuple[float, float, float]]) -> None:
    series = [
        Series(f"method {index}", (first, second), index, ((first - wide, first + wide), None))
        for index, (first, second, wide) in enumerate(rows)
    ]
    html = bar_chart(series, ["a model, a set of data", "another"], x_title="model", y_title="%")
    root = read_html(html)
    heights = [float(grid.attributes["y1"]) for grid in root.with_class("pine-chart-grid")]
    axis = [float(text.text) for text in root.all("text") if text.attributes["text-anchor"] == "end"]
    slope = (heights[-1] - heights[0]) / (axis[-1] - axis[0])
    zero = heights[0] - slope * axis[0]
    rounding = 3 * OF_A_MARK + OF_A_MARK * 230 / abs(heights[-1] - heights[0])
    bars = [bar.attributes for bar in root.with_class("pine-chart-bar")]
    marks = [place(point) for points in groups(html) for point in points]
    assert len(bars) == len(marks) == 2 * len(rows)
    for bar, (x, y), value in zip(bars, marks, (v for row in rows for v in row[:2]), strict=True):
        top, tall = float(bar["y"]), float(bar["height"])
        assert sorted((top, top + tall)) == pytest.approx(sorted((zero, y)), abs=rounding)
        assert y == pytest.approx(zero + slope * value, abs=rounding)
        assert float(bar["x"]) < x < float(bar["x"]) + float(bar["width"])
    spans = sorted((float(bar["x"]), float(bar["x"]) + float(bar["width"])) for bar in bars)
    assert all(before[1] < after[0] for before, after in pairwise(spans)), "no bar hides another"
    assert [text.text for text in root.all("text") if "model" in text.text][:1] == ["a model, a set of data"]
    assert "interval" in root.with_class("pine-point")[0].attributes["aria-label"]


def test_lines_without_intervals_stand_upon_each_other() -> None:
    first, second = groups(lines((1.0, 2.0), (1.0, 2.0)))
    assert [place(point)[0] for point in first] == [place(point)[0] for point in second]


@given(st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=12))
def test_labels_keep_apart(rows: list[tuple[float, ...]]) -> None:
    root = read_html(lines(*rows))
    (svg,) = root.all("svg")
    starts = [text for text in root.all("text") if text.text.startswith("method ")]
    heights = sorted(float(text.attributes["y"]) for text in starts)
    assert len(heights) == len(rows)
    assert min(after - before for before, after in pairwise(heights)) > 17.8
    assert heights[0] > 13 and heights[-1] < float(svg.attributes["height"]) - 40


def test_twenty_four_series_are_told_apart_without_colour_and_eight_by_dashes() -> None:
    html = lines(*[(float(index), float(index)) for index in range(24)])
    shapes = [
        (
            points[0].all("path")[0].attributes["d"],
            "pine-hollow" in points[0].classes,
            len(points[0].with_class("pine-mark-dot")),
        )
        for points in groups(html)
    ]
    assert len(set(shapes)) == 24
    paths = [path for path in read_html(html).all("path") if "fill" in path.attributes]
    assert len({path.attributes.get("stroke-dasharray", "") for path in paths[:8]}) == 8


def look(point: Element) -> tuple[str, bool, int]:
    """What a marker is without its colour."""
    (shape,) = point.with_class("pine-mark-shape")
    return shape.attributes["d"], "pine-hollow" in point.classes, len(point.with_class("pine-mark-dot"))


def colour(point: Element) -> str:
    (found,) = [name for name in point.classes if name.startswith("pine-series-")]
    return found


@pytest.mark.parametrize(
    "names",
    [
        ("vanilla", "nia", "pine", "calibration_first:pine"),
        ("vanilla", "permutation_full:pine", "pride:pine", "of_no_table", "of_no_table_either"),
        tuple(f"{wrapper}:pine" for wrapper in WRAPPERS),
    ],
)
def test_methods_and_their_shuffles_have_markers_of_their_own(names: tuple[str, ...]) -> None:
    """A shuffle has its method's colour, and is hollow; the first method has its marker of all figures."""
    marks = [method_mark(name) for name in names]
    series = [Series(name, (1.0, 2.0), mark) for name, mark in zip(names, marks, strict=True)]
    levels = [Across(f"{name}, shuffled", 1.5, mark) for name, mark in zip(names, marks, strict=True)]
    html = line_chart(series, ("1", "2"), x_title="slot", y_title="nats", levels=levels)
    first = [points[0] for points in groups(html)]
    assert len({look(point) for point in first}) == 2 * len(names)
    methods, shuffles = first[: len(names)], first[len(names) :]
    assert [colour(point) for point in methods] == [colour(point) for point in shuffles]
    assert all("pine-hollow" in point.classes for point in shuffles)
    alone = line_chart(series[:1], ("1", "2"), x_title="slot", y_title="nats")
    assert look(groups(alone)[0][0]) == look(first[0])


def test_no_two_methods_have_one_marker() -> None:
    """By shape, fill and colour, each drawn alone."""
    found = set()
    for mark in range(NUM_MEASURED):
        html = line_chart([Series("one", (1.0, 2.0), mark)], ("1", "2"), x_title="slot", y_title="nats")
        (point, _) = groups(html)[0]
        found.add((look(point), colour(point)))
    assert len(found) == NUM_MEASURED


@pytest.mark.parametrize("html", [lines((1.0, 2.0), (3.0, None)), strips((1.0, 2.0), (1.5, 1.5))])
def test_one_mark_is_in_the_way_of_tab_and_all_have_names(html: str) -> None:
    points = [point for group in groups(html) for point in group]
    assert [point.attributes["tabindex"] for point in points] == ["0"] + ["-1"] * (len(points) - 1)
    for point in points:
        assert point.attributes["role"] == "img"
        assert point.attributes["aria-label"] == point.attributes["data-readout"] != ""


@pytest.mark.parametrize("count", [1, 2, 4, 20, 50])
def test_text_never_shrinks_below_twelve_pixels_and_four_slots_fit_a_phone(count: int) -> None:
    (svg,) = read_html(lines(tuple(map(float, range(count))))).all("svg")
    least = float(captured(r"min-width:(\d+)px", svg.attributes["style"]))
    width = float(svg.attributes["viewbox"].split()[2])
    assert float(svg.attributes["font-size"]) * least / width >= SMALLEST_TEXT
    assert count > 4 or least <= 370


def test_fifty_slots_name_fewer_on_the_axis_and_keep_every_mark() -> None:
    root = read_html(lines(tuple(map(float, range(50)))))
    (points,) = root.with_class("pine-walk")
    assert len(points.with_class("pine-point")) == 50
    named = [text for text in root.all("text") if text.attributes["text-anchor"] == "middle"][:-1]
    xs = [float(text.attributes["x"]) for text in named]
    gaps = [after - before for before, after in pairwise(xs)]
    assert 10 < len(xs) < 50 and min(gaps) > 2 * 7.2


def test_a_range_is_zero_only_if_it_is() -> None:
    close = math.nextafter(-2.75, 0)
    root = read_html(strips((-2.75, -2.75, -2.75), (-2.75, close), (-6.25, -3.0)))
    assert [text.text for text in root.with_class("pine-chart-range")] == ["0.0", "4.4e-16", "3.25"]


@given(st.lists(VALUES, min_size=1, max_size=12))
def test_the_bar_reaches_from_the_least_dot_to_the_largest(values: list[float]) -> None:
    html = strips(tuple(values), (0.0, 1.0))
    root = read_html(html)
    bar = root.with_class("pine-chart-spread")[0].attributes
    dots = groups(html)[0]
    xs = [float(dot.attributes["cx"]) for dot in dots]
    assert xs == sorted(xs) and len(xs) == len(values)
    assert [dot.attributes["data-readout"] for dot in dots] == [f"0: {value!r}" for value in sorted(values)]
    assert (float(bar["x1"]), float(bar["x2"])) == (xs[0], xs[-1])


def test_no_word_leaves_the_chart() -> None:
    root = read_html(strips((-2.7512341, -2.7512342)))
    width = float(root.all("svg")[0].attributes["width"])
    for text in root.all("text"):
        if text.attributes.get("text-anchor") == "middle":
            half = len(text.text) * 7.2 / 2
            assert half <= float(text.attributes["x"]) <= width - half


@given(st.floats(0, 300), st.integers(1, 5))
def test_five_dots_on_one_spot_can_be_counted(x: float, count: int) -> None:
    lanes = dot_lanes([x] * count)
    assert len(set(lanes)) == count
    assert dot_lanes([0, 11, 22]) == [0, 0, 0]


@given(low=VALUES, size=st.floats(1e-9, 1e4), most=st.integers(3, 8))
def test_ticks_are_round_inside_and_few(low: float, size: float, most: int) -> None:
    high = low + size
    ticks = nice_ticks(low, high, most)
    assert 1 <= len(ticks.values) <= most + 1
    assert float(f"{ticks.step:e}"[:3]) in (1.0, 2.0, 5.0)
    slack = ticks.step * 1e-6 + 1e-11  # and what float64 loses at ten thousand
    assert all(low - slack <= tick <= high + slack for tick in ticks.values)
    for tick, label in zip(ticks.values, ticks.labels, strict=True):
        assert float(label) == pytest.approx(tick, abs=slack)


@pytest.mark.parametrize(
    ("value", "step", "text"),
    [
        (-4.2, 1, "-4"),
        (2.5, 0.5, "2.5"),
        (0.30000000000000004, 0.1, "0.3"),
        (-0.0, 1, "0"),
        (-1e-18, 0.1, "-1.00e-18"),
        (0.004, 0.1, "0.00400"),
        (1200.0, 500, "1200"),
        (-3e-7, 0.01, "-3.00e-07"),
    ],
)
def test_values_have_the_decimals_of_the_step_and_are_not_rounded_to_zero(
    value: float, step: float, text: str
) -> None:
    assert written(value, step) == text


@pytest.mark.parametrize("html", [lines((None, None)), lines((math.inf,)), strips(()), strips((math.nan,))])
def test_nothing_to_draw_is_said(html: str) -> None:
    assert "There is nothing to draw yet." in read_html(html).text


@pytest.mark.parametrize("other", [5.0, math.nextafter(5.0, 6)])
def test_equal_values_stand_in_the_middle(other: float) -> None:
    (points,) = groups(lines((5.0, other)))
    assert {place(point)[1] for point in points} == {34 + 230 / 2}


@pytest.mark.parametrize("values", [(0.0, 5e-324), (0.0, 1e-20), (-1e-300, 1e-300), (-1e300, 1e300)])
def test_the_smallest_and_the_largest_values_have_a_place(values: tuple[float, float]) -> None:
    for html in (lines(values), strips(values)):
        assert len(groups(html)[0]) == 2
    assert all(34 <= place(point)[1] <= 34 + 230 for point in groups(lines(values))[0])


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_comes_out_as_text(text: str) -> None:
    levels, areas = [Across(text, 2.0, 1)], [Area(text, (0.0,), (1.0,))]
    series = [Series(text, (1.0,), 0)]
    chart = line_chart(series, [text], x_title=text, y_title=text, levels=levels, areas=areas)
    strip = strip_chart([Strip(text, (1.0,), (text,), True)], x_title=text)
    for html in (chart, strip, bar_chart(series, [text], x_title=text, y_title=text)):
        assert_harmless(html)
        root = read_html(html)
        assert text in root.text
        assert text in root.with_class("pine-point")[0].attributes["data-readout"]
