"""Every click is answered, also one made in the moment in which gradio ends its stream of answers."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.driving import wait_for_model

pytestmark = pytest.mark.embedded

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


def test_no_click_is_lost_when_the_stream_of_answers_ends(page: Page) -> None:
    page.add_init_script(LATE_END)
    page.reload()
    wait_for_model(page)
    page.get_by_label("Question", exact=True).fill("")
    for button, status in (("#run", "#run-status"), ("#shuffle", "#shuffle-status")):
        page.locator(button).click()
        expect(page.locator(status)).to_contain_text("There is no question", timeout=20_000)
        page.wait_for_timeout(250)  # the stream has ended, and the browser does not know it yet
