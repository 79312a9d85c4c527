"""Tab "Why": three steps by key, a switch in each, and documents that are highlighted."""

from playwright.sync_api import Page, ViewportSize, expect

from tests.browser.driving import RUN_MS, SHORT, cut_off, open_tab, pick, set_length, wait_for_model
from tests.browser.test_first_minute import bottom

LAPTOP: ViewportSize = {"width": 1280, "height": 720}
TITLES = {"Mask": "attention", "Importance": "importance", "Positions": "PINE decodes"}
"""Steps, with words of the title of their figure under PINE."""

PHONE: ViewportSize = {"width": 390, "height": 844}


def test_three_steps_lead_from_the_mask_to_the_words_of_the_last_run(page: Page) -> None:
    page.set_viewport_size(LAPTOP)
    open_tab(page, "Why")
    why = page.locator("#why")
    why.get_by_role("button", name="Step 1").focus()
    for name, title in TITLES.items():
        if name != "Mask":
            page.keyboard.press("ArrowRight")
        step = why.locator(".pine-lesson-step:visible")
        expect(step.get_by_role("heading")).to_have_text(name)
        expect(step.locator(".pine-plot .main-svg").first).to_be_visible()
        assert bottom(page, "#why") <= LAPTOP["height"]
        step.get_by_role("button", name="PINE").press("Enter")
        expect(step.get_by_role("button", name="PINE")).to_have_attribute("aria-pressed", "true")
        expect(step.locator(".pine-figure-title")).to_contain_text(title)
    expect(step.locator(".ytick")).to_have_text(["PINE", "Vanilla"])
    words = why.locator(".page-word[data-document=B]")  # PINE's; vanilla names the year of A
    expect(words.first).to_contain_text("1913")
    expect(why.locator(".page-word[data-document=A]").first).to_contain_text("1745")
    why.get_by_role("button", name="Highlight document B").focus()
    expect(words.first).to_have_class("page-word page-marked")
    why.get_by_role("button", name="Highlight document A").focus()
    expect(words.first).to_have_css("opacity", "0.35")
    page.set_viewport_size(PHONE)
    assert cut_off(page) == 0

    wait_for_model(page)
    pick_in_see_it(page)
    open_tab(page, "Why")
    expect(why.locator(".page-why-documents button")).to_have_count(len(SHORT.documents))
    expect(why.locator(".pine-lesson-source")).not_to_contain_text("Precomputed")


def pick_in_see_it(page: Page) -> None:
    """Run the example with two documents."""
    open_tab(page, "See it")
    pick(page, SHORT)
    set_length(page, 8)
    page.locator("#run").click()
    expect(page.locator("#run-status")).to_contain_text("Done:", timeout=RUN_MS)
