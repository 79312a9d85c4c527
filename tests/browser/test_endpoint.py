"""The page of a host that sets an endpoint, which is the API server of a tiny model."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, expect

from pine_engine import Engine
from pine_engine.endpoint import NO_INTERNALS
from tests.browser.conftest import visit
from tests.browser.driving import cut_off, open_tab, unfold, violations, wait_for_model
from tests.support.api_server import running_server
from tests.support.serving import Serve


@pytest.mark.slow
def test_all_orders_are_answered_by_an_endpoint(
    first_window: BrowserContext, serve: Serve, engine: Engine, tmp_path: Path
) -> None:
    log = tmp_path / "app.log"
    with (
        running_server(engine) as (address, _),
        serve(log, "--endpoint", f"{address}/v1", "--model", "model") as app,
        visit(first_window, app) as page,
    ):
        wait_for_model(page)
        expect(page.locator("#model-status")).to_contain_text("model · endpoint")
        expect(page.locator("#choose-model")).to_be_hidden()
        unfold(page)
        boxes = page.locator("#methods")
        expect(boxes.locator("input[name=reorder_content]")).to_be_checked()
        expect(boxes.locator("input[name=pine]")).to_be_disabled()
        reason = re.compile("changes attention or positions")
        expect(boxes.locator("label", has=page.locator("input[name=pine]"))).to_have_attribute(
            "title", reason
        )
        expect(page.locator("#shuffle-status-estimate")).to_contain_text("6 orders: 13 requests, about")

        page.locator("#start-all").click()
        expect(page.locator("#shuffle-status")).to_contain_text("repeated: 0 of 1")
        table = page.locator("#order-table")
        expect(table.locator("tbody tr")).to_have_count(2)
        expect(table.locator("tbody")).not_to_contain_text("not computed")
        expect(table.locator(".page-lane").first).to_have_attribute("aria-label", re.compile("endpoint"))
        unfold(page, "#shuffle-section")
        expect(page.locator("#shuffle-verdict")).to_contain_text("The same text in every order")
        assert violations(page, "#tabs") == []

        open_tab(page, "Why")
        expect(page.get_by_text(f"{NO_INTERNALS} To see them")).to_be_visible()
        expect(page.locator("#why")).to_contain_text("Precomputed with")
        page.get_by_role("tab", name="Lab").click()
        expect(page.locator("#internals-summary")).to_contain_text(NO_INTERNALS)
        open_tab(page, "Position sweep")
        expect(page.get_by_text(f"{NO_INTERNALS} To see them").filter(visible=True)).to_be_visible()
        page.set_viewport_size({"width": 390, "height": 800})
        assert cut_off(page) <= 0
    assert "Traceback" not in log.read_text()
