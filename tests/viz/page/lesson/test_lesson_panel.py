"""The lesson drawn from runs: its numbers are those of the trace, and the saved page is the class's own."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np
import pytest

from pine_engine.engine.engine import Engine
from tests.support.tokenizers import letter_tokenizer
from tests.support.viz_reading import HOSTILE, Element, read_html
from tests.support.widgets import built
from tests.viz.cards.test_tutorial import addresses
from viz.cards.glossary import PAPER
from viz.cards.tutorial import tutorial
from viz.figures.importance import normalize
from viz.page.answers.answer_records import TriedOrder
from viz.page.answers.answering import FinishedRun, answer, in_orders
from viz.page.answers.recordings import Recording, lesson_recording
from viz.page.form.documents import entries_from
from viz.page.form.form import Form
from viz.page.inside.reading import first_selection, run_documents
from viz.page.lesson.lesson_panel import build_lesson, lesson_file, wire_lesson
from viz.page.lesson.lessons import (
    answers_in_two_orders,
    document_texts,
    exchange_of_two,
    exchanged_letters,
    lesson_document,
    lesson_steps,
    live_lesson_html,
)

TEXTS = [("Varo", "red"), (HOSTILE[0], HOSTILE[4]), ("", "a white one")]


@pytest.fixture(scope="module")
def recording() -> Recording:
    return lesson_recording()


@pytest.fixture(scope="module")
def engine(tiny_llama: Callable[..., Any]) -> Engine:
    return Engine(tiny_llama(max_context_length=1024), letter_tokenizer(), name="tiny <b>")


def run_of(engine: Engine, methods: tuple[str, ...] = ("vanilla", "pine")) -> FinishedRun:
    form = Form("retrieval_qa", "Which is green?", "Answer.", methods, 3, entries_from(TEXTS))
    *_, last = answer(engine, form)
    assert last.finished is not None
    return last.finished


@pytest.fixture(scope="module")
def own(engine: Engine) -> FinishedRun:
    return run_of(engine)


def tried(run: FinishedRun, order: tuple[int, ...], **changed: tuple[int, ...]) -> TriedOrder:
    """The run's answers as those to another order; changed: by method, the ids of another answer."""
    told = {
        method: replace(one, token_ids=changed[method], text=f"changed {method}")
        if method in changed
        else one
        for method, one in run.answer_records.items()
    }
    return TriedOrder(order, " ".join(map(str, order)), told)


def step(root: Element, name: str) -> Element:
    (found,) = [part for part in root.all("article") if part.attributes["id"] == f"lesson-{name}"]
    return found


def pictures(part: Element) -> list[dict[str, Any]]:
    """The numbers of each picture."""
    return [json.loads(numbers.text) for numbers in part.with_class("pine-numbers")]


def mask_states(numbers: dict[str, Any]) -> dict[tuple[str, str, str], str]:
    """The state of a key by method, query and key."""
    keys = numbers["columns"][2:]
    return {
        (method, query, key): state
        for method, query, *states in numbers["rows"]
        for key, state in zip(keys, states, strict=True)
    }


def shown(run: FinishedRun | None = None) -> Element:
    """The lesson on the page, or the saved one with a run."""
    return read_html(live_lesson_html() if run is None else lesson_document(run))


# The numbers are the recording's


def test_there_are_eight_steps_and_every_picture_says_whose_it_is(recording: Recording) -> None:
    steps = shown().all("article")
    assert [part.attributes["id"][7:] for part in steps] == [
        *("bias", "mask", "rope", "both-ways", "importance", "places", "proof", "quiz")
    ]
    for part in steps:
        sources = part.with_class("pine-lesson-source")
        assert len(sources) == len(part.with_class("pine-lesson-picture")) > 0
        for source in sources:
            assert source.text == recording.run.recorded or "running example" in source.text


