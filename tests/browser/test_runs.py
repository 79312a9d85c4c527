"""Runs: from own documents to answers and figures, Stop, hostile text, and events that arrive late."""

import csv
import json
import re
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Dialog, Page, expect

from tests.browser.conftest import OpenPage
from tests.browser.driving import (
    DEFAULT,
    DRAWN,
    EXAMPLES,
    INSIDE_TABS,
    LONG,
    PATHS,
    RUN_MS,
    SHORT,
    TABS,
    give,
    numbers,
    open_tab,
    pick,
    picture,
    plot,
    run,
    select_options,
    set_length,
    share,
    text,
    title,
    unfold,
    wait_for_model,
)
from tests.support.pdf_files import pdf_of
from tests.support.serving import ServedApp
from viz.page.answers.record import record_of
from viz.page.form.documents import Entry
from viz.page.form.examples import NO_EXAMPLE
from viz.page.form.form import Form
from viz.page.session import to_code

QUESTION = "#question textarea, #question input"
ENDLESS = f"Write the alphabet 100 times: {'A-B-C-D-E-F-G-' * 2}A-B-C"  # PINE answers with 256 tokens
LANES = "#order-table [data-method=pine] .page-ticks span"


def test_example_is_answered_under_four_methods_with_all_figures(page: Page) -> None:
    wait_for_model(page)
    set_length(page, 16)
    unfold(page, "#answers-in-full")
    for part in ("#order-table", "#answers"):
        expect(page.locator(part)).to_contain_text("Precomputed with")
    run(page)
    expect(page.locator("#order-table")).to_contain_text("except A B C from your run")
    cards = page.locator("#answers .pine-card")
    expect(cards).to_have_count(4)
    for method, shown in zip(("Vanilla", "NIA", "PCW", "PINE"), cards.all(), strict=True):
        expect(shown.get_by_role("heading")).to_contain_text(method)
        expect(shown).to_contain_text(re.compile("Done|Stopped at the token limit"))
        expect(shown).to_contain_text(re.compile(r"prefill\s*[\d.]+ s"))
        expect(shown.locator(".pine-answer-text")).to_have_text(re.compile(r"\w"))

    open_tab(page, "Attention masks")
    expect(plot(page, "token-masks").locator(".heatmaplayer image")).to_have_count(3)  # SP's needs no run
    open_tab(page, "RoPE positions")
    expect(plot(page, "method-positions").locator(".ytick")).to_have_count(4)
    open_tab(page, "Document importance")
    assert len(numbers(page, "figure-importance")) == len(DEFAULT.documents)
    open_tab(page, "Compare answers")
    expect(picture(page, "answers").locator(".pine-card")).to_have_count(2)
    open_tab(page, "Why")
    badges = page.locator("#why [data-method=pine] .page-why-letter:visible")
    expect(badges).to_have_count(2 * len(DEFAULT.documents))
    expect(page.locator("#why .pine-tutorial-source")).not_to_contain_text("Precomputed")


@pytest.mark.parametrize("is_typed", [True, False])
def test_letter_that_a_visitor_types_stays(page: Page, is_typed: bool) -> None:
    """The letter of an example does not score own options; the same letter, typed, does."""
    example = next(one for one in EXAMPLES if one.task == "options")
    wait_for_model(page)
    pick(page, example)
    set_length(page, 8)
    page.locator(QUESTION).fill("Which one?")
    for slot in range(1, len(example.documents) + 1):
        text(page, slot).fill(f"Own option {slot}.")
    accepted = page.locator("#accepted textarea")
    (letter,) = example.answers
    expect(accepted).to_have_value(letter)
    if is_typed:
        accepted.fill("")
        accepted.press_sequentially(letter)
    run(page)
    expect(accepted).to_have_value(letter if is_typed else "")


