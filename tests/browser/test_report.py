"""The report of `pine-engine report` in a browser: widths of its tables, and its figures."""

from typing import Literal

import pytest
from playwright.sync_api import Browser, expect

from tests.support.report_runs import golden_parts
from tests.support.tiers import first_daily
from viz.lab.report import report_page

SCROLL_BAR = 15

FIGURES = 6

INKS = """() => [getComputedStyle(document.querySelector("h1")).color,
    getComputedStyle(document.querySelector(".pine-plot .xtitle")).fill]"""
"""Colors of the page's text and of a figure's."""

TABLE_WIDTHS = """() => [...document.querySelectorAll(".pine-scroll:has(table)")].map((box) =>
    [box.ariaLabel, box.scrollWidth, box.clientWidth])"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a report of four runs and of molecules, whose tables have up to 15 columns."""
    return report_page(golden_parts(tmp_path_factory.mktemp("report")), title="A report", made="now")


@pytest.mark.parametrize(
    ("width", "color_scheme"), first_daily([(1280 - SCROLL_BAR, "light"), (390, "dark")])
)
def test_report_draws_every_figure_offline(
    browser: Browser, report: str, width: int, color_scheme: Literal["light", "dark"]
) -> None:
    problems: list[str] = []
    with browser.new_page(
        viewport={"width": width, "height": 900}, color_scheme=color_scheme, offline=True
    ) as page:
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: problems.append(request.url))
        page.set_content(report)
        expect(page.locator(".pine-plot .main-svg .scatterlayer").first).to_be_visible()
        page.wait_for_function(f"document.querySelectorAll('.pine-plot .legend').length === {FIGURES}")
        ink, text = page.evaluate(INKS)
        wide = page.evaluate("[document.body.scrollWidth, document.documentElement.clientWidth]")
        tables = page.evaluate(TABLE_WIDTHS)
        uploads = page.locator("[data-title*='loud'], [data-title*='hart Studio']").count()
    assert problems == []
    assert ink == text
    assert wide[0] <= wide[1]
    assert uploads == 0
    assert len(tables) > 15
    if width > 1000:  # a laptop shows every column, a phone scrolls inside its tables
        assert [label for label, needed, shown in tables if needed > shown] == []
