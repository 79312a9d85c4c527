"""Tasks and evaluation: a verdict and its score, a dataset, molecules."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.driving import (
    EXAMPLES,
    RUN_MS,
    card,
    choose,
    give,
    open_tab,
    pick,
    run,
    save,
    select_options,
    set_length,
    text,
    unfold,
    wait_for_model,
)

JUDGE = next(example for example in EXAMPLES if example.task == "judge")
SPIDERS = (
    'Choose the better answer to "How many legs do three spiders have?", A or B. '
    "Say: My verdict is [[A]], or: My verdict is [[B]]."
)
MOLECULE = next(example for example in EXAMPLES if example.task == "qm9")


def set_number(page: Page, slider: str, value: int) -> None:
    field = page.locator(f"{slider} input[type=number]")
    field.fill(str(value))
    field.blur()


@pytest.mark.slow
def test_verdict_dataset_and_molecules_are_scored(page: Page, tmp_path: Path) -> None:
    wait_for_model(page)
    assert_verdict_is_parsed_and_scored(page)
    assert_dataset_is_evaluated_and_stopped(page, tmp_path)
    assert_molecules_and_uploads_are_evaluated(page, tmp_path)


def assert_verdict_is_parsed_and_scored(page: Page) -> None:
    pick(page, JUDGE)
    page.locator("#question textarea").fill(SPIDERS)
    for place, legs in ((1, 24), (2, 18)):
        text(page, place).fill(f"Three spiders have {legs} legs, because each spider has {legs // 3} legs.")
    expect(card(page, 2)).to_contain_text("Answer of assistant B")
    expect(card(page, 2).locator(".page-title")).to_be_hidden()
    expect(page.locator("#add-document")).to_have_text("Add an answer")
    unfold(page)
    select_options(page, "#methods", "Vanilla", "PINE")
    set_length(page, 32)
    page.locator("#instruction textarea").fill(JUDGE.instruction)  # not kept beside other documents
    page.locator("#accepted textarea").fill("B")
    run(page)
    unfold(page, "#answers-in-full")
    readings = page.locator("#answers .pine-reading")
    expect(readings).to_have_count(2)
    for reading in readings.all():
        expect(reading).to_contain_text("Parsed verdict: B ✓ correct")
    page.locator("#accepted textarea").fill("A")
    expect(readings.first).to_contain_text("Parsed verdict: B ✗ incorrect")


def assert_dataset_is_evaluated_and_stopped(page: Page, folder: Path) -> None:
    open_tab(page, "Evaluate")
    expect(page.locator("#measure-meaning")).to_contain_text("the gold document in every slot in turn")
    select_options(page, "#measure-methods", "Vanilla", "PINE")
    select_options(page, "#measure-what", "Log-probabilities")
    set_number(page, "#measure-limit", 2)
    expect(page.locator("#measure-status")).to_contain_text("2 examples × 2 methods × 4 orders = 16 records")
    wrapped = page.locator("#measure-wrapped input")
    wrapped.fill("full (van")
    page.get_by_role("option", name="Permutation, full (Vanilla)").click()
    expect(page.locator("#measure-status")).to_contain_text("2 examples × 3 methods × 4 orders = 24 records")
    wrapped.press("Backspace")
    expect(page.locator("#measure-status")).to_contain_text("2 examples × 2 methods × 4 orders = 16 records")
    page.locator("#measure-run").click()
    expect(page.locator("#measure-status")).to_contain_text("Done: 16 records", timeout=RUN_MS)
    slots = page.get_by_role("region", name="With the answer in each slot").locator("tbody tr")
    expect(slots).to_have_count(2)
    expect(slots.nth(1)).to_contain_text("PINE")
    vanilla, pine = ([cell.inner_text() for cell in row.locator("td").all()[-4:]] for row in slots.all())
    assert len(set(pine)) == 1 and len(set(vanilla)) > 1
    expect(page.locator("#measure-curve .scatterlayer .trace")).to_have_count(2)
    expect(page.locator("#measure-curve .scatterlayer .point")).to_have_count(8)
    report = save(page, page.locator("#measure-report"), folder).read_text(encoding="utf-8")
    assert "retrieval_qa.jsonl" in report

    page.get_by_label("Dataset", exact=True).focus()
    page.keyboard.press("Tab")
    page.wait_for_timeout(1000)
    expect(page.locator("#measure-limit input[type=number]")).to_have_value("2")  # nothing was chosen

    set_number(page, "#measure-limit", 6)
    page.locator("#measure-run").click()
    expect(page.locator("#measure-tables .pine-score")).to_contain_text("of 48 records", timeout=RUN_MS)
    page.locator("#measure-stop").click()
    expect(page.locator("#measure-status")).to_contain_text("Stopped")
    expect(page.locator("#measure-stop")).to_be_disabled()
    kept = save(page, page.locator("#measure-records"), folder).read_text(encoding="utf-8").splitlines()
    shown = page.locator("#measure-tables .pine-score").inner_text()
    assert shown == f"{len(kept)} of 48 records" and len(kept) < 48


def assert_molecules_and_uploads_are_evaluated(page: Page, folder: Path) -> None:
    open_tab(page, "See it")
    pick(page, MOLECULE)
    set_length(page, 64)
    expect(page.locator("#total")).to_contain_text("context: 256")
    run(page)
    expect(page.locator("#run-status")).to_contain_text("(molecules, ")
    cards = page.locator("#answers .pine-card")
    for card_of_method in cards.all():
        expect(card_of_method).to_contain_text("Model: molecules")
    expect(page.locator("#answers .pine-sketch svg")).to_have_count(cards.count())
    open_tab(page, "Document importance")

    open_tab(page, "Evaluate")
    select_options(page, "#measure-what", "Generated answers")
    choose(page, "Dataset", "by the molecule model")
    status = page.locator("#measure-status")
    expect(status).to_contain_text("6 examples × 2 methods × 2 orders")
    set_number(page, "#measure-limit", 2)
    expect(status).to_contain_text("2 examples × 2 methods × 2 orders = 8 records")
    page.locator("#measure-run").click()
    expect(status).to_contain_text("Done: 8 records", timeout=RUN_MS)
    expect(page.locator("#measure-tables tbody").first.locator("tr").last).to_contain_text("0 of 2")

    rows = folder / "mine.jsonl"
    row = {"id": "a", "task": "retrieval_qa", "question": "Why?", "documents": [{"text": "x"}, {"text": "y"}]}
    rows.write_text(json.dumps(row) + '\n{"id": "b"}\n')
    give(page, "#measure-upload", rows)
    message = page.locator("#measure-message")
    expect(message.get_by_role("alert")).to_contain_text("File mine.jsonl, line 2")
    expect(page.get_by_label("Dataset", exact=True)).to_have_value(re.compile("by the molecule model"))
    rows.write_text(json.dumps(row) + "\n")
    give(page, "#measure-upload", rows)
    expect(message).to_contain_text("mine.jsonl: 1 example")
    expect(status).to_contain_text("1 example ×")


@pytest.mark.slow
def test_columns_of_an_upload_are_chosen_in_lists(page: Page, tmp_path: Path) -> None:
    open_tab(page, "Evaluate")
    rows = tmp_path / "fragen.csv"
    rows.write_bytes("Frage;Stelle 1;Stelle 2\nWer?;Änne.;Öle.\nWas?;<b>Öl</b>.;Übel.\n".encode("cp1252"))
    give(page, "#measure-upload", rows)
    message = page.locator("#measure-message")
    expect(message.get_by_role("alert")).to_contain_text("no column")
    table = page.get_by_role("region", name="First rows")
    expect(table.locator("tbody tr")).to_have_count(2)
    expect(table.locator("tbody")).to_contain_text("<b>Öl</b>.")
    for column, field in (("frage", "question"), ("stelle 1", "document1"), ("stelle 2", "document2")):
        table.get_by_label(f"Field of the column {column}", exact=True).select_option(field)
    expect(message).to_contain_text("fragen.csv: 2 examples")
    expect(message).to_contain_text("cp1252")
    table.get_by_label("Field of the column frage", exact=True).select_option("document1")
    expect(table.get_by_label("Field of the column stelle 1", exact=True)).to_have_value("")
    expect(message.get_by_role("alert")).to_contain_text("question")
