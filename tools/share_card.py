"""Draw the picture of the first example, to which the Open Graph tags of the page refer.

python -m tools.share_card http://localhost:7860
"""

import argparse
import base64
import sys

from playwright.sync_api import Page

from tests.support.chromium import chromium_path, started_chromium
from tools.first_screen import SKIP_GUESS
from viz.page.serving.open_graph import CARD

PICTURE = """
async () => {
  const bytes = new Uint8Array(await (await window.pineCard.picture(null)).arrayBuffer());
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}
"""
"""Script that returns the picture without a QR code, which would have the address of this machine."""


def card_png(page: Page) -> bytes:
    """Return the picture of the answers on the page."""
    page.locator("#order-table tbody tr").first.wait_for()
    return base64.b64decode(page.evaluate(PICTURE))


def main() -> int:
    """Draw the picture with a served page."""
    parser = argparse.ArgumentParser(description="Draw the picture of the page's first example.")
    parser.add_argument("address", nargs="?", default="http://localhost:7860", help="address of the page")
    address = parser.parse_args().address
    path = chromium_path()
    if path is None:
        sys.exit("No Chromium was found. Install it or name its path in PINE_CHROMIUM.")
    with started_chromium(path) as browser, browser.new_page() as page:
        page.add_init_script(SKIP_GUESS)
        page.goto(address)
        CARD.write_bytes(card_png(page))
    print(f"Wrote {CARD}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
