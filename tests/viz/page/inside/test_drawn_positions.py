"""The tab of positions: numbers of the figures against the trace."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pine_engine.engine.engine import Engine
from tests.support.runs import THREE, finish, swapped
from tests.support.tokenizers import letter_tokenizer
from tests.support.viz_reading import assert_harmless, read_html
from viz.figures.head_decisiveness import decisiveness, most_decisive
from viz.page.answers.answering import FinishedRun
from viz.page.inside.drawn_positions import (
    draw_positions,
    shown_place,
)
from viz.page.inside.reading import bounds_of, longest_suffix
from viz.page.inside.selection import Query, Selection


@pytest.fixture(scope="module")
def engine(tiny_llama: Callable[..., Any]) -> Engine:
    return Engine(tiny_llama(max_context_length=1024), letter_tokenizer(), name="tiny")


@pytest.fixture(scope="module")
def run(engine: Engine) -> FinishedRun:
    """The documents B, A, C, in that order."""
    return finish(engine, swapped(THREE, 0))


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


def test_mean_names_its_most_decisive_head(run: FinishedRun) -> None:
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
    title = by_layer.layout.title.text
    assert title.startswith("PINE: ") and title.endswith(", head 2")
    (chosen,) = by_head.layout.shapes
    assert (chosen.y0, chosen.y1) == (1.5, 2.5)


def test_an_answer_that_was_over_says_so(run: FinishedRun) -> None:
    drawn = draw_positions(run, Selection("pine", Query("suffix", longest_suffix(run)), 0, 0))
    assert "This answer was over before that token" in drawn.html and not drawn.figures


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
