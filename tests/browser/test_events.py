"""Events between browser and server: the scripts in assets/ neither lose nor invent one."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import OpenPage
from tests.browser.driving import LONG, RUN_MS, pick, set_length, wait_for_model

LATE_END = """
(() => {
  const request = window.fetch;
  window.fetch = async (input, options) => {
    const response = await request(input, options);
    if (!(input.url ?? String(input)).includes("/queue/data?")) return response;
    const late = new TransformStream({
      async transform(chunk, controller) {
        const text = new TextDecoder().decode(chunk);
        const end = text.indexOf('"msg":"close_stream"');
        if (end === -1) return controller.enqueue(chunk);
        const cut = text.lastIndexOf("data:", end);
        controller.enqueue(new TextEncoder().encode(text.slice(0, cut)));
        await new Promise((done) => setTimeout(done, 4000));
        controller.enqueue(new TextEncoder().encode(text.slice(cut)));
      },
    });
    return new Response(response.body.pipeThrough(late), response);
  };
})();
"""
"""A browser that hears 4 s late that the stream ends: as on a busy machine, only more often."""


LATE_NAMES = """
(() => {
  const request = window.fetch;
  window.fetch = async (input, options) => {
    const response = await request(input, options);
    const late = String(input).includes("/queue/join") ? window.lateBy?.shift() : 0;
    await new Promise((done) => setTimeout(done, late ?? 0));
    return response;
  };
})();
"""
"""Script that delays the responses to event requests by `lateBy` milliseconds."""


@pytest.fixture
def own_page(open_page: OpenPage) -> Iterator[Page]:
    with open_page() as page:
        yield page


@pytest.mark.slow
def test_what_a_page_hears_late_it_hears_whole(own_page: Page) -> None:
    page = own_page
    page.add_init_script(LATE_NAMES)
    page.reload()
    wait_for_model(page)
    # Of two events the second is answered before its name is known; a stream is opened for it nonetheless.
    page.evaluate("window.lateBy = [0, 1500]")
    pick(page, LONG)
    page.wait_for_timeout(2500)
    page.evaluate("window.lateBy = [1500]")
    page.locator("#run").click()
    expect(page.locator("#stop")).to_be_enabled(timeout=20_000)
    page.locator("#stop").click()
    expect(page.locator("#run-status")).to_contain_text("Stopped", timeout=RUN_MS)


@pytest.mark.slow
def test_no_click_is_lost_when_the_stream_of_answers_ends(own_page: Page) -> None:
    page = own_page
    page.add_init_script(LATE_END)
    page.reload()
    wait_for_model(page)
    set_length(page, 8)
    for button, status in (("#run", "#run-status"), ("#shuffle", "#shuffle-status")):
        page.locator(button).click()
        expect(page.locator(status)).to_contain_text("Done:", timeout=RUN_MS)
        page.wait_for_timeout(250)  # the stream has ended, and the browser does not know it yet


COPIES = """
() => {
  const given = { word: "a", list: [1, { deep: new Map([[1, new Date(0)]]) }] };
  const copy = structuredClone(given);
  const moved = new ArrayBuffer(8);
  structuredClone(moved, { transfer: [moved] });
  const refused = [() => 1, Symbol("s"), { inside: () => 1 }].map((value) => {
    try {
      return structuredClone(value);
    } catch (error) {
      return error.name;
    }
  });
  return {
    plain: [1, "a", true, null, undefined, 2n].every((value) => structuredClone(value) === value),
    alone: copy !== given && copy.list[1] !== given.list[1] && copy.list[1].deep.get(1).getTime() === 0,
    moved: moved.byteLength,
    refused,
  };
}
"""


@pytest.mark.slow
def test_a_copy_is_what_the_browser_makes_of_it(page: Page) -> None:
    ours = page.evaluate(COPIES)
    assert ours == {"plain": True, "alone": True, "moved": 0, "refused": ["DataCloneError"] * 3}
    page.goto("about:blank")
    assert page.evaluate(COPIES) == ours
