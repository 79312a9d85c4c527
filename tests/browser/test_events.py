"""Every click is answered, also one made in the moment in which gradio ends its stream of answers."""

import pytest
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.embedded]

NUM_CLICKS = 4

LATE_END = """
(() => {
  const request = window.fetch;
  window.fetch = async (input, options) => {
    const response = await request(input, options);
    if (!(input.url ?? String(input)).includes("/queue/data?")) return response;
    const late = new TransformStream({
      async transform(chunk, controller) {
        if (new TextDecoder().decode(chunk).includes('"msg":"close_stream"'))
          await new Promise((done) => setTimeout(done, 600));
        controller.enqueue(chunk);
      },
    });
    return new Response(response.body.pipeThrough(late), response);
  };
})();
"""
"""A browser that hears 600 ms late that the stream ends: as on a busy machine, only more often."""


def test_no_click_is_lost_when_the_stream_of_answers_ends(page: Page) -> None:
    page.add_init_script(LATE_END)
    page.reload()
    add = page.get_by_role("button", name="Add a document")
    expect(add).to_be_visible()
    cards = page.locator(".page-card:visible")
    before = cards.count()
    for clicks in range(1, NUM_CLICKS + 1):
        add.click()
        expect(cards).to_have_count(before + clicks, timeout=20_000)
        page.wait_for_timeout(250)  # the stream has ended, and the browser does not know it yet
