"""Actions of a visitor on the page: choose, type, run, open a tab, pick, save."""

import re
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Frame, Locator, Page, expect

from viz.page.form.examples import FormExample, load_examples

EXAMPLES = load_examples()
DEFAULT = EXAMPLES[0]
SHORT = next(example for example in EXAMPLES if len(example.documents) == 2 and example.question)
LONG = max(EXAMPLES, key=lambda example: len(example.documents))

RUN_MS = 180_000
"""Timeout of loading the model or of shuffling two documents, in milliseconds, on a busy machine."""

INSIDE_TABS = {
    "Attention": "attention",
    "Attention masks": "masks",
    "RoPE positions": "positions",
    "Document importance": "importance",
    "Compare answers": "change",
}
"""Tabs of Internals, each with the id of its contents."""

PATHS: dict[str, tuple[str, ...]] = {
    "See it": (),
    "Why": (),
    **dict.fromkeys(INSIDE_TABS, ("Lab", "Internals")),
    "Position sweep": ("Lab",),
    "Evaluate": ("Lab",),
    "Tutorial": (),
}
"""All tabs, each with the tabs that contain it."""

TABS = tuple(PATHS)

DRAWN = ":is(.pine-picture, .pine-plot .main-svg, .pine-empty):visible"
"""Picture or figure in a tab of Internals, or the text of its empty state."""


def unfold(page: Page | Frame, section: str = "#settings") -> None:
    """Open a section of "See it" that is folded at first, and wait for its contents."""
    open_tab(page, "See it")
    button = page.locator(f"{section} > button.label-wrap")
    if "open" not in (button.get_attribute("class") or "").split():
        button.click()
    expect(page.locator(f"{section} .block").first).to_be_visible()


def wait_for_model(page: Page | Frame) -> None:
    """Wait until the model is ready."""
    expect(page.locator("#model-status .page-notice-ready")).to_be_visible(timeout=RUN_MS)


def choose(page: Page | Frame, label: str, option: str) -> None:
    """Select an option of a dropdown by part of its name."""
    page.get_by_label(label, exact=True).click()
    page.get_by_role("option", name=re.compile(re.escape(option))).click()


def text(page: Page | Frame, slot: int) -> Locator:
    """Return the text field of the document in a slot, from 1; each task has its own word for documents."""
    return page.get_by_label(re.compile(rf"Text, \w+ in slot {slot}\b"))


def pick(page: Page | Frame, example: FormExample) -> None:
    """Select an example, and wait until the cards show it."""
    choose(page, "Example", example.name)
    expect(page.locator(".page-card:visible")).to_have_count(len(example.documents))
    expect(text(page, len(example.documents))).to_have_value(example.documents[-1].text)


def set_length(page: Page | Frame, tokens: int) -> None:
    """Set the maximum number of new tokens."""
    unfold(page)
    field = page.locator("#length input[type=number]")
    field.fill(str(tokens))
    field.blur()
    expect(field).to_have_value(str(tokens))


def run(page: Page | Frame) -> None:
    """Click Run, and wait until all answers are complete."""
    page.locator("#start-one").click()
    expect(page.locator("#run-status")).to_contain_text("Done:", timeout=RUN_MS)


def control(page: Page, label: str) -> Locator:
    """Return a dropdown of the selection."""
    return page.get_by_role("combobox", name=label, exact=True)


def open_tab(page: Page | Frame, label: str) -> None:
    """Open a tab; wait until the pictures of a tab of Internals are drawn."""
    for name in (*PATHS[label], label):
        page.get_by_role("tab", name=name, exact=True).click()
        expect(page.get_by_role("tab", name=name, exact=True)).to_have_attribute("aria-selected", "true")
    if label in INSIDE_TABS:
        expect(page.locator(f"#{INSIDE_TABS[label]} {DRAWN}").first).to_be_visible()


def numbers(page: Page, place: str) -> list[list[str]]:
    """Return the data table of a figure, which is opened if necessary. place: id of its widget."""
    figure = page.locator(f"#{place}")
    if not figure.locator(".pine-list").is_visible():
        figure.get_by_text("Data table", exact=True).click()
    expect(figure.locator("tbody tr")).not_to_have_count(0)  # a figure is drawn once its tab is opened
    return [row.locator("td").all_inner_texts() for row in figure.locator("tbody tr").all()]


