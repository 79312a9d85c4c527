"""The page with a model that thinks before it answers."""

from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.browser.conftest import visit
from tests.support.scripted import save_thinking_model
from tests.support.serving import Serve


@pytest.mark.slow  # it serves a model of its own
def test_thinking_is_folded_and_can_be_turned_off(
    serve: Serve, second_window: BrowserContext, tmp_path: Path
) -> None:
    save_thinking_model(tmp_path / "model")
    with (
        serve(tmp_path / "app.log", "--model", str(tmp_path / "model")) as served,
        visit(second_window, served) as page,
    ):
        page.get_by_role("button", name="Paste, upload, settings").click()
        arguments, problem = page.locator("#chat-template-kwargs textarea"), page.locator("#form-problem")
        arguments.fill('{"enable_thinkin": true}')
        expect(problem).to_contain_text("enable_thinking")
        arguments.fill('{"enable_thinking": true}')
        expect(problem).not_to_contain_text("enable_thinking")
        page.locator("#start-one").click()
        page.get_by_role("button", name="Full answers").click()
        card = page.locator("#answers [data-method=pine]")
        expect(card.locator(".pine-status")).to_have_text("Done")
        thinking = card.get_by_text("hm", exact=True)
        expect(card.get_by_text("Ana", exact=True)).to_be_visible()
        expect(thinking).to_be_hidden()
        card.locator("summary").click()
        expect(thinking).to_be_visible()