def test_the_bias_is_shown_with_the_gold_document_in_every_slot(
    recording: Recording,
) -> None:
    (numbers,) = pictures(step(shown(), "bias"))
    tried = in_orders(recording.run)
    assert tried is not None
    orders = [" ".join("ABC"[document] for document in order) for order in tried.orders]
    recorded = dict(zip(orders, tried.answers["vanilla"], strict=True))
    # The gold document, B, goes through the slots.
    assert [order for order, _ in numbers["rows"]] == ["B A C", "A B C", "A C B"]
    assert [answer for _, answer in numbers["rows"]] == [recorded[order] for order, _ in numbers["rows"]]
    assert len({answer for _, answer in numbers["rows"]}) > 1
    (bias,) = step(shown(), "bias").with_class("pine-quiz")
    marks = [mark.text for mark in bias.with_class("pine-orders")[0].with_class("pine-mark")]
    assert marks == ["✓ right" if "Dario" in answer else "✗ wrong" for _, answer in numbers["rows"]]
    assert recording.question in step(shown(), "bias").text


@pytest.mark.parametrize(
    ("name", "methods"), [("mask", ("Vanilla", "NIA")), ("both-ways", ("Vanilla", "PINE"))]
)
def test_masks_are_those_of_the_methods(name: str, methods: tuple[str, str]) -> None:
    (numbers,) = pictures(step(shown(), name))
    states = mask_states(numbers)
    assert {method for method, _, _ in states} == set(methods)
    may: dict[str, Callable[[str, str], bool]] = {
        "Vanilla": lambda q, k: k < q,
        "NIA": lambda q, k: False,
        "PINE": lambda q, k: True,
    }
    for method in methods:
        for query in "ABC":
            for key in set("ABC") - {query}:
                expected = "allowed" if may[method](query, key) else "masked"
                assert states[method, query, key] == expected


def test_documents_are_listed_in_the_order_that_is_named() -> None:
    bias = step(shown(), "bias")
    (listed,) = bias.with_class("pine-orders-documents")
    letters = " ".join(item.with_class("pine-badge")[0].text for item in listed.all("li"))
    assert f"in the order {letters}, and a question" in bias.text


def test_the_ruler_of_vanilla_is_the_input(recording: Recording) -> None:
    (numbers,) = pictures(step(shown(), "rope"))
    layout = recording.run.result.layout
    starts = layout.document_starts.tolist()
    ends = [start + length - 1 for start, length in zip(starts, layout.lengths.tolist(), strict=True)]
    expected = {letter: (start, end) for letter, start, end in zip("ABC", starts, ends, strict=True)}
    assert {row[0]: (row[1], row[2]) for row in numbers["rows"]} == expected


def test_importance_and_places_are_those_of_the_trace(recording: Recording) -> None:
    run = recording.run
    trace, chosen = run.result.traces["pine"], first_selection(run)
    assert trace.document_importance is not None and trace.suffix_importance is not None
    (importance,) = pictures(step(shown(), "importance"))
    expected = normalize(trace.document_importance[chosen.layer, chosen.head], "share")
    drawn = np.array([[np.nan if cell is None else cell for cell in row[1:]] for row in importance["rows"]])
    np.testing.assert_allclose(drawn, expected, rtol=1e-6)

    _, ruler = pictures(step(shown(), "places"))
    last = run.result.layout.suffix_length - 1
    starts = trace.suffix_starts[chosen.layer, chosen.head, last].tolist()
    values = trace.suffix_importance[chosen.layer, chosen.head, last].tolist()
    assert {row[0]: (row[1], row[3]) for row in ruler["rows"]} == {
        letter: (start, value) for letter, start, value in zip("ABC", starts, values, strict=True)
    }


def test_places_of_the_eight_tokens_are_those_of_the_paper() -> None:
    """Specification 6.1, PINE, by hand: rows are queries, 0 stands for masked."""
    numbers, _ = pictures(step(shown(), "places"))
    assert [[cell or 0 for cell in row[2:]] for row in numbers["rows"]] == [
        [1, 0, 0, 0, 0, 0, 0, 0],
        [1, 6, 0, 4, 5, 2, 3, 0],
        [1, 6, 7, 4, 5, 2, 3, 0],
        [1, 2, 3, 6, 0, 4, 5, 0],
        [1, 2, 3, 6, 7, 4, 5, 0],
        [1, 4, 5, 2, 3, 6, 0, 0],
        [1, 4, 5, 2, 3, 6, 7, 0],
        [1, 2, 3, 6, 7, 4, 5, 8],
    ]