def picture(page: Page, name: str) -> Locator:
    """Return a picture by the name of its files."""
    return page.locator(f".pine-picture[data-name='{name}']:visible")


def plot(page: Page, place: str) -> Locator:
    """Return the plot element of a figure of the run. place: see viz/page/internals/tabs.py."""
    return page.locator(f"#figure-{place} .pine-plot")


def click_cell(drawn: Locator, row: int, column: int, rows: int, columns: int) -> None:
    """Click a cell of a matrix of `rows` and `columns`."""
    drawn.scroll_into_view_if_needed()
    box = drawn.locator(".heatmaplayer image").first.bounding_box()
    assert box is not None
    mouse = drawn.page.mouse
    mouse.move(
        box["x"] + box["width"] * (column + 0.5) / columns, box["y"] + box["height"] * (row + 0.5) / rows
    )
    expect(drawn.locator(".hovertext").first).to_be_in_viewport()
    mouse.down()
    mouse.up()


def card(page: Page | Frame, slot: int) -> Locator:
    return page.locator(f".page-card-{slot}")


def title(page: Page, slot: int) -> Locator:
    return page.get_by_label(f"Title, document in slot {slot}", exact=True)


def letters(page: Page) -> list[str]:
    return page.locator("#documents .pine-badge").all_inner_texts()


def texts(page: Page) -> list[str]:
    return [field.input_value() for field in page.locator("#documents .page-text").all()]


def drag(page: Page, slot: int, onto: int) -> None:
    """Drag a card by its handle to the far edge of another, without dropping it."""
    page.locator("#documents").evaluate("node => node.scrollIntoView({ block: 'center' })")  # at no edge
    grip = card(page, slot).locator(".page-grip")
    grip.hover(position={"x": 4, "y": 8})  # once nothing moves it any more
    page.mouse.down()
    expect(page.locator(".page-dragged")).to_have_count(1)
    handle, other = grip.bounding_box(), card(page, onto).bounding_box()
    assert handle and other
    beside = abs(other["y"] - handle["y"]) < other["height"]
    if beside:
        page.mouse.move(other["x"] + (other["width"] - 6 if onto > slot else 6), handle["y"] + 8, steps=8)
    else:
        page.mouse.move(handle["x"] + 4, other["y"] + (other["height"] - 6 if onto > slot else 6), steps=8)


def select_options(page: Page, group: str, *wanted: str) -> None:
    """Check only these boxes of a group."""
    for box in page.locator(f"{group} label:visible").all():  # more methods are hidden
        box.get_by_role("checkbox").set_checked(box.inner_text().strip() in wanted)


def violations(page: Page, part: str, *rules: str) -> list[str]:
    """Return the serious violations that axe-core finds, as text; default: all rules."""
    # A list of the nodes that pass takes longer than all rules.
    options = {"resultTypes": ["violations"]} | ({"runOnly": list(rules)} if rules else {})
    found = Axe().run(page, context=part, options=options).response["violations"]
    return [
        f"{violation['id']} ({violation['impact']}): {node['target']} {node['html'][:120]}"
        for violation in found
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


def paint(page: Page, *, dark: bool) -> None:
    """Change the theme, and wait until all colors have changed."""
    page.evaluate(
        """dark => {
            document.body.classList.toggle("dark", dark);
            return Promise.allSettled(document.getAnimations().map((each) => each.finished));
        }""",
        dark,
    )


def cut_off(page: Page) -> int:
    """Return by how many pixels the page is wider than the window; gradio clips them without a scroll bar."""
    width: int = page.locator(".gradio-container").evaluate("node => node.scrollWidth - node.clientWidth")
    return width


def share(page: Page | Frame, item: str) -> Locator:
    """Open the menu "Share", and return one of its buttons."""
    page.get_by_role("button", name="Share", exact=True).click()
    return page.locator("#share-menu").get_by_role("button", name=item)


def give(page: Page, button: str | Locator, *files: Path) -> None:
    """Click a button that asks for files, and select files."""
    with page.expect_file_chooser() as chooser:
        (page.locator(button) if isinstance(button, str) else button).click()
    chooser.value.set_files(files)


def save(page: Page, button: Locator, folder: Path) -> Path:
    """Click a button that saves a file, and return the file with its suggested name."""
    with page.expect_download() as offered:
        button.click()
    path = folder / offered.value.suggested_filename
    offered.value.save_as(path)
    return path
