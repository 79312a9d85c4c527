"""The tab of positions, and the running example: numbers of the pictures against the trace and the paper."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pine_engine.engine.engine import Engine
from pine_engine.methods.positions import MASKED
from pine_engine.methods.table import METHODS, TUTORIAL_METHODS
from tests.support.runs import THREE, finish, swapped
from tests.support.tokenizers import letter_tokenizer
from tests.support.viz_reading import Element, assert_harmless, read_html
from tests.support.worked_matrices import read_matrix
from viz.drawing.text import visible_text
from viz.figures.head_decisiveness import decisiveness, most_decisive
from viz.page.answers.answering import FinishedRun
from viz.page.inside.drawn_positions import (
    Place,
    draw_positions,
    shown_place,
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
    return Engine(tiny_llama(max_context_length=1024), letter_tokenizer(), name="tiny")


@pytest.fixture(scope="module")
def run(engine: Engine) -> FinishedRun:
    """The documents B, A, C, in that order."""
    return finish(engine, swapped(THREE, 0))


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
    drawn = draw_positions(run, Selection("pine", beyond, 0, 0))
    assert "This answer was over before that token" in drawn.html and not drawn.figures


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
    spreads = decisiveness(run.result.traces["pine"])
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


def test_a_mean_is_said_to_be_drawn_at_its_most_decisive_head(run: FinishedRun) -> None:
    last = Query("suffix", run.result.layout.suffix_length - 1)
    assert "Positions have no mean" not in draw_positions(run, Selection("pine", last, 1, 3)).html
    mean = draw_positions(run, Selection("pine", last))
    layer, head = most_decisive(decisiveness(run.result.traces["pine"]))
    assert f"Positions have no mean; shown is layer {layer}, head {head}" in mean.html
    assert f"layer {layer}, head {head}" in mean.figures["position-map"].layout.title.text
    vanilla = draw_positions(run, Selection("vanilla", last, 1, 3))
    assert "alike in every layer and head. Choose PINE" in vanilla.html
    assert "layer" not in vanilla.figures["position-map"].layout.title.text


# The figures


@pytest.mark.parametrize("query", [Query("document", 1), Query("suffix", 2)])
def test_bars_stand_where_the_trace_says(run: FinishedRun, query: Query) -> None:
    trace = run.result.traces["pine"]
    starts = trace.document_starts if query.kind == "document" else trace.suffix_starts
    by_layer = draw_positions(run, Selection("pine", query, 1, 2)).figures["positions"]
    by_head = draw_positions(run, Selection("pine", query, 1, 2, rows="head")).figures["positions"]
    assert [bar.name for bar in by_layer.data[:3]] == ["document B", "document A", "document C"]
    for slot in range(3):
        np.testing.assert_array_equal(by_layer.data[slot].base, starts[:, 2, query.index, slot])
        np.testing.assert_array_equal(by_head.data[slot].base, starts[1, :, query.index, slot])
    assert by_layer.layout.title.text.startswith("PINE: position of each document for one query, head 2")
    (chosen,) = by_head.layout.shapes
    assert (chosen.y0, chosen.y1) == (1.5, 2.5)


def test_methods_whose_answer_was_over_are_left_out(run: FinishedRun) -> None:
    lengths = {name: trace.suffix_starts.shape[2] for name, trace in run.result.traces.items()}
    short = replace(
        run.result.traces["vanilla"], suffix_starts=run.result.traces["vanilla"].suffix_starts[:, :, :-1]
    )
    cut = replace(run, result=replace(run.result, traces=run.result.traces | {"vanilla": short}))
    last = Query("suffix", lengths["vanilla"] - 1)
    whole = draw_positions(run, Selection("pine", last, 0, 0)).figures["method-positions"].data[0].y
    without = draw_positions(cut, Selection("pine", last, 0, 0)).figures["method-positions"].data[0].y
    assert set(whole) - set(without) == {"Vanilla"}
    over = draw_positions(cut, Selection("vanilla", last, 0, 0))
    assert "This answer was over before that token" in over.html and set(over.figures) == {"method-positions"}


def test_the_map_has_a_row_for_the_chosen_query(run: FinishedRun) -> None:
    layout, trace = run.result.layout, run.result.traces["pine"]
    rows = [("document 2", 2), ("suffix 0", 3), (f"suffix {layout.suffix_length}", 4)]
    for value, row in rows:
        query = Query.parse(value)
        assert query is not None
        figure = draw_positions(run, Selection("pine", query, 1, 2)).figures["position-map"]
        (heat,) = figure.data
        (chosen,) = figure.layout.shapes
        assert (chosen.y0 + chosen.y1) / 2 == row and heat.meta["y"][row] == {"query": value}
        starts = trace.document_starts if query.kind == "document" else trace.suffix_starts
        np.testing.assert_array_equal(heat.z[row], starts[1, 2, query.index])
    assert list(heat.y) == ["B", "A", "C", "SUF", "OUT 1"]


def test_a_row_is_a_layer_or_a_head_as_the_buttons_say(run: FinishedRun) -> None:
    selection = Selection("pine", Query("suffix", 1), 1, 0)
    for rows in ("layer", "head"):
        html = draw_positions(run, selection.picked({"rows": rows}, bounds_of(run))).html
        [buttons] = [switch.all("button") for switch in read_html(html).with_class("pine-switch")]
        pressed = [button.text for button in buttons if button.attributes["aria-pressed"] == "true"]
        assert pressed == [f"a {rows}"]


@pytest.mark.slow
def test_queries_everywhere_can_be_drawn_under_every_method(run: FinishedRun) -> None:
    """Every document, and one after the other in the suffix with steps of 8, to its last token."""
    last = longest_suffix(run) - 1
    queries = [Query("document", slot) for slot in range(3)]
    queries += [Query("suffix", index) for index in (*range(0, last, 8), last)]
    for method in run.result.traces:
        for query in queries:
            assert_harmless(draw_positions(run, Selection(method, query)).html)


def test_a_run_without_ranking_has_nothing_to_choose(engine: Engine) -> None:
    alone = finish(engine, THREE, methods=("vanilla",))
    html = draw_positions(alone, Selection("vanilla", Query("document", 0))).html
    assert "alike in every layer and head." in html and "Choose" not in html


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


@pytest.mark.parametrize("method", [row.name for row in TUTORIAL_METHODS])
def test_a_ruler_of_the_example_has_the_numbers_of_its_row(method: str) -> None:
    positions, queries = example_positions(METHODS[method])
    for query in range(8):
        view = example_view(METHODS[method], query)
        assert view.shown_position == queries[query]
        for document in range(3):
            keys = positions[query, LAYOUT.document_slice(document)]
            assert view.is_visible(document) == (keys[0] != MASKED)
            if view.is_visible(document):
                first, last = view.span(document)
                assert first == keys[0] and (keys[1] in (last, MASKED))


def test_the_running_example_shows_all_methods_and_a_ruler_for_every_token() -> None:
    root = read_html(running_example_html())
    assert len(root.with_class("pine-mask")) == len(TUTORIAL_METHODS) == 5
    figure = picture(running_example_html(), "example-positions")
    assert len(figure.with_class("pine-matrix")) == len(TUTORIAL_METHODS)
    numbers = numbers_of(figure)
    pine = [row[2:] for row in numbers["rows"] if row[0] == "PINE"]
    # Specification 6.1, rows D1a and X: the query's position, then its keys.
    assert pine[1] == [6, 1, 6, None, 4, 5, 2, 3, None] and pine[7] == [8, 1, 2, 3, 6, 7, 4, 5, 8]
    names = {figure.attributes["data-name"] for figure in root.with_class("pine-picture")}
    assert {f"example-ruler-{query}" for query in range(1, 9)} < names
    assert_harmless(running_example_html())
