"""Every tab for all: axe-core finds nothing serious in light or dark, and none is wider than the window."""

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, ViewportSize, expect

from tests.browser.driving import DRAWN, INSIDE_TABS, TABS, cut_off, open_tab

IMPACTS = ("serious", "critical")
SMALL_PHONE = {"width": 320, "height": 640}
ZOOMED = {"width": 640, "height": 400}
"""The window of a laptop at 200 %."""


def violations(page: Page, part: str, *rules: str) -> list[str]:
    """Return the violations that axe-core finds, as text; default: all rules."""
    # Of what passes it would write down every node, which takes longer than all its rules.
    options = {"resultTypes": ["violations"]} | ({"runOnly": list(rules)} if rules else {})
    found = Axe().run(page, context=part, options=options).response["violations"]
    return [
        f"{violation['id']} ({violation['impact']}): {node['target']} {node['html'][:120]}"
        for violation in found
        if violation["impact"] in IMPACTS
        for node in violation["nodes"]
    ]


def paint(page: Page, *, dark: bool) -> None:
    """Changes the theme, and waits until all colours are those of it."""
    page.evaluate(
        """dark => {
            document.body.classList.toggle("dark", dark);
            return Promise.allSettled(document.getAnimations().map((each) => each.finished));
        }""",
        dark,
    )


SHOW_ALL = "node => node.style.setProperty('display', 'flex', 'important')"


@pytest.fixture
def all_tabs(drawn: Page) -> Iterator[Page]:
    """The page with what is in its tabs below each other, all drawn."""
    for label in TABS:
        open_tab(drawn, label)
    panels = drawn.locator("[role=tabpanel]").all()
    styles = [panel.get_attribute("style") for panel in panels]
    for panel in panels:
        panel.evaluate(SHOW_ALL)
    for place in INSIDE_TABS.values():
        expect(drawn.locator(f"#{place} {DRAWN}").first).to_be_visible()
    yield drawn
    for panel, style in zip(panels, styles, strict=True):
        panel.evaluate("(node, style) => node.setAttribute('style', style)", style)


def test_axe_finds_nothing_serious(all_tabs: Page) -> None:
    found = violations(all_tabs, "body")
    paint(all_tabs, dark=True)
    found += violations(all_tabs, "body", "color-contrast")
    paint(all_tabs, dark=False)
    assert found == [], "\n".join(found)


@pytest.mark.slow
def test_axe_finds_nothing_serious_in_the_steps_of_the_lesson(drawn: Page) -> None:
    open_tab(drawn, "Tutorial")
    # As it is read without a script: all steps below each other.
    drawn.evaluate("document.documentElement.classList.remove('pine-scripted')")
    expect(drawn.locator("#lesson .pine-lesson-step:visible")).to_have_count(9)
    found = violations(drawn, "#lesson")
    drawn.evaluate("document.documentElement.classList.add('pine-scripted')")
    assert found == [], "\n".join(found)


@pytest.mark.parametrize("window", [SMALL_PHONE, ZOOMED], ids=["small phone", "200 %"])
def test_no_tab_is_wider_than_the_window(drawn: Page, window: ViewportSize) -> None:
    drawn.set_viewport_size(window)
    for label in TABS:
        open_tab(drawn, label)
        expect(drawn.get_by_role("tab", name=label, exact=True)).to_be_visible()
        assert cut_off(drawn) == 0, label
