"""The report of `pine-engine report` in a browser: how wide its tables are."""

import pytest
from playwright.sync_api import Browser

from pine_engine.cli.report import PAGE, draw, report_files
from pine_engine.evaluation.report.molecule_tables import read_molecule_report
from pine_engine.evaluation.report.parts import report_parts
from pine_engine.evaluation.report.runs import MeasuredRun
from pine_engine.evaluation.summary.summarize import summarize
from tests.evaluation.report.test_report import (
    JUDGE,
    LLAMA,
    QA,
    judge_records,
    molecule_report,
    qa_records,
)

SCROLL_BAR = 15

TABLE_WIDTHS = """() => [...document.querySelectorAll(".pine-scroll:has(table)")].map((box) =>
    [box.ariaLabel, box.scrollWidth, box.clientWidth])"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report of three runs and of molecules, whose tables have up to 15 columns."""
    runs = [
        MeasuredRun(f"SmolLM2-135M-Instruct, {label}", info, summarize([*records], resamples=20))
        for label, info, records in (
            ("questions", QA, qa_records()),
            ("pairs", JUDGE, judge_records()),
            ("other pairs", LLAMA, judge_records()),
        )
    ]
    molecules = [read_molecule_report(molecule_report(tmp_path_factory.mktemp("molecules")))]
    return report_files(draw(report_parts(runs, molecules=molecules), made="now"))[PAGE]


def test_report_on_a_laptop_shows_every_column(browser: Browser, report: str) -> None:
    with browser.new_page(viewport={"width": 1280 - SCROLL_BAR, "height": 900}) as page:
        page.set_content(report)
        widths = page.evaluate(TABLE_WIDTHS)
    assert len(widths) > 15
    assert [(label, needed - shown) for label, needed, shown in widths if needed > shown] == []


def test_report_on_a_phone_scrolls_inside_its_tables(browser: Browser, report: str) -> None:
    with browser.new_page(viewport={"width": 390, "height": 844}) as page:
        page.set_content(report)
        page_widths = page.evaluate("[document.body.scrollWidth, document.documentElement.clientWidth]")
    assert page_widths[0] <= page_widths[1]
