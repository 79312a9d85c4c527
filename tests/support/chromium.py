"""The Chromium that plays the visitors."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def chromium_path() -> str | None:
    """Where it is installed; None if it is not."""
    return os.environ.get("PINE_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def started_chromium(path: str) -> Iterator[Browser]:
    """Starts the one at this path, until the block is left."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()
