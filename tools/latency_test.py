"""Measure response times and size of the page in Chromium: `python -m tools.latency_test`.

The last row is a run, from the click to its last update, compared with one answer of the stock model.
"""

import re
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx
from playwright.sync_api import Browser, Page

from pine_engine.benchmark.throughput import time_stock
from pine_engine.engine.engine import Engine
from tests.browser.driving import DEFAULT, LONG, SHORT, pick, set_length, unfold, wait_for_model
from tests.support.chromium import chromium_path, started_chromium
from tests.support.serving import ServedApp, started_app
from tools.record import example_form
from viz.page.form.examples import FormExample
from viz.page.form.form import form_request

NUM_REPEATS = 7
NUM_RUNS = 3
MAX_RESPONSE_S = 0.3
MAX_LOAD_S = 2.0
MAX_NEW_TOKENS = 48
PAUSE_S = 0.25
"""Pause after typing before tokens are counted, see assets/typing.js."""

TEXTS = "[...document.querySelectorAll('#documents .page-card textarea')].filter((one) => one.offsetParent)"
"""Visible fields with the texts of the documents."""

CLOCK = """
window.latency = { began: 0 };
for (const kind of ["pointerdown", "keydown"])
  addEventListener(kind, (event) => { window.latency.began = event.timeStamp; }, true);
"""

WATCH = """
(condition) => {
  const holds = new Function(`return ${condition}`);
  window.latency.done = new Promise((done) => {
    const look = () => {
      if (holds()) done(performance.now() - window.latency.began);
      else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  });
}
"""
"""Check a condition at every frame; `latency.done` resolves to the milliseconds since the last press."""


def main() -> None:
    """Serve the page, time each step in Chromium and print a row for each."""
    with tempfile.TemporaryDirectory() as folder, started_app(Path(folder) / "log.txt") as app:
        print_size(app)
        path = chromium_path()
        assert path, "no Chromium was found; install it or name its path in PINE_CHROMIUM"
        with started_chromium(path) as browser:
            print_row("page load, new browser", repeat(lambda: load_in_new_context(browser, app)), MAX_LOAD_S)
            with browser.new_context(viewport={"width": 1440, "height": 900}) as context:
                page = context.new_page()
                page.add_init_script(CLOCK)
                page.goto(app.url)
                wait_for_model(page)
                print_row("page load, same browser", repeat(lambda: load(page, app)), MAX_LOAD_S)
                wait_for_model(page)
                unfold(page)
                for label, step in STEPS.items():
                    step(page)
                    max_s = MAX_RESPONSE_S + (PAUSE_S if step is count_tokens else 0)
                    print_row(label, repeat(partial(step, page)), max_s)
                measure_run(page)


def repeat(step: Callable[[], float]) -> list[float]:
    """Return the seconds of each repetition of a step."""
    return [step() for _ in range(NUM_REPEATS)]


def print_size(app: ServedApp) -> None:
    """Print the size of the page as served."""
    html = httpx.get(app.url, timeout=30).content
    config = httpx.get(f"{app.url}config", timeout=30).json()
    outputs = sorted((len(event["outputs"]) for event in config["dependencies"]), reverse=True)
    print(f"HTML of the page: {len(html):,} bytes")
    print(f"widgets: {len(config['components'])}; events: {len(outputs)}")
    print(f"outputs: at most {outputs[0]} per event, {sum(outputs)} of all events", flush=True)


def print_row(label: str, seconds: list[float], max_s: float) -> None:
    """Print the minimum, median and maximum, and the comparison of the median with its limit."""
    low, median, high = min(seconds), statistics.median(seconds), max(seconds)
    mark = "ok" if median <= max_s else "SLOW"
    print(f"{label:36} {low:6.3f} {median:6.3f} {high:6.3f} s, limit {max_s:.3g} s: {mark}", flush=True)


def measure_run(page: Page) -> None:
    """Measure runs of the default example in turns with the stock model, and print a row.

    The stock model generates as many tokens as the longest answer of the run has.
    """
    engine, form = Engine.load(dtype="float32"), example_form(DEFAULT.name)
    layout = form_request(form).tokenize(engine)
    pick(page, DEFAULT)
    set_length(page, MAX_NEW_TOKENS)
    unfold(page, "#answers-in-full")
    runs, stock, longest = [], [], 0
    for number in range(NUM_RUNS + 1):
        run_s, tokens = run_once(page)
        longest = max(longest, tokens)
        stock_s = time_stock(engine.model, layout, tokens).end_to_end(tokens)
        if number:  # the first pair is a warm-up
            runs.append(run_s)
            stock.append(stock_s)
    ratio = statistics.median(run / one for run, one in zip(runs, stock, strict=True))
    print_row(f"run, max. {longest} tokens, {ratio:.2f}x stock", runs, 2 * statistics.median(stock))


def run_once(page: Page) -> tuple[float, int]:
    """Return the seconds from the click on Run to the last update, and the tokens of the longest answer."""
    is_done = "document.querySelector('#run-status').innerText.includes('Done:')"
    watch(page, f"!{is_done}")
    page.locator("#run").click()
    seconds(page)
    watch(page, is_done)
    run_s = seconds(page)
    cards = page.locator("#answers .pine-card").all_text_contents()
    matches = [re.search(r"tokens\s*(\d+)", card) for card in cards]
    return run_s, max(int(match[1]) for match in matches if match)


def load_in_new_context(browser: Browser, app: ServedApp) -> float:
    """Load the page with an empty cache. Return the seconds until answer and document are visible."""
    with browser.new_context(viewport={"width": 1440, "height": 900}) as context:
        page = context.new_page()
        page.add_init_script(CLOCK)
        return load(page, app)


def load(page: Page, app: ServedApp) -> float:
    """Load the page. Return the seconds from the request until answer and document are visible."""
    page.goto(app.url, wait_until="commit")
    page.wait_for_function("window.latency")
    answer = "document.querySelector('#order-table .page-order-answer')"
    watch(page, f"{answer}?.offsetParent && {answer}.innerText && {TEXTS}[0]?.value")
    return seconds(page)


def watch(page: Page, condition: str) -> None:
    """Start to check a condition at every frame."""
    page.evaluate(WATCH, condition)


def seconds(page: Page) -> float:
    """Return the seconds from the last press until the condition holds."""
    milliseconds: float = page.evaluate("window.latency.done")
    return milliseconds / 1000


def move_up(page: Page) -> float:
    """Move the second document up. Return the seconds until its text is first."""
    lower = page.evaluate(f"{TEXTS}[1].value")
    watch(page, f"{TEXTS}[0].value === {lower!r}")
    page.locator(".page-card:visible").nth(1).get_by_role("button", name="Earlier").click()
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


def select_other(example: FormExample, other: FormExample) -> Callable[[Page], float]:
    """Return a step that selects the one of two examples that is not selected."""

    def step(page: Page) -> float:
        dropdown = page.get_by_label("Example", exact=True)
        selected = other if dropdown.input_value() == example.name else example
        dropdown.click()
        texts = ",".join(document.text for document in selected.documents)
        watch(page, f"{TEXTS}.map((one) => one.value).join() === {texts!r}")
        page.get_by_role("option", name=selected.name, exact=True).click()
        return seconds(page)

    return step


STEPS = {
    "Earlier": move_up,
    "typed letter": type_letter,
    "token count, 0.25 s after typing": count_tokens,
    "Add": add,
    "Remove": remove,
    "Example, short or default": select_other(SHORT, DEFAULT),
    "Example, long or default": select_other(LONG, DEFAULT),
}


if __name__ == "__main__":
    main()
