"""The documents in every order, and one of them in every slot, in a browser."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.driving import DEFAULT, LONG, SHORT, numbers, open_tab, pick, save, unfold, wait_for_model

DOCUMENTS = len(SHORT.documents)


def test_a_shuffle_adds_a_row_per_order_and_pine_keeps_its_letter(drawn: Page) -> None:
    unfold(drawn, "#shuffle-section")
    expect(drawn.locator("#shuffle-matrix .ytick")).to_have_text(["A B", "B A"])
    first, second = numbers(drawn, "shuffle-matrix")
    heads = drawn.locator("#shuffle-matrix thead th").all_inner_texts()
    for method in ("PCW", "PINE"):
        column = next(place for place, head in enumerate(heads) if head.startswith(method))
        assert first[column] == second[column] != "–"


def test_a_click_shows_the_answer_and_keys_do_the_same_and_the_focus_stays(drawn: Page) -> None:
    unfold(drawn, "#shuffle-section")
    plot = drawn.locator("#shuffle-matrix .pine-plot")
    plot.scroll_into_view_if_needed()
    box = plot.locator(".heatmaplayer image").bounding_box()
    assert box is not None
    drawn.mouse.move(box["x"] + 5, box["y"] + box["height"] - 5)
    expect(plot.locator(".hovertext")).to_be_visible()
    drawn.mouse.down()
    drawn.mouse.up()
    answer = drawn.locator("#shuffle-answer h4")
    expect(answer).to_contain_text("Vanilla")
    clicked = answer.inner_text()
    plot.focus()
    drawn.keyboard.press("Escape")
    expect(answer).to_have_count(0)
    for key in ("Home", "PageUp", "ArrowDown"):
        drawn.keyboard.press(key)
    expect(drawn.locator("#shuffle-matrix [role=status]")).to_contain_text("Vanilla")
    drawn.keyboard.press("Enter")
    expect(answer).to_have_text(clicked)
    expect(plot).to_be_focused()
    drawn.keyboard.press("Escape")


@pytest.mark.slow
def test_a_shuffle_draws_a_dot_for_every_order_of_every_method(drawn: Page) -> None:
    unfold(drawn, "#shuffle-section")
    rows = numbers(drawn, "shuffle-spread")
    assert len(rows) == 4 * 2 and len({row[0] for row in rows}) == 4


def test_a_shuffle_is_certified(drawn: Page, tmp_path: Path) -> None:
    unfold(drawn, "#shuffle-section")
    unfold(drawn, "#certificate-offer")
    path = save(drawn, drawn.locator("#certificate"), tmp_path)
    certificate = json.loads(path.read_text())
    assert certificate["orders"] == [[0, 1], [1, 0]]
    by_method = {result["method"]: result for result in certificate["results"]}
    assert by_method["pine"]["bitwise_identical"] and not by_method["vanilla"]["bitwise_identical"]
    page = save(drawn, drawn.locator("#certificate-page"), tmp_path).read_text()
    assert by_method["pine"]["logits_sha256"] in page


@pytest.mark.slow
def test_play_and_its_slider_have_room_on_a_phone(drawn: Page) -> None:
    drawn.set_viewport_size({"width": 390, "height": 844})
    unfold(drawn, "#shuffle-section")
    played = drawn.locator("#shuffle-played")
    expect(played.locator(".slider-rail-rect")).to_be_visible()
    button, message, rail = (
        played.locator(part).first.bounding_box()
        for part in (".updatemenu-button", ".slider-label", ".slider-rail-rect")
    )
    assert button and message and rail
    assert button["y"] + button["height"] <= message["y"] + 2
    assert rail["width"] > 150


def test_where_the_answer_stands_draws_a_line_for_every_method(drawn: Page) -> None:
    open_tab(drawn, "Position sweep")
    lines = drawn.locator("#standing-lines")
    expect(lines.locator(".legendtext")).to_have_text(["Vanilla", "NIA", "PCW", "PINE"])
    expect(lines.locator(".scatterlayer .point")).to_have_count(4 * DOCUMENTS)
    expect(drawn.locator("#standing-effects .legendtext")).to_have_count(3)
    expect(drawn.locator("#standing-said")).to_contain_text("constant (range 0.0)")
    assert len(numbers(drawn, "standing-lines")) == 4 * DOCUMENTS
    lines.locator(".pine-plot").focus()
    drawn.keyboard.press("ArrowRight")
    expect(lines.locator("[role=status]")).to_contain_text("Vanilla")


@pytest.mark.slow
def test_buttons_and_estimates_state_the_work_before_it(page: Page) -> None:
    wait_for_model(page)
    pick(page, LONG)
    expect(page.locator("#shuffle")).to_have_text("Run 6 orders")
    unfold(page)
    expect(page.locator("#orders")).to_be_visible()
    open_tab(page, "Position sweep")
    expect(page.locator("#standing-status")).to_contain_text(f"{len(LONG.documents)} slots × 4 methods")
    unfold(page)
    pick(page, DEFAULT)
    expect(page.locator("#shuffle")).to_have_text("Run all 6 orders")
    expect(page.locator("#orders")).to_be_hidden()
    open_tab(page, "Position sweep")
    expect(page.locator("#standing-status")).to_contain_text("3 slots × 4 methods.")
