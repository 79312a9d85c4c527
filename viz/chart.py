"""Charts as inline SVG from plain data: lines over slots, and dots on one axis, a row per method.

Text is 13 units high and a chart is never drawn narrower than its text stays legible; what is wider than the
page scrolls. A series is told by its marker and its dashes as well as by its colour.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard

from viz.markup import empty_panel, render
from viz.numbers import format_difference, format_value
from viz.tokens import shorten

TEXT_SIZE = 13
SMALLEST_TEXT = 12
"""Pixels below which no text of a chart shrinks."""

LARGEST_SCALE = 1.3
"""Pixels of the page that one unit of a chart takes at most."""

_LETTER = 7.2
"""Width of a letter, in units, generously."""

_LONGEST_LABEL = 34

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

_LINE_LEFT, _LINE_TOP, _LINE_BOTTOM = 56, 34, 48
_LINE_HEIGHT, _SMALLEST_WIDTH, _LARGEST_WIDTH, _SLOT_WIDTH = 230, 222, 1000, 44
_LABEL_HEIGHT = 18
_BESIDE = 6
"""Most units between two lines with intervals."""

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


def line_chart(series: Sequence[Series], x_labels: Sequence[str], *, x_title: str, y_title: str) -> str:
    """HTML: one line per series over the labels of the x axis, each named beside its end.

    y_title: the quantity and its unit. Values that are not finite are left out like None. Lines with
    intervals stand a little beside each other, so that their bars can be told apart.
    """
    assert all(len(one.values) == len(x_labels) for one in series)
    shown = [value for one in series for value in one.values if _is_shown(value)]
    if not shown:
        return empty_panel("There is nothing to draw yet.")
    bars = [bar for one in series for index in range(len(x_labels)) if (bar := one.interval(index))]
    ends_of_bars = [end for bar in bars for end in bar]
    low, high = _padded(min(shown + ends_of_bars), max(shown + ends_of_bars))
    ticks = nice_ticks(low, high, 5)
    count = len(x_labels)
    width = min(max(_SLOT_WIDTH * count, _SMALLEST_WIDTH), _LARGEST_WIDTH)
    height = max(_LINE_HEIGHT, _LABEL_HEIGHT * len(series))
    left = max(_LINE_LEFT, 16 + _LETTER * max(map(len, ticks.labels)))
    labels = [shorten(one.label, _LONGEST_LABEL) for one in series]
    right = 44 + _LETTER * max(map(len, labels))

    beside = min(_BESIDE, width / count / (len(series) + 1)) if bars else 0.0

    def x_of(index: int) -> float:
        return left + width * (index + 0.5) / count

    def y_of(value: float) -> float:
        return _LINE_TOP + height * (high - value) / (high - low)

    def point(place: int, index: int, value: float) -> _Point:
        one, bar = series[place], series[place].interval(index)
        said = written(value, ticks.step / 100)
        if bar:
            said += f", interval {written(bar[0], ticks.step / 100)} to {written(bar[1], ticks.step / 100)}"
        return _Point(
            x_of(index) + beside * (place - (len(series) - 1) / 2),
            y_of(value),
            f"{one.label}, {x_title} {x_labels[index]}: {said} ({y_title})",
            (y_of(bar[0]), y_of(bar[1])) if bar else None,
        )

    points = [
        {index: point(place, index, value) for index, value in enumerate(one.values) if _is_shown(value)}
        for place, one in enumerate(series)
    ]
    ends = [points_of[max(points_of)] if points_of else None for points_of in points]
    middle = _LINE_TOP + height / 2
    wished = [middle if end is None else end.y for end in ends]
    every = math.ceil(max(_LETTER * len(label) + 8 for label in x_labels) / (width / count))
    return render(
        "chart_line.html",
        frame=_frame(left + width + right, _LINE_TOP + height + _LINE_BOTTOM),
        x_title=x_title,
        y_title=y_title,
        left=left,
        right=left + width,
        top=_LINE_TOP,
        bottom=_LINE_TOP + height,
        y_ticks=[(y_of(tick), label) for tick, label in zip(ticks.values, ticks.labels, strict=True)],
        x_ticks=[(x_of(index), x_of(index), x_labels[index]) for index in range(0, count, every)],
        lines=[
            _Line(
                label=label,
                marker=_marker(one.mark),
                paths=_paths(points_of),
                points=tuple(points_of.values()),
                label_y=y,
                end=end,
            )
            for one, label, points_of, y, end in zip(
                series, labels, points, _apart(wished, _LINE_TOP, _LINE_TOP + height), ends, strict=True
            )
        ],
    )


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
    """The marker of that index; after eight they come again, hollow, and then with a dot in them."""
    again, kind = divmod(mark, len(_MARKERS))
    shape, dashes = _MARKERS[kind]
    return _Marker(shape, dashes, kind, is_hollow=again % 3 > 0, has_dot=again % 3 == 2)


def _paths(points: dict[int, _Point]) -> tuple[str, ...]:
    """A path through each run of neighbouring points: a line never bridges a missing value."""
    runs: list[list[_Point]] = []
    for index, point in points.items():
        if index - 1 not in points:
            runs.append([])
        runs[-1].append(point)
    return tuple("M" + "L".join(f"{p.x:.1f} {p.y:.1f}" for p in run) for run in runs if len(run) > 1)


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
