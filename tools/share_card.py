"""Draw the picture of the first example, to which the Open Graph tags of the page refer.

python -m tools.share_card http://localhost:7860
"""

import base64

from tools.first_screen import served_page
from viz.page.serving.page_head import CARD

PICTURE = """
async () => {
  const bytes = new Uint8Array(await (await pine.card.picture(null)).arrayBuffer());
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}
"""
"""Script that returns the picture without a QR code, which would have the address of this machine."""


def main() -> None:
    """Draw the picture with a served page."""
    with served_page("Draw the picture of the page's first example.") as page:
        CARD.write_bytes(base64.b64decode(page.evaluate(PICTURE)))
    print(f"Wrote {CARD}")


if __name__ == "__main__":
    main()
