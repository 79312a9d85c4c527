"""A report of measurements: one HTML file that needs nothing else, and Markdown with its curves beside it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from viz.drawing.markup import render
from viz.figures.chart import Across, Area, Series, bar_chart, line_chart


@dataclass(frozen=True)
class ReportTable:
    """heads: how many cells on the left name their row. note: how to read it; may be empty."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    heads: int
    note: str

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows), self.title

    @property
    def spans(self) -> list[list[int]]:
        """For each row and head, how many rows it names: 0 where the one above it goes on."""
        spans: list[list[int]] = []
        for place, row in enumerate(self.rows):
            above = self.rows[place - 1] if place else ()
            # The last head names its row alone, so that each row keeps a name.
            alike = [row[: head + 1] == above[: head + 1] for head in range(self.heads - 1)]
            spans.append([0 if same else 1 for same in alike] + [1])
            for head, same in enumerate(alike):
                if same:
                    spans[_start(spans, head)][head] += 1
        return spans


def _start(spans: list[list[int]], head: int) -> int:
    """The last row before the newest at which this head began."""
    return max(row for row in range(len(spans) - 1) if spans[row][head])


@dataclass(frozen=True)
class ReportCurve:
    """Lines over named places, with levels across and areas between them, or bars. name: stem of its file.

    note: how to read it.
    """

    name: str
    title: str
    x_title: str
    y_title: str
    places: tuple[str, ...]
    lines: tuple[Series, ...]
    levels: tuple[Across, ...] = ()
    areas: tuple[Area, ...] = ()
    has_bars: bool = False
    note: str = ""

    @property
    def caption(self) -> str:
        """Its title, and how to read it."""
        has_intervals = any(any(line.intervals) for line in self.lines)
        bars = "Strokes on the bars" if self.has_bars else "Bars"
        intervals = f"{bars}: 95 % intervals." if has_intervals else ""
        return " ".join(filter(None, (f"{self.title}.", intervals, self.note)))

    @property
    def drawn(self) -> str:
        """HTML of its chart."""
        titles = {"x_title": self.x_title, "y_title": self.y_title}
        if self.has_bars:
            return bar_chart(self.lines, self.places, **titles)
        return line_chart(self.lines, self.places, levels=self.levels, areas=self.areas, **titles)

    @property
    def file(self) -> str:
        """Name of the file beside the Markdown."""
        return f"{re.sub(r'[^A-Za-z0-9-]+', '-', self.name)}.svg"


@dataclass(frozen=True)
class ReportPart:
    """Sentences, tables, curves, and commands for a shell, under a heading."""

    heading: str
    sentences: tuple[str, ...] = ()
    tables: tuple[ReportTable, ...] = ()
    curves: tuple[ReportCurve, ...] = ()
    commands: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """made: when, in UTC."""

    title: str
    made: str
    parts: tuple[ReportPart, ...]


def report_page(report: Report, *, styles: str) -> str:
    """A whole HTML document without scripts; it is light or dark as the reader's system is.

    styles: figure_styles(), put into the page.
    """
    assert "</style" not in styles
    return render("report.html", report=report, styles=follow_system(styles))


def report_markdown(report: Report) -> str:
    """The same in Markdown, as GitHub shows it; curves are pictures by the names of curve_files."""
    return "\n\n".join(_blocks(report)) + "\n"


def curve_files(report: Report, *, styles: str) -> dict[str, str]:
    """The curves as SVG files by name, in light colours on white."""
    return {curve.file: _svg_file(curve.drawn, styles) for part in report.parts for curve in part.curves}


def follow_system(styles: str) -> str:
    """The same styles, with the rules for a dark page where the reader's system asks for one."""
    return re.sub(
        r"\bbody\.dark\b([^{}]*\{[^{}]*\})", r"@media (prefers-color-scheme: dark) {\nbody\1\n}", styles
    )


def escape_markdown(text: str) -> str:
    """The text as Markdown that shows just this text, in one line, also within a table."""
    line = " ".join(text.split())
    return re.sub(r"([\\`*_\[\]<>|~$&])", r"\\\1", line)


def _paragraph(text: str) -> str:
    """The same, where it might begin a heading, a list or a line."""
    return re.sub(r"^(\d*)([#+=.)-])", r"\1\\\2", escape_markdown(text))


def _blocks(report: Report) -> Iterator[str]:
    yield f"# {escape_markdown(report.title)}"
    yield f"Made with PINE Explorer on {escape_markdown(report.made)}."
    for part in report.parts:
        yield f"## {escape_markdown(part.heading)}"
        yield from map(_paragraph, part.sentences)
        for table in part.tables:
            yield f"### {escape_markdown(table.title)}"
            yield _markdown_table(table)
            if table.note:
                yield _paragraph(table.note)
        for curve in part.curves:
            yield f"![{escape_markdown(curve.title)}]({curve.file})"
            if curve.note:
                yield _paragraph(curve.note)
        if part.commands:
            yield _fenced("\n".join(part.commands))


def _markdown_table(table: ReportTable) -> str:
    rows = [table.columns, ("---",) * len(table.columns), *table.rows]
    lines = []
    for number, row in enumerate(rows):
        cells = row if number == 1 else map(escape_markdown, row)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _fenced(text: str) -> str:
    """Text in a fence longer than any in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}sh\n{text}\n{fence}"


def _svg_file(chart: str, styles: str) -> str:
    """The SVG of a chart with the rules that it needs, which our sheet does not nest in others."""
    drawn = re.search(r"<svg .*</svg>", chart, re.DOTALL)
    assert drawn is not None, "a curve has values"
    rules = re.findall(r"([^{}]+)\{([^{}]*)\}", re.sub(r"/\*.*?\*/", "", styles, flags=re.DOTALL))
    kept = [("svg", body) for selector, body in rules if selector.strip() == "body"]
    kept += [
        (selector.strip(), body)
        for selector, body in rules
        if re.search(r"\.pine-(chart[ -]|series-|interval|mark-|area-)", selector) and ":" not in selector
    ]
    sheet = "\n".join(f"{selector} {{{body}}}" for selector, body in kept)
    sheet += "\nsvg { background: #ffffff; font-family: system-ui, sans-serif }"
    opening, rest = drawn[0].split(">", 1)
    return f'{opening} xmlns="http://www.w3.org/2000/svg">\n<style>\n{sheet}\n</style>{rest}\n'
