"""The tab of positions, and the running example: numbers of the pictures against the trace and the paper."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pine_engine.engine.engine import Engine
from pine_engine.methods.positions import MASKED
from pine_engine.methods.table import METHODS, TAUGHT
from tests.support.runs import THREE, finish
from tests.support.tokenizers import letter_tokenizer
from tests.support.viz_reading import HOSTILE, Element, assert_harmless, read_html, table_cells
from tests.support.worked_matrices import read_matrix
from viz.drawing.tokens import visible_text
from viz.figures.importance import most_decisive, spread
from viz.page.answers.answering import FinishedRun
from viz.page.form import documents
from viz.page.form.documents import entries_from
from viz.page.inside.drawn_positions import (
    MOST_KEYS,
    MOST_QUERIES,
    Place,
    draw_positions,
    shown_place,
    shown_queries,
    view_of,
)
from viz.page.inside.reading import bounds_of, longest_suffix, plan_of
from viz.page.inside.selection import Query, Selection
from viz.page.lesson.running_example import (
    LAYOUT,
    example_positions,
    example_view,
    running_example_html,
)


@pytest.fixture(scope="module")
def engine(tiny_llama: Callable[..., Any]) -> Engine:
    return Engine(tiny_llama(max_context=1024), letter_tokenizer(), name="tiny")


@pytest.fixture(scope="module")
def run(engine: Engine) -> FinishedRun:
    """The documents B, A, C, in that order."""
    return finish(engine, documents.move(THREE, 0, 1))


def picture(html: str, name: str) -> Element:
    """The picture of that name."""
    return next(
        figure
        for figure in read_html(html).with_class("pine-picture")
        if figure.attributes["data-name"] == name
    )


def numbers_of(figure: Element) -> Any:
    """What a picture says in numbers."""
    return json.loads(figure.with_class("pine-numbers")[0].text)


# What a query sees


def test_a_view_shows_what_the_trace_recorded(run: FinishedRun) -> None:
    trace, layout = run.result.traces["pine"], run.result.layout
    seen = view_of(run, plan_of(run, "pine"), Query("document", 1), Place(1, 2))
    assert seen is not None and seen.importance is not None
    assert np.array_equal(seen.starts, trace.document_starts[1, 2, 1])
    assert trace.document_importance is not None
    assert np.array_equal(seen.importance, trace.document_importance[1, 2, 1], equal_nan=True)
    assert np.isnan(seen.importance[1]) and seen.own_document == 1
    assert [segment.label for segment in seen.documents] == ["B", "A", "C"]
    assert seen.query_position == layout.documents_end - 1
    token = view_of(run, plan_of(run, "vanilla"), Query("suffix", 2), Place(1, 2))
    assert token is not None and token.query_position == layout.documents_end + 2
    assert np.array_equal(token.starts, layout.document_starts)


def test_an_answer_that_was_over_has_no_view_and_says_so(run: FinishedRun) -> None:
    beyond = Query("suffix", longest_suffix(run))
    assert view_of(run, plan_of(run, "pine"), beyond, Place(0, 0)) is None
    html = draw_positions(run, Selection("pine", beyond, 0, 0))
    assert html.count("This answer was over before that token") == 4


def test_the_query_of_a_row_is_named_by_its_words(run: FinishedRun) -> None:
    layout = run.result.layout
    question = view_of(run, plan_of(run, "pine"), Query("suffix", 0), Place(0, 0))
    written = view_of(run, plan_of(run, "pine"), Query("suffix", layout.suffix_length), Place(0, 0))
    assert question is not None and written is not None
    text = visible_text(run.prompt_tokens[layout.documents_end])
    assert question.query == f"token 1 \u201c{text}\u201d of the suffix"
    assert written.query.startswith("token 1 ") and written.query.endswith("of the answer")


# Which layer and head


def test_a_mean_shows_the_most_decisive_head_of_what_is_left_open(run: FinishedRun) -> None:
    importance = run.result.traces["pine"].suffix_importance
    assert importance is not None
    spreads = spread(importance)
    last = Query("suffix", run.result.layout.suffix_length - 1)

    def place(layer: int | None, head: int | None) -> tuple[int, int]:
        shown = shown_place(run, Selection("pine", last, layer, head))
        assert shown.is_chosen == (layer is not None and head is not None)
        return shown.layer, shown.head

    assert place(None, None) == most_decisive(spreads)
    assert place(1, None) == (1, int(spreads[1].argmax()))
    assert place(0, None) == (0, int(spreads[0].argmax()))
    assert place(None, 3) == (int(spreads[:, 3].argmax()), 3)
    assert place(1, 3) == (1, 3)


def test_captions_say_the_layer_and_the_head_and_why_it_is_shown(run: FinishedRun) -> None:
    last = Query("suffix", run.result.layout.suffix_length - 1)
    chosen = draw_positions(run, Selection("pine", last, 1, 3))
    mean = draw_positions(run, Selection("pine", last))
    vanilla = draw_positions(run, Selection("vanilla", last, 1, 3))
    for name in ("position-grid", "position-ruler", "position-tokens"):
        assert "layer 1, head 3, float32" in picture(chosen, name).all("figcaption")[0].text.lower()
        assert "most decisive head is shown" in picture(mean, name).all("figcaption")[0].text
        assert "same in every layer and head" in picture(vanilla, name).all("figcaption")[0].text
        assert "decisive" not in picture(chosen, name).all("figcaption")[0].text


# The pictures


@pytest.mark.parametrize("method", METHODS)
def test_the_numbers_of_the_grid_are_those_of_the_trace(method: str, run: FinishedRun) -> None:
    layout, trace = run.result.layout, run.result.traces[method]
    index = layout.suffix_length - 1
    numbers = numbers_of(
        picture(draw_positions(run, Selection(method, Query("suffix", index), 1, 2)), "position-grid")
    )
    layer, head = (1, 2) if trace.suffix_starts.shape[0] > 1 else (0, 0)
    starts = np.vstack([trace.document_starts[layer, head], trace.suffix_starts[layer, head, index][None]])
    assert [row[2::2] for row in numbers["rows"]] == [
        [None if start == MASKED else start for start in row] for row in starts.tolist()
    ]
    for row in numbers["rows"]:
        for first, last, length in zip(row[2::2], row[3::2], layout.lengths.tolist(), strict=True):
            assert (last is None) if first is None else (last - first + 1 == length)


def test_rows_are_the_documents_the_question_and_the_selected_answer_token(run: FinishedRun) -> None:
    last = run.result.layout.suffix_length - 1
    every = [Query("document", slot) for slot in range(3)] + [Query("suffix", last)]
    assert shown_queries(run, Selection("pine", Query("document", 1))) == every
    assert shown_queries(run, Selection("pine", Query("suffix", last))) == every
    written = Query("suffix", last + 1)
    assert shown_queries(run, Selection("pine", written)) == [*every, written]


def test_everything_that_can_be_clicked_picks_what_the_run_has(run: FinishedRun) -> None:
    selection = Selection("pine", Query("document", 1), 0, 0)
    root = read_html(draw_positions(run, selection))
    picks, pending = [], [root]
    while pending:
        element = pending.pop()
        pending += element.children
        picks += [json.loads(element.attributes["data-pick"])] if "data-pick" in element.attributes else []
    kinds = {tuple(sorted(what)) for what in picks}
    assert kinds == {("query",), ("method",), ("layer",), ("head", "layer"), ("window",)}
    for what in picks:
        picked = selection.picked(what, bounds_of(run))
        shown = {key: str(value) if key == "query" else value for key, value in vars(picked).items()}
        assert {key: shown[key] for key in what} == what


def test_queries_everywhere_can_be_drawn_under_every_method(run: FinishedRun) -> None:
    """Every document, and one after the other in the suffix with steps of 8, to its last token."""
    last = longest_suffix(run) - 1
    queries = [Query("document", slot) for slot in range(3)]
    queries += [Query("suffix", index) for index in (*range(0, last, 8), last)]
    for method in run.result.traces:
        for query in queries:
            assert_harmless(draw_positions(run, Selection(method, query)))


def test_the_strip_counts_the_orders_in_the_trace(run: FinishedRun) -> None:
    trace = run.result.traces["pine"]
    html = draw_positions(run, Selection("pine", Query("suffix", 1), 1, 0))
    shown = [int(cell.text) for cell in picture(html, "head-orders").with_class("pine-strip-count")]
    expected = [
        len({tuple(np.argsort(-trace.suffix_starts[layer, head, 1])) for head in range(4)})
        for layer in (0, 1)
    ]
    assert shown == expected
    assert "PCW places the documents alike in every layer and head. Choose PINE" in draw_positions(
        run, Selection("pcw", Query("suffix", 1), 1, 0)
    )


def test_a_run_without_ranking_has_nothing_to_choose(engine: Engine) -> None:
    html = draw_positions(
        finish(engine, THREE, methods=("vanilla",)), Selection("vanilla", Query("document", 0))
    )
    assert "alike in every layer and head." in html and "Choose" not in html


# Token by token


def test_the_table_of_tokens_stays_small_and_says_what_is_cut(run: FinishedRun) -> None:
    layout = run.result.layout
    total = layout.documents_end + run.result.traces["pine"].suffix_starts.shape[2]
    assert total > MOST_KEYS
    for window in (None, 0, 17, total, 999_999):
        html = draw_positions(run, Selection("pine", Query("document", 1), 0, 0, window=window))
        figure = picture(html, "position-tokens")
        cells = table_cells(figure.all("table")[0])
        assert len(cells) == min(MOST_QUERIES, total) and {len(row) for row in cells} == {MOST_KEYS + 1}
        first = int(layout.document_starts[1] + layout.lengths[1]) - 1 - MOST_KEYS // 2
        first = min(max(first, 0) if window is None else window, total - MOST_KEYS)
        assert f"key tokens {first + 1}–{first + MOST_KEYS} of {total}" in figure.all("figcaption")[0].text
        is_open = "open" in read_html(html).with_class("pine-more")[0].attributes
        assert is_open == (window is not None)
        selected = [row for row in figure.all("tr") if "pine-selected" in row.classes]
        assert [json.loads(row.all("button")[0].attributes["data-pick"])["query"] for row in selected] == [
            "document 1"
        ]


def test_the_keys_can_be_moved_to_every_part_of_the_prompt(run: FinishedRun) -> None:
    layout = run.result.layout
    html = draw_positions(run, Selection("pine", Query("document", 1), 0, 0, window=5))
    figure = picture(html, "position-tokens")
    moves = [
        (button.text, json.loads(button.attributes["data-pick"])["window"])
        for button in figure.with_class("pine-switch")[0].all("button")
    ]
    total = layout.documents_end + run.result.traces["pine"].suffix_starts.shape[2]
    assert moves == [
        ("← 40 earlier", 0),
        ("40 later →", min(5 + MOST_KEYS, total - MOST_KEYS)),
        ("around the query", None),
        ("SYS", 0),
        *zip("BAC", layout.document_starts.tolist(), strict=True),
        ("SUF", layout.documents_end),
    ]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text(text: str, engine: Engine) -> None:
    hostile = entries_from([(text, text), ("", f"plain {text}")])
    run = finish(engine, hostile, question=f"q {text}", methods=("vanilla", "pine"))
    for query in (Query("document", 0), Query("suffix", 0), Query("suffix", longest_suffix(run) - 1)):
        html = draw_positions(run, Selection("pine", query, window=0))
        assert_harmless(html)


# The running example


@pytest.mark.parametrize(
    ("method", "title"),
    [
        ("vanilla", "Vanilla"),
        ("nia", "NIA"),
        ("pcw", "PCW (and SP)"),
        ("sp", "PCW (and SP)"),
        ("pine", "PINE"),
    ],
)
def test_the_running_example_is_the_papers(method: str, title: str) -> None:
    expected, expected_queries = read_matrix("6.1", title)
    positions, queries = example_positions(METHODS[method])
    assert np.array_equal(positions, np.where(expected == MASKED, MASKED, expected + 1))
    assert np.array_equal(queries, expected_queries + 1)


@pytest.mark.parametrize("method", [row.name for row in TAUGHT])
def test_a_ruler_of_the_example_has_the_numbers_of_its_row(method: str) -> None:
    positions, queries = example_positions(METHODS[method])
    for query in range(8):
        view = example_view(METHODS[method], query)
        assert view.place == queries[query]
        for document in range(3):
            keys = positions[query, LAYOUT.document_slice(document)]
            assert view.sees(document) == (keys[0] != MASKED)
            if view.sees(document):
                first, last = view.span(document)
                assert first == keys[0] and (keys[1] in (last, MASKED))


def test_the_running_example_shows_all_methods_and_a_ruler_for_every_token() -> None:
    root = read_html(running_example_html())
    assert len(root.with_class("pine-mask")) == len(TAUGHT) == 5
    figure = picture(running_example_html(), "example-positions")
    assert len(figure.with_class("pine-matrix")) == len(TAUGHT)
    numbers = numbers_of(figure)
    pine = [row[2:] for row in numbers["rows"] if row[0] == "PINE"]
    # Specification 6.1, rows D1a and X: the query's position, then its keys.
    assert pine[1] == [6, 1, 6, None, 4, 5, 2, 3, None] and pine[7] == [8, 1, 2, 3, 6, 7, 4, 5, 8]
    names = {figure.attributes["data-name"] for figure in root.with_class("pine-picture")}
    assert {f"example-ruler-{query}" for query in range(1, 9)} < names
    assert_harmless(running_example_html())
