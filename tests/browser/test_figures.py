"""Figures as a notebook shows them: plotly draws them without the page, at any width."""

from itertools import combinations
from pathlib import Path

import pytest
from playwright.sync_api import Browser

import viz
from pine_engine import Engine
from pine_engine.methods.plan import build_plan
from pine_engine.methods.table import METHODS
from pine_engine.prompts.layout import TokenLayout
from viz.theme import CONFIG

PLOTLY = Path(__file__).parents[2] / "assets" / "plotly" / "plotly-cartesian.min.js"
WIDTHS = (600, 800, 1000, 1280, 1600)
LAYOUT = TokenLayout((1,) * 19, ((2,) * 18, (3,) * 16, (4,) * 20), (5,) * 24)
ONE_DOCUMENT = TokenLayout((1,), ((2,) * 18,), (5,))

Box = tuple[float, float, float, float]  # left, top, right and bottom in pixels
IS_RESIZED = """() => [...document.querySelectorAll(".js-plotly-plot")].every((plot) =>
    plot._fullLayout?.width === plot.clientWidth && plot.clientWidth === document.body.clientWidth)"""
TEXT_BOXES = """(plot) =>
    [...plot.querySelectorAll(".gtitle, .annotation, .xtick, .ytick, .cbaxis text")].map((text) => {
        const { left, top, right, bottom } = text.getBoundingClientRect();
        return [text.textContent, [left, top, right, bottom]];
    })"""


def overlap(one: Box, other: Box) -> bool:
    return max(one[0], other[0]) < min(one[2], other[2]) and max(one[1], other[1]) < min(one[3], other[3])


@pytest.mark.slow
def test_texts_never_overlap_at_notebook_widths(browser: Browser, engine: Engine) -> None:
    plans = [build_plan(method, LAYOUT) for method in METHODS.values() if method.has_plan]
    figures = [viz.plot_masks(chosen) for chosen in (plans, plans[:5], plans[:2], plans[-1], ONE_DOCUMENT)]
    result = engine.run(LAYOUT, methods="pine", max_new_tokens=12, stop_at_eos=False, trace=True)
    figures.append(viz.plot_attention_shares(result.traces["pine"], steps=12))
    drawn = [figure.to_html(full_html=False, include_plotlyjs=False, config=CONFIG) for figure in figures]
    page = browser.new_page()
    try:
        plotly = PLOTLY.read_text(encoding="utf-8")
        page.set_content(f"<body style='margin: 0'><script>{plotly}</script>{''.join(drawn)}</body>")
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_function(IS_RESIZED)
            for plot in page.locator(".js-plotly-plot").all():
                boxes: list[tuple[str, Box]] = plot.evaluate(TEXT_BOXES)
                outside = [text for text, box in boxes if box[0] < 0 or box[2] > width]
                overlapping = [
                    (one, other)
                    for (one, one_box), (other, other_box) in combinations(boxes, 2)
                    if overlap(one_box, other_box)
                ]
                assert len(boxes) > 5
                assert (width, outside, overlapping) == (width, [], [])
    finally:
        page.close()
