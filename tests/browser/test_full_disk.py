"""Uploads to a host whose disk is full."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.driving import give, text, unfold
from tests.support.serving import Serve

TYPED = "A lamp was lit."


@pytest.mark.slow
def test_the_page_says_that_there_is_no_room_and_keeps_what_was_typed(
    browser: Browser, serve: Serve, tmp_path: Path
) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("Much to read. " * 20_000)
    flags = ("--max-disk-mb", "0.1", "--model", str(tmp_path / "none"))
    with serve(tmp_path / "log", *flags) as app, browser.new_context() as context:
        page = context.new_page()
        page.goto(app.url)
        text(page, 1).fill(TYPED)
        unfold(page)
        give(page, "#add-files", file)
        expect(page.get_by_test_id("toast-text")).to_contain_text("0.1 MB")
        expect(text(page, 1)).to_have_value(TYPED)
