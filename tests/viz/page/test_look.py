"""Look of the page: shades of distinct answers, texts of its scripts, and the order of headings."""

import re
from itertools import pairwise
from pathlib import Path

import gradio as gr

from tests.support.widgets import whole_page
from viz.drawing.identity import relative_luminance
from viz.page.common.look import ASSETS, SCRIPTS

ROOT = Path(__file__).parents[3]
TABLES = ("#FFFFFF", "#1E293B")
"""Backgrounds of the table of answers, light and dark."""


def contrast(one: str, other: str) -> float:
    low, high = sorted((relative_luminance(one), relative_luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_shades_of_answers_are_visible_on_both_backgrounds() -> None:
    style = (ROOT / "assets" / "style.css").read_text(encoding="utf-8")
    shades = dict(re.findall(r'\[data-shade="(\d)"\] \{ background: (#\w{6})', style))
    light = re.search(r"is\((.*)\) \{ color: #fff; \}", style)
    assert light and set(shades) == set("012345")
    for number, shade in shades.items():
        ink = "#FFFFFF" if f'"{number}"' in light[1] else "#1C2733"
        assert contrast(shade, ink) >= 4.5, number
        assert min(contrast(shade, table) for table in TABLES) >= 1.25, number


def test_no_template_is_in_another_one() -> None:
    """rjsmin removes spaces from the inner one."""
    scripts = (*SCRIPTS, *ASSETS.glob("*.js"))
    nested = re.compile(r"`[^`\n]*\$\{[^}`\n]*`.*")
    assert [match for script in scripts for match in nested.findall(script.read_text(encoding="utf-8"))] == []


def test_headings_skip_no_level() -> None:
    """Those of the page in its order, then the first of each part that a run fills."""
    widgets = [block for block in whole_page().blocks.values() if isinstance(block, gr.HTML)]
    texts = [f"{widget.value}{widget.html_template}" for widget in widgets]
    levels = [int(level) for text in texts for level in re.findall(r"<h(\d)", text)]
    assert levels[:3] == [1, 2, 2], "the last is that of the guess"
    assert all(after <= before + 1 for before, after in pairwise(levels)), levels
    for name in ("compare", "measured", "shuffle_answer", "tutorial", "why", "_macros"):
        source = (ROOT / "viz" / "templates" / f"{name}.html").read_text(encoding="utf-8")
        assert re.findall(r"<h(\d)", source)[0] == "3", name
