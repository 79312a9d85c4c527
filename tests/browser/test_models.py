"""Choosing a model on the page."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.driving import control, cut_off, run, set_length, wait_for_model


@pytest.mark.slow
def test_model_of_a_folder_is_loaded_and_named_in_the_status(page: Page, tiny: Path) -> None:
    wait_for_model(page)
    set_length(page, 8)
    page.locator("#choose-model").click()
    facts = page.locator("#model-facts")
    expect(facts).to_contain_text("135 million")
    control(page, "Model").fill(str(tiny))
    control(page, "Model").press("Enter")
    expect(facts).to_contain_text("700 tokens")
    for name in ("Parameters", "Memory (bfloat16)", "Free memory", "Device"):
        expect(facts).to_contain_text(name)
    page.locator("#load-model").click()
    expect(page.locator("#load-status")).to_contain_text("Model changed to")
    expect(page.locator("#model-status")).to_contain_text("tiny · float32 · cpu · 700 tokens")
    expect(page.locator("#total")).to_contain_text("context: 700")
    run(page)
    expect(page.locator("#run-status")).to_contain_text("(tiny, ")

    control(page, "Model").fill("no/such-model")
    control(page, "Model").press("Enter")
    expect(facts).to_contain_text("the hub cannot be reached")
    page.locator("#load-model").click()
    expect(page.locator("#load-status [role=alert]")).to_contain_text("Current model unchanged.")
    expect(page.locator("#model-status")).to_contain_text("tiny")
    page.set_viewport_size({"width": 320, "height": 700})
    assert cut_off(page) <= 0
    page.locator("#choose-model").click()
    expect(page.locator("#model-picker")).to_be_hidden()


@pytest.mark.slow
def test_methods_that_do_not_fit_are_disabled_with_the_reason(page: Page, hybrid: Path) -> None:
    wait_for_model(page)
    set_length(page, 8)
    page.locator("#choose-model").click()
    control(page, "Model").fill(str(hybrid))
    control(page, "Model").press("Enter")
    expect(page.locator("#model-facts")).to_contain_text("recurrent, state-space or convolution")
    page.locator("#load-model").click()
    expect(page.locator("#model-status")).to_contain_text("no methods that change attention")
    boxes = page.locator("#methods")
    expect(boxes.locator("input[name=pine]")).to_be_disabled()
    expect(boxes.locator("label", has=page.locator("input[name=pine]"))).to_have_attribute(
        "title", re.compile("pine places documents")
    )
    for name in ("vanilla", "reorder_content"):
        expect(boxes.locator(f"input[name={name}]")).to_be_checked()
    run(page)
    expect(page.locator("#run-status")).to_contain_text("(hybrid, ")
    expect(boxes.locator("input[name=pine]")).to_be_disabled()

    control(page, "Model").fill("SmolLM2-135M-Instruct")
    control(page, "Model").press("Enter")
    page.locator("#load-model").click()
    expect(boxes.locator("input[name=pine]")).to_be_checked()
    expect(boxes.locator("input[name=pine]")).to_be_enabled()