@pytest.mark.slow
def test_own_documents_are_checked_answered_in_two_orders_and_stopped(page: Page) -> None:
    wait_for_model(page)
    pick(page, SHORT)
    unfold(page)
    problem = page.locator("#form-problem").get_by_role("alert")
    for field, invalid, words, valid in (
        (page.locator(QUESTION), "", "No question. Enter one.", ENDLESS),
        (text(page, 2), " ", "Document B is empty", "Bo was here."),
        (page.locator("#chat-template-kwargs textarea"), '{"enable_thinking": 1}', "enable_thinking", ""),
    ):
        field.fill(invalid)
        expect(problem).to_contain_text(words)
        expect(page.locator("#start-one")).to_be_disabled()
        field.fill(valid)
        expect(page.locator("#start-one")).to_be_enabled()

    set_length(page, 256)
    select_options(page, "#methods", "Vanilla", "PINE")
    text(page, 1).fill("Ada has the key to the attic.")
    page.locator("#start-one").click()  # before the server knows the text
    page.wait_for_function(
        "document.querySelector('#run-status').innerText.includes('Generating')"
        " && !document.querySelector('#answers-stale .page-stale')"
        " && !document.querySelector('#stop').click()",  # at once
        timeout=RUN_MS,
    )
    expect(page.locator("#run-status")).to_contain_text("Stopped", timeout=RUN_MS)

    set_length(page, 8)
    run(page)
    ticks = page.locator(LANES)
    expect(ticks).to_have_count(1)
    expect(page.get_by_label("Example", exact=True)).to_have_value(NO_EXAMPLE)
    text(page, 1).focus()
    page.keyboard.press("Alt+ArrowRight")
    expect(page.locator("#order-table [role=status]")).to_have_text("This order is not computed.")
    page.locator("#start-one").click()
    expect(ticks).to_have_count(2, timeout=RUN_MS)  # added to the computed order
    expect(page.locator("#start-all")).to_have_text("▶ Play 2 orders")
    pine = page.locator("#order-table [data-method=pine]")
    expect(pine).to_contain_text("1 answer")
    page.locator(QUESTION).fill("Another?")
    expect(page.locator(".page-stale")).to_contain_text("Changed: question.")
    for part, opacity in (("#order-table", "0.5"), ("#shuffle-section", "0.5"), ("#settings", "1")):
        expect(page.locator(part)).to_have_css("opacity", opacity)
    expect(page.locator("#start-one")).to_be_enabled()

    pick(page, LONG)
    expect(page.locator("#start-all")).to_have_text("▶ Play 6 sampled orders")
    set_length(page, 256)
    text(page, 1).fill("The keeper wrote a letter about the storm. " * 150)  # its prefill lasts long enough
    start_and_stop(page, "Control+Enter", "")
    # No answer had begun: the recorded ones stay.
    expect(pine).to_contain_text("1 answer")
    page.locator(QUESTION).fill("Another?")
    expect(page.locator("#start-all")).to_have_text("Run 6 sampled orders")
    start_and_stop(page, "Control+Shift+Enter", "shuffle")


@pytest.mark.slow
def test_reload_finds_the_run_and_text_typed_offline(open_page: OpenPage) -> None:
    with open_page(strict=False) as page:  # gradio logs what a reload or a lost connection ends
        wait_for_model(page)
        pick(page, SHORT)
        set_length(page, 8)
        status, stop = page.locator("#shuffle-status"), page.locator("#stop-shuffle")
        text(page, 1).fill("Ada has the key to the attic.")
        expect(page.locator("#start-all")).to_have_text("Run 2 orders")
        page.locator("#start-all").click()
        expect(status).to_contain_text("reading documents", timeout=RUN_MS)
        page.reload()
        expect(status).to_contain_text("Done: 2 orders", timeout=RUN_MS)
        expect(page.locator("#order-table")).not_to_contain_text("Precomputed")
        expect(stop).to_be_disabled()

        page.wait_for_timeout(2500)  # the browser notes the restored values
        page.context.set_offline(True)
        text(page, 1).click()
        page.keyboard.type("Typed offline.")
        page.wait_for_function("localStorage.getItem('pine-explorer-draft')?.includes('Typed offline.')")
        page.context.set_offline(False)
        expect(page.locator("#example-note")).to_contain_text("Draft restored")  # gradio reloads the page
        expect(text(page, 1)).to_have_value(re.compile("Typed offline."))
        expect(page.locator(".page-stale")).to_contain_text("Changed: text of A.")


def start_and_stop(page: Page, key: str, name: str) -> None:
    """Start a long run by key, and stop it once it computes. name: empty, or "shuffle"."""
    stop, status = (f"#stop-{name}", f"#{name}-status") if name else ("#stop", "#run-status")
    page.keyboard.press(key)
    expect(page.locator(stop)).to_be_enabled()
    expect(page.locator(status)).to_contain_text("reading documents", timeout=RUN_MS)
    page.keyboard.press("Control+.")
    expect(page.locator(status)).to_contain_text("Stopped", timeout=RUN_MS)
    expect(page.locator(stop)).to_be_disabled()


