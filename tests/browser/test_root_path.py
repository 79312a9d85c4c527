"""The page behind a reverse proxy that adds a path prefix, which the server does not know."""

import re

from playwright.sync_api import Browser, expect

from tests.support.serving import ServedApp


def test_unknown_path_prefix_is_named(browser: Browser, app: ServedApp) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        page.route("**/pine/**", lambda route: route.continue_(url=route.request.url.replace("/pine/", "/")))
        page.goto(f"{app.url}pine/")
        expect(page.locator("#root-path")).to_have_text(re.compile("PINE_ROOT_PATH=/pine"))
        page.goto(app.url)
        expect(page.locator("#run")).to_be_attached()
        expect(page.locator("#root-path")).to_have_count(0)
