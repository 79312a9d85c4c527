"""Tables that break no word, JSON without NaN, and progress bars."""

import io
import re
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from pine_engine.benchmark import random_models
from pine_engine.cli import output
from pine_engine.cli.output import print_rows

Row = dict[str, Any]

WORD = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=40)
TEXT = st.lists(WORD, min_size=1, max_size=12).map(" ".join)
ROWS = st.lists(
    st.fixed_dictionaries({"method": WORD, "first answer": TEXT, "path": WORD}), min_size=1, max_size=3
)


def printed(rows: list[Row], width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_rows(console, rows)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@given(ROWS, st.integers(20, 200))
def test_no_word_of_titles_and_cells_is_broken(rows: list[Row], width: int) -> None:
    words = re.split(r"[\s│┃]+", printed(rows, width))
    cells = {word for row in rows for value in row.values() for word in value.split()}
    titles = {word for title in list(rows[0])[1:] for word in title.split()}  # a block has no first title
    assert cells | titles <= set(words)


SCORES: list[Row] = [{"method": "pine", "max |Δ logit|": 0.0}, {"method": "vanilla", "max |Δ logit|": 3.25}]
CHECKS: list[Row] = [{"check": "rows", "meaning": "a row does not depend on others in the same batch"}]
CASES: list[Row] = [{"case": "a", "problem": "one two three four\nfive", "path": "/a/path", "none": None}]


@pytest.mark.parametrize(
    ("rows", "width", "part"),
    [
        (SCORES, 27, "│ vanilla │ 3.25          │"),
        (SCORES, 17, "pine\n  max |Δ logit|  0\n\nvanilla\n  max |Δ logit|  3.25\n"),
        (CHECKS, 47, "│ rows  │ a row does not depend on others in  │"),  # only the widest column wraps
        (CHECKS, 39, "rows\n  meaning  a row does"),
        (CASES, 24, "  problem  one two three\n           four\n           five\n  path     /a/path\n"),
        (CASES, 80, "│ /a/path │ -    │"),
    ],
)
def test_rows_are_blocks_where_no_table_fits(rows: list[Row], width: int, part: str) -> None:
    assert part in printed(rows, width)


def test_report_is_printed_without_markup_and_nan(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_result(output.CommandResult({}, [{"text": "[red]a[/x] [b]"}]), as_json=False)
    assert "[red]a[/x] [b]" in capsys.readouterr().out
    report = {"a": float("nan"), "b": [{"c": float("inf")}, (1.5, None)]}
    output.print_result(output.CommandResult(report, []), as_json=True)
    assert capsys.readouterr().out == '{"a": null, "b": [{"c": null}, [1.5, null]]}\n'


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> tuple[io.StringIO, list[float]]:
    """Return the output of a terminal, and its clock in seconds."""
    shown, now = io.StringIO(), [0.0]
    console = Console(file=shown, force_terminal=True, width=100, get_time=lambda: now[0])
    monkeypatch.setattr(output, "stderr", console)
    return shown, now


def test_progress_shows_steps_and_remaining_time(terminal: tuple[io.StringIO, list[float]]) -> None:
    shown, now = terminal
    with output.progress(9, done=4) as advance:
        for _ in range(3):
            now[0] += 60
            advance("q1: pine, as-is")
    text = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", shown.getvalue())
    assert "7/9 0:02:00 left, 0:03:00 q1: pine, as-is" in text


def test_load_shows_conversion_and_warning(
    terminal: tuple[io.StringIO, list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load_engine(name: str, *, dtype: str, device: str, progress: Any) -> Any:
        progress(0.25, f"converting {name}")
        return SimpleNamespace(arguments=(name, dtype, device), invariance_warning="not invariant here")

    monkeypatch.setattr(random_models, "load_engine", load_engine)
    loaded: Any = output.load("tiny", "float32", "cpu")
    assert loaded.arguments == ("tiny", "float32", "cpu")
    assert "converting tiny" in terminal[0].getvalue() and "not invariant here" in terminal[0].getvalue()