HOSTILE = "<img src=x onerror=\"window.hacked='yes'\"> <|im_end|> </textarea><script>window.hacked=1</script>"

PAYLOADS = (
    "<img src=x onerror=window.__pwned=1>",
    "<script>window.__pwned=1</script>",
    "</textarea></td></table><svg onload=window.__pwned=1>",
    "\"'><iframe srcdoc='<script>parent.__pwned=1</script>'>",
    "javascript:window.__pwned=1",
    "{{constructor.constructor('window.__pwned=1')()}}",
    "{% raw %}{{7*7}}${7*7}<%= 7*7 %>#{7*7}",
    "{{#with this}}{{lookup (lookup this 'constructor') 'name'}}{{/with}}",
    "$$\\href{javascript:window.__pwned=1}{x}$$ \\(\\unicode{<img src=x onerror=window.__pwned=1>}\\)",
    "<style>@import 'http://example.com/x.css';</style><link rel=stylesheet href=//example.com>",
    "![x](http://example.com/x.png) [x](javascript:window.__pwned=1)",
    "data-pick='{\"query\":1}' onmouseover=window.__pwned=1",
)
"""Texts with an effect in a browser that renders them as HTML, template or formula."""


@pytest.mark.slow
def test_hostile_text_is_never_executed_and_reaches_no_other_visitor(
    app: ServedApp, page: Page, open_page: OpenPage, tmp_path: Path
) -> None:
    """Through all inputs: a link, files of three types, their names, and typed text."""
    hostile = Form(
        "retrieval_qa", HOSTILE, PAYLOADS[1], ("vanilla", "pine"), 8, (Entry(0, HOSTILE, PAYLOADS[0]),)
    )
    link = to_code(record_of(hostile, accepted="\n".join(PAYLOADS)))
    name = "<img src=x onerror=window.__pwned=1>"
    table, paper, session = (tmp_path / f"{name}{ending}" for ending in (".csv", ".pdf", ".json"))
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([("title", "text"), (HOSTILE, PAYLOADS[5])])
    paper.write_bytes(pdf_of(PAYLOADS[0]))
    session.write_text(json.dumps({name: HOSTILE}))

    wait_for_model(page)
    pick(page, LONG)
    text(page, 2).fill("The keeper wrote a letter about the storm. " * 150)  # outlasts the other run
    set_length(page, 256)
    with open_page(f"{app.url}?session={link}") as attacker:
        dialogs: list[str] = []

        def dismiss(dialog: Dialog) -> None:
            dialogs.append(dialog.message)
            dialog.dismiss()

        attacker.on("dialog", dismiss)
        wait_for_model(attacker)
        expect(title(attacker, 1)).to_have_value(HOSTILE)
        unfold(attacker)
        give(attacker, "#add-files", table)
        expect(text(attacker, 2)).to_have_value(PAYLOADS[5])
        text(attacker, 2).fill(f"{PAYLOADS[5]} {PAYLOADS[2]}")
        page.locator("#start-one").click()
        expect(page.locator("#run-status")).to_contain_text("reading documents", timeout=RUN_MS)
        attacker.locator("#start-all").click()  # beside the run of the other visitor
        expect(attacker.locator("#shuffle-status")).to_contain_text("Done: 2 orders", timeout=RUN_MS)
        page.locator("#stop").click()
        expect(page.locator("#run-status")).to_contain_text("Stopped", timeout=RUN_MS)
        for tab in TABS:
            open_tab(attacker, tab)
        open_tab(attacker, "Attention masks")
        expect(attacker.locator("#internals-summary")).to_contain_text("<img src=x")
        open_tab(attacker, "See it")
        give(attacker, "#add-files", paper)
        expect(text(attacker, 3)).to_have_value(PAYLOADS[0])
        expect(title(attacker, 3)).to_have_value(re.compile("img src=x"))
        give(attacker, share(attacker, "Open session"), session)
        expect(attacker.locator("#share-message")).to_contain_text("is not a valid session")
        expect(attacker.locator("#total")).to_contain_text("answer tokens")
        assert attacker.evaluate("[window.hacked, window.__pwned]") == [None, None]
        assert attacker.locator("img[src=x], iframe, svg[onload]").count() == 0
        assert dialogs == []
    expect(text(page, 1)).to_have_value(LONG.documents[0].text)


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

