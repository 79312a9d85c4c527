"""Measure in Chromium how fast the page responds, and its size: `python -m tools.latency_test`.

The last row is a run, from the click to its last word, beside one answer of the stock model.
"""

import re
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import httpx
from playwright.sync_api import Browser, Page

from pine_engine.benchmark.throughput import time_stock
from pine_engine.engine.engine import Engine
from tests.browser.driving import DEFAULT, LONG, SHORT, pick, set_length, wait_for_model
from tests.support.chromium import chromium_path, started_chromium
from tests.support.serving import ServedApp, started_app
from tools.record import example_form
from viz.page.form.examples import FormExample
from viz.page.form.form import form_request

TIMES = 7
"""How often each step is done; the median and the slowest are told."""

ANSWERS_WITHIN_S = 0.3
READY_WITHIN_S = 2.0
MAX_ANSWER_TOKENS = 48
"""Tokens of an answer of the run."""

RUNS = 3

PAUSE_S = 0.25
"""After which typing is over, see assets/typing.js."""

TEXTS = "[...document.querySelectorAll('#documents .page-card textarea')].filter((one) => one.offsetParent)"
"""The fields with the texts of the documents."""

CLOCK = """
window.pace = { began: 0 };
for (const kind of ["pointerdown", "keydown"])
  addEventListener(kind, (event) => { window.pace.began = event.timeStamp; }, true);
"""

WATCH = """
(holds) => {
  const holdsNow = new Function(`return ${holds}`);
  window.pace.done = new Promise((done) => {
    const look = () => {
      if (holdsNow()) done(performance.now() - window.pace.began);
      else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  });
}
"""
"""Looks at every frame, from now on, whether something holds; `pace.done` is then the milliseconds since the
last press of a key or a button.
"""


def main() -> None:
    """Serve the page, time each step in Chromium and print a row for each."""
    with tempfile.TemporaryDirectory() as folder, started_app(Path(folder) / "log.txt") as app:
        tell_size(app)
        path = chromium_path()
        assert path, "no Chromium was found; install it or name its path in PINE_CHROMIUM"
        with started_chromium(path) as browser:
            tell(
                "page ready to read, new visitor", [ready(browser, app) for _ in range(TIMES)], READY_WITHIN_S
            )
            with browser.new_context(viewport={"width": 1440, "height": 900}) as context:
                page = context.new_page()
                page.add_init_script(CLOCK)
                page.goto(app.url)
                wait_for_model(page)
                tell("ready again, same browser", [again(page, app) for _ in range(TIMES)], READY_WITHIN_S)
                wait_for_model(page)
                for label, step in STEPS.items():
                    step(page)
                    most = ANSWERS_WITHIN_S + (PAUSE_S if step is count_tokens else 0)
                    tell(label, [step(page) for _ in range(TIMES)], most)
                tell_run(page)


def tell_size(app: ServedApp) -> None:
    """Prints how large the page is as it comes from the server."""
    html = httpx.get(app.url, timeout=30).content
    config = httpx.get(f"{app.url}config", timeout=30).json()
    outputs = sorted((len(event["outputs"]) for event in config["dependencies"]), reverse=True)
    print(f"HTML of the page: {len(html):,} bytes")
    print(f"widgets: {len(config['components'])}; events: {len(outputs)}")
    print(f"outputs of an event: {outputs[0]} at most; of all events together {sum(outputs)}", flush=True)


def tell(label: str, seconds: list[float], most: float) -> None:
    """Prints a row: fastest, median and slowest, and whether the median is within what is asked."""
    fastest, median, slowest = min(seconds), statistics.median(seconds), max(seconds)
    mark = "ok" if median <= most else "SLOW"
    print(
        f"{label:36} {fastest:6.3f} {median:6.3f} {slowest:6.3f} s, within {most:.3g} s: {mark}", flush=True
    )


def tell_run(page: Page) -> None:
    """Prints how long the default example runs, in turns with the stock model, which writes as many tokens as
    the longest of its answers has."""
    engine, form = Engine.load(dtype="float32"), example_form(DEFAULT.name)
    layout = form_request(form).tokenize(engine)
    pick(page, DEFAULT)
    set_length(page, MAX_ANSWER_TOKENS)
    runs, stock, longest = [], [], 0
    for number in range(RUNS + 1):
        took, tokens = run_once(page)
        longest = max(longest, tokens)
        beside = time_stock(engine.model, layout, tokens).end_to_end(tokens)
        if number:  # the first of both wakes what sleeps
            runs.append(took)
            stock.append(beside)
    ratio = statistics.median(run / one for run, one in zip(runs, stock, strict=True))
    tell(f"a run, {longest} tokens at most, {ratio:.2f}x stock", runs, 2 * statistics.median(stock))


