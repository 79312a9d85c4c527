"""The eye of a document: the answers without the document, below those with all documents."""

from playwright.sync_api import Page, expect

from viz.page.answers.recordings import recorded_answers
from viz.page.form.examples import load_examples

RECORD = recorded_answers()[load_examples()[0].name]
WITHOUT_B = {one.method: one.texts_without[0][1] for one in RECORD.answers}


def without(page: Page, method: str) -> str:
    return page.locator(f"#order-table [data-method={method}] .page-without").inner_text()


def test_eye_shows_recorded_answers_until_undo(page: Page) -> None:
    eyes = page.get_by_role("button", name="Without document B")
    eyes.click()
    expect(eyes).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#order-table [role=status]")).to_contain_text("without B")
    for method in RECORD.methods:
        assert without(page, method) == f"without B: {WITHOUT_B[method]}"
    expect(page.locator("#without-status")).not_to_contain_text("Done")  # nothing ran
    other = page.get_by_role("button", name="Without document A")
    other.press("Enter")
    expect(eyes).to_have_attribute("aria-pressed", "false")
    assert without(page, "vanilla").startswith("without A: ")
    page.locator("#undo-documents").click()
    expect(eyes).to_have_attribute("aria-pressed", "true")
    eyes.click()
    expect(page.locator(".page-without:visible")).to_have_count(0)