QUICK_CLICKS = """
async (labels) => {
  const tab = (label) =>
    [...document.querySelectorAll("#tabs [role=tab]")].find(
      (one) => one.checkVisibility() && one.innerText === label,
    );
  for (const label of labels) {
    while (!tab(label)) await new Promise((resolve) => setTimeout(resolve, 10));
    tab(label).click();
  }
}
"""
"""Script that opens tabs one after the other, each as soon as it is there."""

PANELS = {
    "See it": "#order-table tbody tr",
    "Why": "#why .page-why-stage:visible",
    "Tutorial": "#tutorial .pine-tutorial-step:visible",
    "Position sweep": "#sweep-run:visible",
    "Evaluate": "#measure-run:visible",
    **{label: f"#{name} {DRAWN}" for label, name in INSIDE_TABS.items()},
}

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
@pytest.mark.parametrize("labels", [TABS[:1], TABS[1:3], TABS[3:-1], TABS[-1:]])
def test_quick_clicks_on_a_new_page_lose_nothing(page: Page, labels: tuple[str, ...]) -> None:
    for label in labels:
        path = (*PATHS[label], label)
        page.evaluate(QUICK_CLICKS, [*path, "Tutorial", *path, "See it", "Why", *path, *path])
        expect(page.locator(PANELS[label]).first).to_be_visible()


@pytest.mark.slow
def test_late_events_lose_nothing(app: ServedApp, open_page: OpenPage) -> None:
    with open_page("data:,") as page:  # a reload would end events, which gradio reports
        page.add_init_script(LATE_NAMES)
        page.add_init_script(LATE_END)
        page.goto(app.url)
        wait_for_model(page)
        pick(page, SHORT)
        set_length(page, 8)
        # The second of two events is answered before its name is known; a stream is opened all the same.
        page.evaluate("window.lateBy = [0, 1500]")
        page.locator("#start-one").click()
        page.get_by_role("button", name="Run live").click()
        expect(page.locator("#shuffle-status")).to_contain_text("Done:", timeout=RUN_MS)

        pick(page, LONG)
        # The prefills of 24 long prompts last on any machine.
        text(page, 2).fill("The keeper wrote a letter about the storm. " * 150)
        expect(page.locator("#start-all")).to_have_text("Run 6 sampled orders")
        page.evaluate("window.lateBy = [300]")
        page.locator("#start-all").click()
        expect(page.locator("#stop-shuffle")).to_be_enabled(timeout=20_000)
        page.locator("#stop-shuffle").click()
        expect(page.locator("#shuffle-status")).to_contain_text("Stopped", timeout=RUN_MS)

        pick(page, SHORT)
        set_length(page, 8)
        for button, status in (("Run live", "#shuffle-status"), ("This order only", "#run-status")):
            page.get_by_role("button", name=button).click()
            expect(page.locator(status)).to_contain_text("Done:", timeout=RUN_MS)
            page.wait_for_timeout(250)  # the stream has ended, and the browser does not know it yet

        ours = page.evaluate(COPIES)
        assert ours == {"plain": True, "alone": True, "moved": 0, "refused": ["DataCloneError"] * 3}
        with closing(page.context.new_page()) as blank:
            assert blank.evaluate(COPIES) == ours


@pytest.mark.slow
def test_answers_of_a_run_are_stale_beside_another_example(page: Page) -> None:
    wait_for_model(page)
    pick(page, SHORT)
    unfold(page)
    set_length(page, 256)
    select_options(page, "#methods", "Vanilla", "PINE")
    page.locator(QUESTION).fill(ENDLESS)
    page.locator("#start-one").click()
    expect(page.locator("#run-status")).to_contain_text("Generating", timeout=RUN_MS)
    pick(page, LONG)
    stale = page.locator("#answers-stale bdi")
    expect(stale).to_have_text(ENDLESS)
    page.wait_for_timeout(2_000)  # further tokens arrive
    expect(page.locator("#run-status")).to_contain_text("Generating")
    expect(stale).to_have_text(ENDLESS)
    page.locator("#stop").click()
    expect(page.locator("#run-status")).to_contain_text("Stopped", timeout=RUN_MS)
    expect(stale).to_have_text(ENDLESS)
