"""Count words, controls and Tab stops of the first screen, at 1280 x 720 pixels after the guess.

    python -m tools.first_screen http://localhost:7860

Exit status 1 if a limit is exceeded.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from playwright.sync_api import Page, ViewportSize

from tests.support.chromium import chromium_path, started_chromium

LAPTOP: ViewportSize = {"width": 1280, "height": 720}
MAX_WORDS, MAX_CONTROLS, MAX_TAB_STOPS = 200, 24, 8
SKIP_GUESS = "try { localStorage.setItem('pine-explorer-guess', '1') } catch {}"

WORDS = r"""
() => {
  const skipped = "#documents, .page-order-answer, .page-lane, .page-ticks, script, style, template";
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const isInView = (node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    return [...range.getClientRects()].some(({ top, width }) => top < innerHeight && width > 2);
  };
  const isVisible = (node) =>
    !node.parentElement.closest(skipped) &&
    node.parentElement.checkVisibility({ opacityProperty: true, visibilityProperty: true }) &&
    isInView(node);
  let count = 0;
  for (let node = walker.nextNode(); node; node = walker.nextNode())
    if (isVisible(node)) count += node.textContent.match(/\S*\p{L}\S*/gu)?.length ?? 0;
  return count;
}
"""
"""Script that returns the number of visible words beside documents and answers."""

CONTROLS = """
() => [...document.querySelectorAll("button, input, textarea, select, a, summary")].filter((control) => {
  const { top, width } = control.getBoundingClientRect();
  const isVisible = control.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  return isVisible && top < innerHeight && width > 2;
}).length
"""
"""Script that returns the number of visible controls."""


@dataclass(frozen=True)
class FirstScreen:
    """Counts of the part of the page that is visible without scrolling."""

    words: int  # beside documents and answers
    controls: int
    tab_stops: int  # to the button that runs or plays the orders
    table_bottom: float  # lower edge of the table of orders, in pixels

    @property
    def problems(self) -> list[str]:
        """Return the limits that are exceeded."""
        limits = {"words": MAX_WORDS, "controls": MAX_CONTROLS, "tab_stops": MAX_TAB_STOPS}
        limits["table_bottom"] = LAPTOP["height"]
        return [
            f"{name}: got {getattr(self, name):g}, expected at most {limit}"
            for name, limit in limits.items()
            if getattr(self, name) > limit
        ]


def count_first_screen(page: Page) -> FirstScreen:
    """Count the first screen of an open page, whose size is set, and leave the focus on the start button."""
    page.set_viewport_size(LAPTOP)
    words, controls = page.evaluate(WORDS), page.evaluate(CONTROLS)
    page.evaluate("document.activeElement.blur()")
    page.mouse.click(1, 1)
    tab_stops = 0
    while tab_stops < 100 and page.evaluate("document.activeElement.id") != "start-all":
        page.keyboard.press("Tab")
        tab_stops += 1
    table = page.locator("#order-table table").bounding_box()
    assert table is not None
    return FirstScreen(words, controls, tab_stops, table["y"] + table["height"])


@contextmanager
def served_page(description: str) -> Iterator[Page]:
    """Open the page at the address in the arguments, after the guess, with the first example."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("address", nargs="?", default="http://localhost:7860", help="address of the page")
    address = parser.parse_args().address
    path = chromium_path()
    if path is None:
        sys.exit("No Chromium was found. Install it or name its path in PINE_CHROMIUM.")
    with started_chromium(path) as browser, browser.new_page() as page:
        page.add_init_script(SKIP_GUESS)
        page.goto(address)
        page.locator("#order-table tbody tr").first.wait_for()
        yield page


def main() -> int:
    """Count the first screen of a served page."""
    with served_page("Count the first screen of a served page.") as page:
        page.locator("#model-status .page-notice-ready").wait_for(timeout=120_000)
        counted = count_first_screen(page)
    print(counted)
    print(*counted.problems, sep="\n")
    return bool(counted.problems)


if __name__ == "__main__":
    sys.exit(main())
