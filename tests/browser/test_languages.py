"""The page in other languages: chosen by address or browser, without English texts, and readable."""

import re

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from tests.browser.conftest import OpenPage, watch
from tests.browser.driving import cut_off, violations
from tests.support.serving import ServedApp
from tools.first_screen import LAPTOP
from viz.page.serving.languages import load_languages

PHONE: ViewportSize = {"width": 390, "height": 844}
OTHERS = sorted(load_languages().keys() - {"en"})

TEXTS = r"""
() => {
  const isShown = (element) =>
    element?.checkVisibility() &&
    !element.closest("script, style, textarea, pre, code, footer, #model-status, .pine-tutorial-picture") &&
    element.closest("[translate]")?.getAttribute("translate") !== "no";
  const texts = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode())
    if (isShown(walker.currentNode.parentElement)) texts.push(walker.currentNode.data);
  for (const element of document.querySelectorAll("[aria-label], [title], [placeholder]"))
    if (isShown(element)) texts.push(element.ariaLabel, element.title, element.placeholder);
  return texts.map((text) => (text ?? "").trim()).filter((text) => /\p{L}{3}/u.test(text));
}
"""
"""Script that returns visible texts and labels of the page, except those that stay in their language."""

NAMES = ["PINE Explorer", "PINE", "Vanilla", "NIA", "PCW", "Castle (3 documents)", "token"]


def texts_of_views(page: Page) -> set[str]:
    """Return the texts of the first screen, the menu, the steps of Why and the tutorial, and the slides."""
    page.set_viewport_size(LAPTOP)
    expect(page.locator("#order-table tbody tr:visible")).to_have_count(3)
    found = set(page.evaluate(TEXTS))
    page.locator("[popovertarget=share-menu]").click()
    found |= set(page.evaluate(TEXTS))
    page.keyboard.press("Escape")
    for tab, part in ((1, "#why .page-why"), (3, "#tutorial .pine-tutorial")):
        page.locator("#tabs > .tab-wrapper").get_by_role("tab").nth(tab).click()
        expect(page.locator(f"{part} [data-step]").first).to_be_visible()
        for step in page.locator(f"{part} [data-step]").all():
            step.click()
            found |= set(page.evaluate(TEXTS))
    page.locator(".page-header-button[data-projector]").click()
    expect(page.locator(".page-guess")).to_be_visible()
    found |= set(page.evaluate(TEXTS))
    page.keyboard.press(" ")
    expect(page.locator(".page-guess output")).not_to_be_empty()
    found |= set(page.evaluate(TEXTS))
    page.keyboard.press("Escape")
    return found


@pytest.fixture(scope="module")
def english(browser: Browser, app: ServedApp) -> set[str]:
    with browser.new_page(reduced_motion="reduce") as page:
        page.add_init_script("try { localStorage.setItem('pine-explorer-guess', '1') } catch {}")
        page.goto(app.url)
        return texts_of_views(page)


@pytest.mark.parametrize("language", OTHERS)
def test_views_have_no_english_text(
    open_page: OpenPage, app: ServedApp, english: set[str], language: str
) -> None:
    pairs = [pair for part in load_languages()[language].values() for pair in part.items()]
    equal = [re.sub(r"\\\{\w\\\}", r"\\d+", re.escape(english)) for english, text in pairs if english == text]
    names = re.compile("|".join([*equal, *map(re.escape, NAMES)]))
    with open_page(f"{app.url}?lang={language}") as page:
        expect(page.locator("html")).to_have_attribute("lang", language)
        page.keyboard.press("Shift")
        expect(page.locator("#share-menu")).not_to_contain_text("Copy link")  # texts behind the first screen
        found = texts_of_views(page)
    untranslated = sorted(text for text in found & english if not names.fullmatch(text))
    assert not untranslated, untranslated


@pytest.mark.parametrize(
    ("locale", "address", "language", "label"),
    [("de-AT", "", "de", "6 Reihenfolgen"), ("es-MX", "", "es", "6 órdenes"),
     ("de-AT", "?lang=en", "en", "6 orders"), ("fr-FR", "", "en", "6 orders")],
)  # fmt: skip
def test_address_or_browser_selects_the_language(
    browser: Browser, app: ServedApp, locale: str, address: str, language: str, label: str
) -> None:
    with browser.new_page(locale=locale) as page:
        problems = watch(page, app.url)
        page.goto(app.url + address)
        expect(page.locator("html")).to_have_attribute("lang", language)
        expect(page.locator("#start-all")).to_contain_text(label)
        assert problems == []


@pytest.mark.parametrize("screen", [LAPTOP, PHONE], ids=["laptop", "phone"])
@pytest.mark.parametrize("language", OTHERS)
def test_page_in_another_language_is_not_cut_off(
    open_page: OpenPage, app: ServedApp, language: str, screen: ViewportSize
) -> None:
    with open_page(f"{app.url}?lang={language}") as page:
        page.set_viewport_size(screen)
        expect(page.locator("#order-table tbody tr:visible")).to_have_count(3)
        assert cut_off(page) == 0
        assert violations(page, ".gradio-container") == []


def test_figures_and_lists_of_the_lab_are_translated(open_page: OpenPage, app: ServedApp) -> None:
    with open_page(f"{app.url}?lang=de") as page:
        expect(page.locator("#example input")).to_have_value("Schloss (3 Dokumente)")
        page.get_by_role("tab", name="Labor", exact=True).click()
        masks = page.locator("#figure-token-masks")
        expect(masks.locator(".pine-figure-title")).to_have_text("Attention-Masken pro Token")
        expect(masks.locator(".xtick text")).to_have_text(["Präfix", "A", "B", "C", "Frage"])
        page.get_by_role("tab", name="Wichtigkeit der Dokumente", exact=True).click()
        answers = page.locator("#figure-answer-importance .pine-plot")
        expect(answers.locator(".ytitle")).to_have_text("Antwort-Token")
        expect(answers.locator(".ytick text").first).to_have_text("1: The")
        layer = page.locator("#layer input")
        layer.click()
        page.get_by_role("option", name="Schicht 3", exact=True).click()
        expect(layer).to_have_value("Schicht 3")
        expect(page.locator("#figure-importance .pine-figure-title")).to_contain_text("Schicht 3")
        answers.press("ArrowDown")
        status = page.locator("#figure-answer-importance [role=status]")
        expect(status).to_contain_text("Dokument A, Anteil an der Wichtigkeit")


def test_texts_of_visitors_are_not_translated(open_page: OpenPage, app: ServedApp) -> None:
    with open_page(f"{app.url}?lang=de") as page:
        field = page.locator("#documents .page-text").first
        field.click()
        field.fill("Undo")
        page.locator("#question textarea").fill("Stop")
        expect(page.locator(".page-stale")).to_contain_text("Die Ergebnisse sind veraltet.")
        expect(page.locator(".page-stale bdi")).to_have_text("When was the castle built?")
        expect(field).to_have_value("Undo")