def test_the_proof_shows_the_same_numbers_in_both_orders() -> None:
    """To the last bit: they were recorded in two runs."""
    masks, exchanged_masks, importance, exchanged_importance, ruler, exchanged_ruler = pictures(
        step(shown(), "proof")
    )
    assert [row[1] for row in importance["rows"]] != [row[1] for row in exchanged_importance["rows"]]
    for one, other in ((importance, exchanged_importance), (ruler, exchanged_ruler)):
        by_name = [
            {
                (row[0], name): cell
                for row in numbers["rows"]
                for name, cell in zip(numbers["columns"], row, strict=True)
            }
            for numbers in (one, other)
        ]
        assert by_name[0] == by_name[1]
    assert masks["columns"] != exchanged_masks["columns"]
    states = [mask_states(numbers) for numbers in (masks, exchanged_masks)]
    assert states[0] == states[1]
    assert all(states[0]["PINE", query, key] != "masked" for query in "ABC" for key in "ABC")


def test_the_quiz_is_about_the_recorded_exchange(recording: Recording) -> None:
    (tried,) = [one for one in recording.run.tried if one.order == (2, 1, 0)]
    part = step(shown(), "quiz")
    assert "when documents A and C change places" in part.text
    entries = part.with_class("pine-quiz-entry")
    assert [entry.attributes["data-method"] for entry in entries] == list(tried.answer_records)
    for entry in entries:
        method = entry.attributes["data-method"]
        before, after = recording.run.answer_records[method], tried.answer_records[method]
        kept = before.token_ids == after.token_ids
        assert entry.attributes["data-truth"] == ("keeps" if kept else "changes")
        assert after.text in entry.text
    truths = {entry.attributes["data-truth"] for entry in entries}
    assert truths == {"keeps", "changes"}


# The class's own run


def test_own_run_takes_the_place_of_the_recorded_one(own: FinishedRun, recording: Recording) -> None:
    root = shown(own)
    label = "tiny <b>, float32"
    assert label in root.all("main")[0].text
    sources = {
        name: [source.text for source in step(root, name).with_class("pine-lesson-source")]
        for name in ("bias", "mask", "rope", "both-ways", "importance", "places", "proof", "quiz")
    }
    recorded = recording.run.recorded
    # One order tells nothing about the order; the proof needs two runs.
    assert {*sources["bias"]} == {*sources["quiz"]} == {recorded}
    assert sources["proof"] == [recorded] * 3
    assert sources["mask"] == sources["rope"] == sources["both-ways"] == sources["importance"] == [label]
    assert sources["places"][1] == label
    trace, chosen = own.result.traces["pine"], first_selection(own)
    assert trace.document_importance is not None
    (importance,) = pictures(step(root, "importance"))
    expected = normalize(trace.document_importance[chosen.layer, chosen.head], "share")
    drawn = np.array([[np.nan if cell is None else cell for cell in row[1:]] for row in importance["rows"]])
    np.testing.assert_allclose(drawn, expected, rtol=1e-6)


def test_the_proof_says_in_which_order_each_picture_was_entered() -> None:
    heads = [head.text for head in step(shown(), "proof").with_class("pine-lesson-entered")]
    assert heads == ["Entered as A B C", "Entered as C B A"] * 3


def test_own_orders_make_the_bias_and_the_quiz_ones_own(own: FinishedRun) -> None:
    shuffled = replace(
        own, tried=(tried(own, (1, 0, 2)), tried(own, (1, 2, 0)), tried(own, (2, 1, 0), vanilla=(9, 9, 9)))
    )
    root = shown(shuffled)
    for name in ("bias", "quiz"):
        sources = {source.text for source in step(root, name).with_class("pine-lesson-source")}
        assert sources == {"tiny <b>, float32"}
    quiz = step(root, "quiz")
    truths = {
        entry.attributes["data-method"]: entry.attributes["data-truth"]
        for entry in quiz.with_class("pine-quiz-entry")
    }
    assert truths == {"vanilla": "changes", "pine": "keeps"}
    assert not quiz.with_class("pine-quiz-afterwards")
    assert "changed vanilla" in step(root, "bias").text


def test_a_run_without_vanilla_or_pine_leaves_their_steps_recorded(engine: Engine) -> None:
    root = shown(run_of(engine, ("pcw",)))
    sources = {
        part.attributes["id"][7:]: part.with_class("pine-lesson-source")[-1].text
        for part in root.all("article")
    }
    own = [name for name, source in sources.items() if source == "tiny <b>, float32"]
    assert own == ["mask", "both-ways"]