def run_once(page: Page) -> tuple[float, int]:
    """Seconds from the click on Run to the last word, and how many tokens the longest answer has."""
    is_done = "document.querySelector('#run-status').innerText.includes('Done:')"
    watch(page, f"!{is_done}")
    page.locator("#run").click()
    seconds(page)
    watch(page, is_done)
    took = seconds(page)
    found = [
        re.search(r"tokens\s+(\d+)", card) for card in page.locator("#answers .pine-card").all_inner_texts()
    ]
    return took, max(int(one[1]) for one in found if one)


def ready(browser: Browser, app: ServedApp) -> float:
    """Seconds from the request to the first answer and the first document in sight."""
    with browser.new_context(viewport={"width": 1440, "height": 900}) as context:
        page = context.new_page()
        page.add_init_script(CLOCK)
        return again(page, app)


def again(page: Page, app: ServedApp) -> float:
    """The same, where the browser may know the page already."""
    page.goto(app.url, wait_until="commit")
    page.wait_for_function("window.pace")
    answer = "document.querySelector('#answers .pine-answer-text')?.offsetParent"
    watch(page, f"{answer} && {TEXTS}[0]?.value === {DEFAULT.documents[0].text!r}")
    return seconds(page)


def watch(page: Page, holds: str) -> None:
    """Looks from now on for what holds."""
    page.evaluate(WATCH, holds)


def seconds(page: Page) -> float:
    """From the last press to what was looked for."""
    milliseconds: float = page.evaluate("window.pace.done")
    return milliseconds / 1000


def move_up(page: Page) -> float:
    """Move the second document up. Return the seconds until its text is first."""
    lower = page.evaluate(f"{TEXTS}[1].value")
    watch(page, f"{TEXTS}[0].value === {lower!r}")
    page.locator(".page-card:visible").nth(1).get_by_role("button", name="Up").click()
    return seconds(page)


def type_letter(page: Page) -> float:
    """Type a letter into the first document. Return the seconds until the field shows it."""
    field = page.locator("#documents .page-card textarea").first
    if not field.evaluate("node => node === document.activeElement"):
        field.click()
    length = len(field.input_value())
    watch(page, f"{TEXTS}[0].value.length > {length}")
    page.keyboard.press("e")
    return seconds(page)


def count_tokens(page: Page) -> float:
    """Type a word into the first document. Return the seconds until the token count changes."""
    before = page.locator("#total").inner_text()
    page.locator("#documents .page-card textarea").first.click()
    page.keyboard.press("End")
    watch(page, f"document.querySelector('#total').innerText !== {before!r}")
    page.keyboard.type(" sea", delay=0)
    return seconds(page)


def add(page: Page) -> float:
    """Add a document. Return the seconds until its field is visible."""
    count = page.evaluate(f"{TEXTS}.length")
    watch(page, f"{TEXTS}.length === {count + 1}")
    page.locator("#add-document").click()
    return seconds(page)


def remove(page: Page) -> float:
    """Remove the last document. Return the seconds until its field is gone."""
    count = page.evaluate(f"{TEXTS}.length")
    watch(page, f"{TEXTS}.length === {count - 1}")
    page.locator(".page-card:visible").last.get_by_role("button", name="Remove").click()
    return seconds(page)


def pick_other(example: FormExample, other: FormExample) -> Callable[[Page], float]:
    """Return a step that selects the one of two examples that is not selected."""

    def step(page: Page) -> float:
        shown = page.get_by_label("Example", exact=True)
        picked = other if shown.input_value() == example.name else example
        shown.click()
        texts = ",".join(document.text for document in picked.documents)
        watch(page, f"{TEXTS}.map((one) => one.value).join() === {texts!r}")
        page.get_by_role("option", name=picked.name, exact=True).click()
        return seconds(page)

    return step


STEPS = {
    "Up": move_up,
    "a letter": type_letter,
    "tokens counted, 0.25 s after typing": count_tokens,
    "Add": add,
    "Remove": remove,
    "an example, short and default": pick_other(SHORT, DEFAULT),
    "an example, long and default": pick_other(LONG, DEFAULT),
}


if __name__ == "__main__":
    main()
