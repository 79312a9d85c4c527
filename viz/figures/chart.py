"""Charts as inline SVG from plain data: lines over slots, bars in groups, and dots on one axis.

Text is 13 units high and a chart is never drawn narrower than its text stays legible; what is wider than the
page scrolls. A series is told by its marker and its dashes as well as by its colour.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from viz.drawing.markup import empty_panel, render
from viz.drawing.numbers import format_difference, format_value
from viz.drawing.tokens import shorten

TEXT_SIZE = 13
SMALLEST_TEXT = 12
"""Pixels below which no text of a chart shrinks."""

LARGEST_SCALE = 1.3
"""Pixels of the page that one unit of a chart takes at most."""

_LETTER = 7.2
"""Width of a letter, in units, generously."""

_LONGEST_LABEL = 34

_LONGEST_NAME = 64
"""Letters of a series, of which wrapped methods on shuffled documents have up to 61."""

# Drawn around (0, 0). Colours of the same index are in figures.css, .pine-series-0 and so on.
_MARKERS = (
    ("M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0Z", ""),  # circle
    ("M-4.5 -4.5h9v9h-9Z", "9 4"),  # square
    ("M0 -6L5.5 4.5H-5.5Z", "2 4"),  # triangle
    ("M0 -6.5L6 0L0 6.5L-6 0Z", "11 4 2 4"),  # diamond
    ("M0 6L5.5 -4.5H-5.5Z", "5 3"),  # triangle on its tip
    ("M-2 -6h4v4h4v4h-4v4h-4v-4h-4v-4h4Z", "15 5"),  # plus
    ("M0 -6.5L6.2 -2L3.8 5.3H-3.8L-6.2 -2Z", "9 3 2 3 2 3"),  # pentagon
    ("M-6 -5L0 -2L6 -5V5L0 2L-6 5Z", "2 7"),  # bow
)

_FILLS = 3
"""A shape is filled, hollow, or hollow with a dot."""

_Look = tuple[str, bool, bool]
"""What tells a marker without its colour: shape, whether it is hollow, whether it has a dot."""

_LINE_LEFT, _LINE_TOP, _LINE_BOTTOM = 56, 34, 48
_LINE_HEIGHT, _SMALLEST_WIDTH, _LARGEST_WIDTH, _SLOT_WIDTH = 230, 222, 1000, 44
_LABEL_HEIGHT = 18
_BESIDE = 8
"""Most units between two lines with intervals."""

_BAR, _HATCH = 26, 5
"""Units from one bar to the next, and between the strokes of a hatched area."""

_STRIP_LEFT, _STRIP_WIDTH, _STRIP_RIGHT = 12, 278, 90
_STRIP_TOP, _STRIP_ROW, _STRIP_BOTTOM = 26, 62, 46
_DOT, _LANES = 5, (0, -1, 1, -2, 2)
"""Radius of a dot; dots on the same spot are stacked in lanes around the axis of their row."""


@dataclass(frozen=True)
class Series:
    """One line: a value per label of the x axis, None where there is none. mark: index of its marker.

    intervals: the ends of each value's interval, drawn as a bar; empty if it has none.
    """

    label: str
    values: tuple[float | None, ...]
    mark: int
    intervals: tuple[tuple[float, float] | None, ...] = ()

    def __post_init__(self) -> None:
        assert not self.intervals or len(self.intervals) == len(self.values)

    def interval(self, index: int) -> tuple[float, float] | None:
        """The ends of the interval of a value that is shown, if both are finite."""
        ends = self.intervals[index] if self.intervals and _is_shown(self.values[index]) else None
        return ends if ends is not None and all(map(math.isfinite, ends)) else None


@dataclass(frozen=True)
class Across:
    """One value that stands for all labels of the x axis: a thin line across, with a hollow marker on it.

    mark: index of the marker of the series it belongs to, whose colour it has. interval: as those of a
    series.
    """

    label: str
    value: float
    mark: int
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Area:
    """What lies between two lines: its ends at each label of the x axis, None where there is none.

    Its size there, end less start, has a sign: where it is negative the lines have changed sides.
    """

    label: str
    start: tuple[float | None, ...]
    end: tuple[float | None, ...]

    def __post_init__(self) -> None:
        assert len(self.start) == len(self.end)

    def known(self) -> dict[int, tuple[float, float]]:
        """Both ends by index, where there are both."""
        pairs = enumerate(zip(self.start, self.end, strict=True))
        return {index: (start, end) for index, (start, end) in pairs if _is_shown(start) and _is_shown(end)}


@dataclass(frozen=True)
class Strip:
    """One row of dots. notes: a sentence for each dot. promise: whether they should all be equal."""

    label: str
    values: tuple[float, ...]
    notes: tuple[str, ...]
    promise: bool

    def __post_init__(self) -> None:
        assert len(self.values) == len(self.notes)


@dataclass(frozen=True)
class Ticks:
    """Round values along an axis, `step` apart."""

    values: tuple[float, ...]
    step: float

    @property
    def labels(self) -> tuple[str, ...]:
        """Each value with as many decimals as the step needs."""
        return tuple(written(value, self.step) for value in self.values)


@dataclass(frozen=True)
class _Marker:
    shape: str
    dashes: str
    color: int
    is_hollow: bool
    has_dot: bool


@dataclass(frozen=True)
class _Point:
    x: float
    y: float
    note: str
    bar: tuple[float, float] | None = None


@dataclass(frozen=True)
class _Line:
    label: str
    marker: _Marker
    paths: tuple[str, ...]
    points: tuple[_Point, ...]
    label_y: float
    end: _Point | None
    bars: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class _Patch:
    """An area: its outlines, the strokes that hatch it, a point in its middle at each label."""

    label: str
    index: int
    outlines: tuple[str, ...]
    strokes: tuple[tuple[float, float, float], ...]
    points: tuple[_Point, ...]
    end: _Point
    label_y: float


@dataclass(frozen=True)
class _Across:
    label: str
    marker: _Marker
    end: _Point
    label_y: float


@dataclass(frozen=True)
class _Row:
    label: str
    promise: bool
    y: float
    low: float
    high: float
    range: str
    points: tuple[_Point, ...]


@dataclass(frozen=True)
class _Frame:
    """Size of a chart in units, and the pixels of width between which the page may scale it."""

    width: int
    height: int
    least: int
    most: int
    text_size: int


def nice_ticks(low: float, high: float, most: int) -> Ticks:
    """At most `most` + 1 round values that lie in low .. high; steps are 1, 2 or 5 times a power of ten."""
    assert low < high and most > 0
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return Ticks(tuple(index * step for index in range(first, last + 1)), step)


def written(value: float, step: float) -> str:
    """The value with the decimals that steps of this size need; never "0" for what is not zero."""
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    text = f"{value or 0.0:.{min(decimals, 15)}f}"
    return text if float(text) or not value else format_value(value)


def line_chart(
    series: Sequence[Series],
    x_labels: Sequence[str],
    *,
    x_title: str,
    y_title: str,
    levels: Sequence[Across] = (),
    areas: Sequence[Area] = (),
) -> str:
    """HTML: one line per series over the labels of the x axis, each named beside its end.

    y_title: the quantity and its unit. levels: values that stand for all labels. areas: at most two, the
    second one hatched. Values that are not finite are left out like None. Lines with intervals stand a
    little beside each other, so that their bars can be told apart.
    """
    return _over_labels(series, x_labels, x_title, y_title, levels=levels, areas=areas)


def bar_chart(series: Sequence[Series], groups: Sequence[str], *, x_title: str, y_title: str) -> str:
    """HTML: bars from zero, side by side in each group, a bar per series with its marker at its end.

    All else as in line_chart.
    """
    return _over_labels(series, groups, x_title, y_title, has_bars=True)


def _over_labels(
    series: Sequence[Series],
    x_labels: Sequence[str],
    x_title: str,
    y_title: str,
    *,
    levels: Sequence[Across] = (),
    areas: Sequence[Area] = (),
    has_bars: bool = False,
) -> str:
    assert all(len(one.values) == len(x_labels) for one in series)
    levels = [level for level in levels if _is_shown(level.value)]
    areas = [area for area in areas if area.known()]
    shown = [value for one in series for value in one.values if _is_shown(value)]
    if not shown:
        return empty_panel("There is nothing to draw yet.")
    intervals = [bar for one in series for index in range(len(x_labels)) if (bar := one.interval(index))]
    pairs = [*intervals, *(level.interval for level in levels if level.interval)]
    pairs += [ends for area in areas for ends in area.known().values()]
    extent = [*shown, *(end for pair in pairs for end in pair), *(level.value for level in levels)]
    low, high = _padded(min(extent), max(extent))
    if has_bars:
        low, high = min(low, 0.0) if min(extent) < 0 else 0.0, max(high, 0.0) if max(extent) > 0 else 0.0
        low, high = (low, high) if low < high else (0.0, 1.0)
    ticks = nice_ticks(low, high, 5)
    names = [one.label for one in series] + [level.label for level in levels] + [area.label for area in areas]
    labels = [shorten(name, _LONGEST_NAME) for name in names]
    x_names = [shorten(label, _LONGEST_LABEL) for label in x_labels] if has_bars else list(x_labels)
    count = len(x_labels)
    needed = [_LETTER * len(label) + 8 for label in x_names]
    slot = float(_SLOT_WIDTH)
    if intervals:
        slot = max(slot, _BESIDE * (len(series) + len(levels) + 2))
    if has_bars:
        slot = max(_BAR * (len(series) + 1), *needed)
    width = min(max(slot * count, _SMALLEST_WIDTH), max(_LARGEST_WIDTH, slot * count if has_bars else 0))
    height = max(_LINE_HEIGHT, _LABEL_HEIGHT * len(labels))
    left = max(_LINE_LEFT, 16 + _LETTER * max(map(len, ticks.labels)))
    right = 44 + _LETTER * max(map(len, labels))

    beside = min(_BESIDE, width / count / (len(series) + 1)) if intervals else 0.0
    if has_bars:
        beside = _BAR

    def x_of(index: int) -> float:
        return left + width * (index + 0.5) / count

    def y_of(value: float) -> float:
        return _LINE_TOP + height * (high - value) / (high - low)

    def point(x: float, y: float, what: str, value: float, bar: tuple[float, float] | None = None) -> _Point:
        said = written(value, ticks.step / 100)
        if bar:
            said += f", interval {written(bar[0], ticks.step / 100)} to {written(bar[1], ticks.step / 100)}"
        return _Point(x, y, f"{what}: {said} ({y_title})", (y_of(bar[0]), y_of(bar[1])) if bar else None)

    points = [
        {
            index: point(
                x_of(index) + beside * (place - (len(series) - 1) / 2),
                y_of(value),
                f"{one.label}, {x_title} {x_labels[index]}",
                value,
                one.interval(index),
            )
            for index, value in enumerate(one.values)
            if _is_shown(value)
        }
        for place, one in enumerate(series)
    ]
    # Beside each other, too, in the margin that the lines leave at the end.
    margin = left + width - x_of(count - 1) - beside * (len(series) - 1) / 2
    apart = max(margin, 0.0) / (len(levels) + 1)
    across = [
        point(left + width - apart * place, y_of(level.value), level.label, level.value, level.interval)
        for place, level in enumerate(levels)
    ]
    middles = [
        tuple(
            point(
                x_of(index),
                y_of((start + end) / 2),
                f"{area.label}, {x_title} {x_labels[index]}",
                end - start,
            )
            for index, (start, end) in area.known().items()
        )
        for area in areas
    ]
    ends = [points_of[max(points_of)] if points_of else None for points_of in points]
    middle = _LINE_TOP + height / 2
    wished = [middle if end is None else end.y for end in (*ends, *across, *(found[-1] for found in middles))]
    if has_bars:
        wished = [_LINE_TOP] * len(series)  # a legend, in the order of the bars
    label_ys = _apart(wished, _LINE_TOP, _LINE_TOP + height)
    markers = _distinct(
        [
            *(_marker(one.mark) for one in series),
            *(replace(_marker(level.mark), is_hollow=True, has_dot=False) for level in levels),
        ]
    )
    every = 1 if has_bars else math.ceil(max(needed) / (width / count))
    first_area = len(series) + len(levels)
    return render(
        "chart_line.html",
        frame=_frame(left + width + right, _LINE_TOP + height + _LINE_BOTTOM),
        x_title=x_title,
        y_title=y_title,
        left=left,
        right=left + width,
        top=_LINE_TOP,
        bottom=_LINE_TOP + height,
        zero=y_of(0.0) if has_bars else None,
        bar=_BAR - 4,
        y_ticks=[(y_of(tick), label) for tick, label in zip(ticks.values, ticks.labels, strict=True)],
        x_ticks=[(x_of(index), x_of(index), x_names[index]) for index in range(0, count, every)],
        lines=[
            _Line(
                label=label,
                marker=marker,
                paths=() if has_bars else _paths(points_of),
                points=tuple(points_of.values()),
                label_y=y,
                end=None if has_bars else end,
                bars=tuple(
                    (min(one_point.y, y_of(0.0)), abs(one_point.y - y_of(0.0)))
                    for one_point in points_of.values()
                )
                if has_bars
                else (),
            )
            for marker, label, points_of, y, end in zip(markers, labels, points, label_ys, ends, strict=False)
        ],
        levels=[
            _Across(label=label, marker=marker, end=end, label_y=y)
            for marker, label, end, y in zip(
                markers[len(series) :], labels[len(series) :], across, label_ys[len(series) :], strict=False
            )
        ],
        areas=[
            _Patch(
                label=label,
                index=index,
                outlines=_outlines(area, x_of, y_of),
                strokes=_strokes(area, x_of, y_of) if index else (),
                points=found,
                end=found[-1],
                label_y=y,
            )
            for index, (area, label, found, y) in enumerate(
                zip(areas, labels[first_area:], middles, label_ys[first_area:], strict=True)
            )
        ],
    )


def _outlines(area: Area, x_of: Callable[[int], float], y_of: Callable[[float], float]) -> tuple[str, ...]:
    """A closed path around each run of neighbouring labels at which the area is known."""
    known = area.known()
    paths = []
    for run in _runs(known):
        forth = [f"{x_of(index):.1f} {y_of(known[index][0]):.1f}" for index in run]
        back = [f"{x_of(index):.1f} {y_of(known[index][1]):.1f}" for index in reversed(run)]
        paths.append("M" + "L".join([*forth, *back]) + "Z")
    return tuple(paths)


def _strokes(
    area: Area, x_of: Callable[[int], float], y_of: Callable[[float], float]
) -> tuple[tuple[float, float, float], ...]:
    """Upright strokes from start to end, _HATCH apart: x and both heights."""
    known = area.known()
    strokes = []
    for run in _runs(known):
        for index in run[:-1]:
            x, steps = x_of(index), max(1, round((x_of(index + 1) - x_of(index)) / _HATCH))
            for step in range(steps + (index == run[-2])):
                part = step / steps
                start, end = (
                    y_of(here + part * (there - here))
                    for here, there in zip(known[index], known[index + 1], strict=True)
                )
                strokes.append((x + part * (x_of(index + 1) - x), start, end))
    return tuple(strokes)


def strip_chart(rows: Sequence[Strip], *, x_title: str) -> str:
    """HTML: a row per method, a dot per order on one axis, a bar from the least to the largest.

    The range, largest minus least, stands at the right as measured: "0.0" only if it is exactly zero.
    x_title: the quantity and its unit.
    """
    shown = [value for row in rows for value in row.values if _is_shown(value)]
    if not shown:
        return empty_panel("There is nothing to draw yet.")
    low, high = _padded(min(shown), max(shown))
    ticks = _fitting_ticks(low, high, _STRIP_WIDTH)

    def x_of(value: float) -> float:
        return _STRIP_LEFT + _STRIP_WIDTH * (value - low) / (high - low)

    width = _STRIP_LEFT + _STRIP_WIDTH + _STRIP_RIGHT
    bottom = _STRIP_TOP + _STRIP_ROW * len(rows)
    drawn = []
    for index, row in enumerate(rows):
        y = _STRIP_TOP + _STRIP_ROW * index + 38.0
        # From left to right, as arrow keys walk.
        finite = [
            (value, note) for value, note in zip(row.values, row.notes, strict=True) if _is_shown(value)
        ]
        finite.sort(key=lambda pair: pair[0])
        xs = [x_of(value) for value, _ in finite]
        drawn.append(
            _Row(
                label=shorten(row.label, _LONGEST_LABEL),
                promise=row.promise,
                y=y,
                low=min(xs, default=_STRIP_LEFT),
                high=max(xs, default=_STRIP_LEFT),
                range=format_difference(max(row.values) - min(row.values)) if row.values else "–",
                points=tuple(
                    _Point(x, y + lane * _DOT, note)
                    for x, lane, (_, note) in zip(xs, dot_lanes(xs), finite, strict=True)
                ),
            )
        )
    return render(
        "chart_strip.html",
        frame=_frame(width, bottom + _STRIP_BOTTOM),
        x_title=x_title,
        left=_STRIP_LEFT,
        right=_STRIP_LEFT + _STRIP_WIDTH,
        range_y=_STRIP_TOP - 8,
        bottom=bottom,
        dot=_DOT,
        x_ticks=[
            (x_of(tick), _inside(x_of(tick), label, width), label)
            for tick, label in zip(ticks.values, ticks.labels, strict=True)
        ],
        rows=drawn,
    )


def dot_lanes(xs: Sequence[float]) -> list[int]:
    """Lane of each dot, so that dots on nearly the same spot stand over one another and can be counted.

    Beyond the number of lanes they lie upon each other.
    """
    lanes: list[int] = []
    for index, x in enumerate(xs):
        near = sum(abs(x - other) < 2 * _DOT for other in xs[:index])
        lanes.append(_LANES[near % len(_LANES)])
    return lanes


def _is_shown(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def _padded(low: float, high: float) -> tuple[float, float]:
    """The ends of an axis for values from low to high.

    Values that are equal, or that float64 can no longer set apart on an axis, stand in the middle of a unit.
    """
    finest = max(abs(low), abs(high), 1e-12) * 1e-12
    margin = (high - low) * 0.06 if high - low > finest else 0.5
    return low - margin, high + margin


def _fitting_ticks(low: float, high: float, width: float) -> Ticks:
    """As many ticks, up to six, as have room for their labels side by side."""
    for most in (5, 4, 3):  # fewer might leave none
        ticks = nice_ticks(low, high, most)
        between = width * ticks.step / (high - low)
        if max(map(len, ticks.labels)) * _LETTER + 8 <= between:
            break
    return ticks


def _inside(x: float, label: str, width: float) -> float:
    """Where the middle of a label stands, so that it does not leave the chart."""
    half = _LETTER * len(label) / 2
    return min(max(x, half), width - half)


def _marker(mark: int) -> _Marker:
    """The marker of that index.

    After eight the shapes come again, hollow, and then with a dot in them. After all 24 they come in the next
    colours, and then with the dashes of other shapes.
    """
    again, kind = divmod(mark, len(_MARKERS))
    fill, later = again % _FILLS, again // _FILLS
    turn, dash = later % len(_MARKERS), later // len(_MARKERS)
    return _Marker(
        shape=_MARKERS[kind][0],
        dashes=_MARKERS[(kind + dash) % len(_MARKERS)][1],
        color=(kind + turn) % len(_MARKERS),
        is_hollow=fill > 0,
        has_dot=fill == 2,
    )


def _distinct(wished: Sequence[_Marker]) -> list[_Marker]:
    """The same markers, told apart by shape and fill wherever that many can be.

    Each stays as it is in all other figures, unless an earlier one here has its shape and fill. It then takes
    some that nobody here has, hollow ones if it is hollow, and keeps its colour and dashes.
    """
    taken, seen, found = set(map(_look, wished)), set[_Look](), []
    for marker in wished:
        looks = map(_look, map(_marker, range(len(_MARKERS) * _FILLS)))
        free = sorted(
            (look for look in looks if look not in taken), key=lambda look: look[1] != marker.is_hollow
        )
        look = free[0] if free and _look(marker) in seen else _look(marker)
        taken.add(look)
        seen.add(look)
        shape, is_hollow, has_dot = look
        found.append(replace(marker, shape=shape, is_hollow=is_hollow, has_dot=has_dot))
    return found


def _look(marker: _Marker) -> _Look:
    return marker.shape, marker.is_hollow, marker.has_dot


def _runs(known: Iterable[int]) -> list[list[int]]:
    """Neighbouring indices together: nothing is drawn across a missing value."""
    runs: list[list[int]] = []
    for index in sorted(known):
        if not runs or runs[-1][-1] != index - 1:
            runs.append([])
        runs[-1].append(index)
    return runs


def _paths(points: dict[int, _Point]) -> tuple[str, ...]:
    """A path through each run of neighbouring points."""
    return tuple(
        "M" + "L".join(f"{points[index].x:.1f} {points[index].y:.1f}" for index in run)
        for run in _runs(points)
        if len(run) > 1
    )


def _apart(wished: Sequence[float], top: float, bottom: float) -> list[float]:
    """Heights of labels, each as near to its wish as the others leave room for."""
    places = list(wished)
    by_height = sorted(range(len(wished)), key=lambda index: wished[index])
    least = top
    for index in by_height:
        places[index] = least = max(wished[index], least)
        least += _LABEL_HEIGHT
    most = bottom
    for index in reversed(by_height):
        places[index] = most = min(places[index], most)
        most -= _LABEL_HEIGHT
    return places


def _frame(width: float, height: float) -> _Frame:
    return _Frame(
        width=math.ceil(width),
        height=math.ceil(height),
        least=math.ceil(width * SMALLEST_TEXT / TEXT_SIZE) + 1,
        most=math.ceil(width * LARGEST_SCALE),
        text_size=TEXT_SIZE,
    )