def test_the_exchange_is_of_two_documents_and_best_of_the_first_and_third(own: FinishedRun) -> None:
    assert exchange_of_two(own) is None
    rotated, near, far = tried(own, (1, 2, 0)), tried(own, (1, 0, 2)), tried(own, (2, 1, 0))
    assert exchange_of_two(replace(own, tried=(rotated,))) is None
    assert exchange_of_two(replace(own, tried=(rotated, near))) is near
    assert exchange_of_two(replace(own, tried=(near, far))) is far
    assert exchanged_letters(own, near) == ("A", "B") and exchanged_letters(own, far) == ("A", "C")


def test_of_two_orders_the_one_is_shown_whose_answer_parts_first(own: FinishedRun) -> None:
    ids = own.answer_records["vanilla"].token_ids
    same, late = tried(own, (1, 0, 2)), tried(own, (0, 2, 1), vanilla=(*ids[:-1], 96))
    early = tried(own, (2, 1, 0), vanilla=(96, *ids[1:]))
    assert answers_in_two_orders(own) == ()
    assert [one.answer for one in answers_in_two_orders(replace(own, tried=(same,)))] == [
        own.answer_records["vanilla"].text
    ] * 2
    for orders in ((same, late, early), (early, late, same)):
        told = replace(
            own, tried=tuple(replace(one, answer_records=_texts(one, str(one.order))) for one in orders)
        )
        assert answers_in_two_orders(told)[1].answer == "(2, 1, 0)"


def _texts(order: TriedOrder, text: str) -> dict[str, Any]:
    return {method: replace(one, text=text) for method, one in order.answer_records.items()}


# The saved page


def test_the_saved_page_fetches_nothing_and_keeps_hostile_texts(own: FinishedRun) -> None:
    shuffled = replace(own, tried=(tried(own, (2, 1, 0), vanilla=(9, 9, 9)),))
    root = shown(shuffled)
    assert set(addresses(root)) == {PAPER}
    assert not root.all("img") and not root.all("iframe") and not root.all("form")
    assert all(name.attributes.keys() <= {"type"} for name in root.all("script"))
    texts = dict((segment.label, text) for segment, text in document_texts(shuffled, run_documents(shuffled)))
    assert TEXTS[1][1] in texts["B"]
    bias = step(root, "bias")
    assert TEXTS[1][1] in bias.text and not bias.all("script")


def test_the_saved_page_has_all_it_needs_inside(own: FinishedRun) -> None:
    root = shown(own)
    (style,) = root.all("style")
    assert ".pine-lesson-step" in style.text and "@import" not in style.text and "url(" not in style.text
    scripts = [script.text for script in root.all("script")]
    assert sum("window.pineLesson =" in script for script in scripts) == 1
    assert sum("window.pinePictures =" in script for script in scripts) == 1
    anchors = {part.attributes["id"] for part in root.with_class("pine-explanation")}
    assert {button.attributes["popovertarget"] for button in root.with_class("pine-term")} <= anchors


def test_the_file_lies_where_gradio_serves_it(own: FinishedRun, tmp_path: Path) -> None:
    path = Path(lesson_file(own, str(tmp_path)))
    assert path.name == "pine-lesson.html" and tmp_path in path.parents
    assert path.read_text(encoding="utf-8") == lesson_document(own)
    recorded = Path(lesson_file(None, str(tmp_path))).read_text(encoding="utf-8")
    assert lesson_recording().run.recorded in recorded and "tiny &lt;b&gt;" not in recorded


def test_the_lesson_on_the_page_selects_nothing_and_is_drawn_once(recording: Recording) -> None:
    html = live_lesson_html()
    assert html is live_lesson_html()
    assert "data-pick" not in html
    assert html == tutorial(lesson_steps(recording), is_live=True)


def test_the_panel_can_be_built_and_wired() -> None:
    def build() -> tuple[gr.Blocks, gr.State]:
        with gr.Blocks() as page:
            finished = gr.State(None)
            wire_lesson(build_lesson(), finished)
        return page, finished

    page, finished = built(build)
    made, saved = page.fns.values()
    assert [block.elem_id for block in made.outputs] == ["lesson-file"] and made.inputs == [finished]
    assert made.api_visibility == saved.api_visibility == "private"
    assert saved.js is not None and "#lesson-file" in str(saved.js)
