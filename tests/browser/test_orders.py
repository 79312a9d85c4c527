"""The documents in every order, and one of them in every slot, in a browser."""

import json
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser.driving import DEFAULT, LONG, SHORT, open_tab, pick, picture, save, wait_for_model

DOCUMENTS = len(SHORT.documents)


def test_a_shuffle_adds_a_row_per_order_and_pine_stays(drawn: Page) -> None:
    open_tab(drawn, "Shuffle")
    rows = drawn.locator("#shuffle-table tbody tr")
    expect(rows).to_have_count(2)
    assert rows.nth(1).locator("th .pine-badge").all_inner_texts() == ["B", "A"]
    labels = [
        head.inner_text().split("\n")[0]
        for head in drawn.locator("#shuffle-table thead th:not(:first-child)").all()
    ]
    second = dict(zip(labels, rows.nth(1).locator("td").all(), strict=True))
    for method in ("PCW", "PINE"):
        expect(second[method]).to_contain_text("same")
        expect(second[method]).to_contain_text("0.0, equal to the last bit")
    for method in ("Vanilla", "Mask only", "Re-assignment only"):
        expect(second[method]).not_to_contain_text("equal to the last bit")


def test_a_shuffle_draws_a_dot_for_every_order_of_every_method(drawn: Page) -> None:
    open_tab(drawn, "Shuffle")
    spread = picture(drawn, "invariance")
    methods = drawn.locator("#shuffle-table thead th:not(:first-child)").count()
    assert methods == 6
    expect(spread.locator(".pine-point")).to_have_count(methods * 2)
    spread.locator(".pine-point").first.hover()
    expect(spread.locator(".pine-readout")).to_contain_text("nats")


def test_a_shuffle_is_certified(drawn: Page, tmp_path: Path) -> None:
    open_tab(drawn, "Shuffle")
    path = save(drawn, drawn.locator("#certificate"), tmp_path)
    certificate = json.loads(path.read_text())
    assert certificate["orders"] == [[0, 1], [1, 0]]
    by_method = {result["method"]: result for result in certificate["results"]}
    assert by_method["pine"]["bitwise_equal"] and not by_method["vanilla"]["bitwise_equal"]
    page = save(drawn, drawn.locator("#certificate-page"), tmp_path).read_text()
    assert by_method["pine"]["logits_sha256"] in page


def test_where_the_answer_stands_draws_a_line_for_every_method(drawn: Page) -> None:
    open_tab(drawn, "Where the answer stands")
    standing = picture(drawn, "where-the-answer-stands")
    lines = standing.locator(".pine-walk > [role=group]")
    assert [line.get_attribute("aria-label") for line in lines.all()] == ["Vanilla", "NIA", "PCW", "PINE"]
    for line in lines.all():
        expect(line.locator(".pine-point")).to_have_count(DOCUMENTS)
    parts = picture(drawn, "rope-and-causal-attention").locator(".pine-walk > [role=group]")
    expect(parts).to_have_count(3)
    lines.first.locator(".pine-point").first.focus()
    drawn.keyboard.press("ArrowRight")
    expect(lines.first.locator(".pine-point").nth(1)).to_be_focused()
    expect(standing.locator(".pine-readout")).to_contain_text("slot 2")


def test_what_will_be_computed_is_said_before(page: Page) -> None:
    wait_for_model(page)
    pick(page, LONG)
    expect(page.locator("#shuffle-status")).to_contain_text("random ones, seed 0")
    expect(page.get_by_role("checkbox", name="with controls")).not_to_be_checked()
    open_tab(page, "Where the answer stands")
    expect(page.locator("#standing-status")).to_contain_text(f"{len(LONG.documents)} slots × 4 methods")
    open_tab(page, "Shuffle")
    pick(page, DEFAULT)
    expect(page.locator("#shuffle-status")).to_contain_text("3 documents: all 6 orders")
    expect(page.get_by_role("checkbox", name="with controls")).to_be_checked()
    open_tab(page, "Where the answer stands")
    expect(page.locator("#standing-status")).to_contain_text("3 slots × 4 methods: 12 prompts to read")
