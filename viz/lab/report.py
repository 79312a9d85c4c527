"""Report of evaluations: one HTML file with interactive figures, or Markdown."""

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import plotly.io as pio
from plotly.offline import get_plotlyjs

from viz.drawing.markup import figure_styles, render
from viz.drawing.scripts import FIGURE_SCRIPTS, join_modules
from viz.export.standalone import packed_json
from viz.lab.bias_curve import plot_bias_curve

if TYPE_CHECKING:
    from pine_engine.lab.evaluation.report.tables import Part, Table

TITLE = "Does the order of the documents change the answer? What was measured"

_DARK_RULE = re.compile(r"\bbody\.dark\b([^{}]*\{[^{}]*\})")
_IMAGE_WIDTH = 900  # pixels of a PNG file at scale 1


def report_page(parts: "Sequence[Part]", *, title: str, made: str) -> str:
    """Return an HTML document that needs no server and no network; it is light or dark as the system is."""
    return render(
        "report.html",
        title=title,
        made=made,
        parts=[
            {
                "heading": part.heading,
                "sentences": part.sentences,
                "tables": [(table, row_spans(table)) for table in part.tables],
                "figures": [packed_json(plot_bias_curve(curve)) for curve in part.curves],
                "commands": part.commands,
            }
            for part in parts
        ],
        # The rules of the dark page are applied where the system is dark.
        styles=_DARK_RULE.sub(r"@media (prefers-color-scheme: dark) {\nbody\1\n}", figure_styles()),
        scripts=[get_plotlyjs(), join_modules(FIGURE_SCRIPTS)],
    )


def measured_html(
    done: int,
    planned: int,
    *,
    findings: Sequence[str],
    tables: "Sequence[Table]",
    note: str,
    reading: Sequence[str],
) -> str:
    """Render an evaluation so far: records done and planned, findings, tables, and how to read them."""
    return render(
        "measured.html",
        score=f"{done} of {planned} records",
        note=note,
        findings=findings,
        tables=[(table, row_spans(table)) for table in tables],
        reading=reading,
    )


def report_markdown(
    parts: "Sequence[Part]", *, title: str, made: str, page: str, images: Mapping[str, str]
) -> str:
    """Return the report as GitHub Markdown; `page` is the HTML file, `images` are files by curve name."""
    heading = [f"# {escape_markdown(title)}", f"Generated with PINE Explorer on {escape_markdown(made)}."]
    blocks = [block for part in parts for block in _part_blocks(part, page, images)]
    return "\n\n".join(heading + blocks) + "\n"


def write_images(parts: "Sequence[Part]", folder: Path) -> dict[str, str]:
    """Write the figures as PNG files if kaleido is installed, and return the file names by curve names.

    Raises RuntimeError if kaleido finds no browser, or its browser fails.
    """
    curves = [curve for part in parts for curve in part.curves]
    if not curves or find_spec("kaleido") is None:
        return {}
    names = {curve.name: f"{re.sub(r'[^A-Za-z0-9-]+', '-', curve.name)}.png" for curve in curves}
    paths = [str(folder / name) for name in names.values()]
    pio.write_images(list(map(plot_bias_curve, curves)), paths, format="png", width=_IMAGE_WIDTH, scale=2)
    return names


def row_spans(table: "Table") -> list[list[int]]:
    """Return how many rows each heading covers: 0 where the heading above covers it, 1 for the last."""
    spans: list[list[int]] = []
    for number, row in enumerate(table.rows):
        above = table.rows[number - 1] if number else ()
        continues = [row[: head + 1] == above[: head + 1] for head in range(table.heads - 1)]
        spans.append([int(not is_covered) for is_covered in continues] + [1])
        for head, is_covered in enumerate(continues):
            if is_covered:
                first = max(index for index in range(number) if spans[index][head])
                spans[first][head] += 1
    return spans


def escape_markdown(text: str) -> str:
    """Return Markdown that shows the text as it is, in one line, also within a table."""
    return re.sub(r"([\\`*_\[\]<>|~$&])", r"\\\1", " ".join(text.split()))


def _paragraph(text: str) -> str:
    """Return Markdown of a paragraph, also of a text that looks like a heading or a list."""
    return re.sub(r"^(\d*)([#+=.)-])", r"\1\\\2", escape_markdown(text))


def _part_blocks(part: "Part", page: str, images: Mapping[str, str]) -> Iterator[str]:
    yield f"## {escape_markdown(part.heading)}"
    yield from map(_paragraph, part.sentences)
    for table in part.tables:
        yield f"### {escape_markdown(table.title)}"
        yield _markdown_table(table)
        if table.note:
            yield _paragraph(table.note)
    for curve in part.curves:
        title = escape_markdown(curve.title)
        link = f"Figure: {title}, in [{escape_markdown(page)}]({page})."
        yield f"![{title}]({images[curve.name]})" if curve.name in images else link
        if curve.note:
            yield _paragraph(curve.note)
    if part.commands:
        yield _fenced("\n".join(part.commands))


def _markdown_table(table: "Table") -> str:
    heading, *rows = [map(escape_markdown, row) for row in (table.columns, *table.rows)]
    lines = [heading, ["---"] * len(table.columns), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _fenced(text: str) -> str:
    """Return a code block whose fence is longer than any fence in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}sh\n{text}\n{fence}"
