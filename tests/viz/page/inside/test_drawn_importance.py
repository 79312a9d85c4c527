"""The tab of importance: its numbers against the trace, and what its buttons and cells pick."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pine_engine.engine.engine import Engine
from pine_engine.methods.table import METHODS
from tests.support.runs import finish, swapped
from tests.support.tokenizers import letter_tokenizer
from tests.support.viz_reading import read_html
from viz.drawing.identity import document_segment
from viz.export.packed import packed_json
from viz.figures.head_decisiveness import decisiveness, most_decisive
from viz.figures.importance import normalize
from viz.page.answers.answering import FinishedRun
from viz.page.form.documents import entries_from
from viz.page.inside.drawn_importance import draw_importance
from viz.page.inside.reading import bounds_of, first_selection, query_of_step
from viz.page.inside.selection import Query, Selection

THREE = entries_from([("Varo", "red"), ("Senna", "green cat"), ("Orm", "white")])
STEPS = 4


@pytest.fixture(scope="module")
def engine(tiny_llama: Callable[..., Any]) -> Engine:
    return Engine(tiny_llama(max_context_length=1024), letter_tokenizer(), name="tiny")


@pytest.fixture(scope="module")
def run(engine: Engine) -> FinishedRun:
    """The documents B, A, C, in that order."""
    return finish(engine, swapped(THREE, 0), max_new_tokens=STEPS)


@pytest.fixture
def selection(run: FinishedRun) -> Selection:
    return replace(first_selection(run), method="pine", layer=1, head=2, normalization="raw")


def suffix_importance(run: FinishedRun) -> np.ndarray:
    found = run.result.traces["pine"].suffix_importance
    assert found is not None
    return found


def suffix_attention(run: FinishedRun, method: str) -> np.ndarray:
    found = run.result.traces[method].suffix_attention
    assert found is not None
    return found


def pressed(html: str) -> list[str]:
    return [
        button.text
        for switch in read_html(html).with_class("pine-switch")
        for button in switch.all("button")
        if button.attributes["aria-pressed"] == "true"
    ]


def test_the_heads_are_the_spreads_of_the_trace(run: FinishedRun, selection: Selection) -> None:
    expected = decisiveness(run.result.traces["pine"])
    boxes: tuple[tuple[dict[str, Any], Any], ...] = (
        ({}, (0.5, 1.5, 1.5, 2.5)),
        ({"head": None}, (0.5, 1.5, -0.5, 3.5)),
        ({"layer": None}, (-0.5, 1.5, 1.5, 2.5)),
    )
    for changes, box in boxes:
        figure = draw_importance(run, replace(selection, **changes)).figures["decisive-heads"]
        np.testing.assert_array_equal(figure.data[0].z, expected.T)
        (chosen,) = figure.layout.shapes
        assert (chosen.x0, chosen.x1, chosen.y0, chosen.y1) == box
    everywhere = draw_importance(run, replace(selection, layer=None, head=None)).figures["decisive-heads"]
    assert not everywhere.layout.shapes


def test_the_most_decisive_head_is_chosen_first(run: FinishedRun) -> None:
    first = first_selection(run)
    assert (first.layer, first.head) == most_decisive(decisiveness(run.result.traces["pine"]))
    html = draw_importance(run, first).html
    assert pressed(html)[0] == f"most decisive: layer {first.layer}, head {first.head}"


def test_documents_are_drawn_as_the_trace_has_them(run: FinishedRun, selection: Selection) -> None:
    importance = run.result.traces["pine"].document_importance
    assert importance is not None

    def drawn(**changes: Any) -> Any:
        return draw_importance(run, replace(selection, **changes)).figures["importance"]

    np.testing.assert_array_equal(drawn().data[0].z, importance[1, 2])
    assert list(drawn().data[0].y) == ["B", "A", "C"]
    np.testing.assert_array_equal(
        drawn(normalization="share").data[0].z, normalize(importance[1, 2], "share")
    )
    mean = drawn(layer=None, head=None)
    np.testing.assert_allclose(mean.data[0].z, importance.mean(axis=(0, 1)), rtol=1e-6)
    assert mean.layout.title.text.startswith("PINE: ")
    assert "mean over layers and heads" in mean.layout.title.text
    (chosen,) = drawn(query=Query("document", 2)).layout.shapes
    assert (chosen.y0, chosen.y1) == (1.5, 2.5) and not drawn().layout.shapes


def test_each_token_is_drawn_from_the_query_that_writes_it(run: FinishedRun, selection: Selection) -> None:
    figure = draw_importance(run, replace(selection, query=query_of_step(run, 2))).figures[
        "answer-importance"
    ]
    first = run.result.layout.suffix_length - 1
    count = len(run.answer_tokens["pine"])
    np.testing.assert_array_equal(figure.data[0].z, suffix_importance(run)[1, 2, first : first + count])
    assert [what["query"] for what in figure.data[0].meta["y"]] == [
        f"suffix {first + s}" for s in range(count)
    ]
    (chosen,) = figure.layout.shapes
    assert (chosen.y0, chosen.y1) == (1.5, 2.5)


def test_a_method_that_does_not_rank_shows_its_attention(run: FinishedRun, selection: Selection) -> None:
    figures = draw_importance(run, replace(selection, method="vanilla")).figures
    first = run.result.layout.suffix_length - 1
    count = len(run.answer_tokens["vanilla"])
    expected = suffix_attention(run, "vanilla")[1, 2, first : first + count, 1:-1]
    np.testing.assert_array_equal(figures["answer-importance"].data[0].z, expected)
    message = figures["answer-importance"].layout
    assert "does not rank" in message.meta["caption"] and message.title.text.startswith("Vanilla: ")
    # What another method ranks is still there, under its own name.
    assert figures["importance"].layout.title.text.startswith("PINE: ")


@pytest.mark.parametrize("method", list(METHODS))
def test_the_bars_are_the_attention_of_the_step(method: str, run: FinishedRun, selection: Selection) -> None:
    attention = suffix_attention(run, method)[1, 2]
    row = run.result.layout.suffix_length - 1 + 1
    chosen = replace(selection, method=method, query=query_of_step(run, 1))
    whole = draw_importance(run, chosen).figures["attention-shares"]
    assert list(whole.data[0].x) == ["SYS", "B", "A", "C", "SUF"]
    np.testing.assert_array_equal(whole.data[0].y, attention[row])
    assert "answer token 2" in whole.layout.title.text
    alone = draw_importance(run, replace(chosen, with_prefix=False)).figures["attention-shares"]
    assert list(alone.data[0].x) == ["B", "A", "C"]
    documents_alone = attention[row, 1:-1] / attention[row, 1:-1].sum()
    np.testing.assert_allclose(alone.data[0].y, documents_alone, rtol=1e-6)


@pytest.mark.parametrize("query", [Query("document", 1), Query("suffix", 0), Query("suffix", 9999)])
def test_without_a_chosen_token_the_bars_are_the_mean_of_the_answer(
    query: Query, run: FinishedRun, selection: Selection
) -> None:
    figure = draw_importance(run, replace(selection, query=query)).figures["attention-shares"]
    first, count = run.result.layout.suffix_length - 1, len(run.answer_tokens["pine"])
    attention = suffix_attention(run, "pine")[1, 2, first : first + count]
    np.testing.assert_allclose(figure.data[0].y, attention.mean(axis=0), rtol=1e-6)
    assert f"mean over {count} answer tokens" in figure.layout.title.text


def test_a_prompt_without_a_prefix_has_no_bar_for_it(run: FinishedRun, selection: Selection) -> None:
    layout = replace(run.result.layout, prefix=())
    traces = {name: replace(trace, layout=layout) for name, trace in run.result.traces.items()}
    bare = replace(run, result=replace(run.result, layout=layout, traces=traces))
    drawn = draw_importance(bare, selection).figures["attention-shares"]
    assert list(drawn.data[0].x) == ["B", "A", "C", "SUF"]


@pytest.mark.parametrize(
    ("changes", "buttons"),
    [
        ({"normalization": "log", "with_prefix": False}, ["log scale", "documents only"]),
        ({"head": None}, ["mean over heads", "raw", "everything"]),
        ({"layer": None, "head": None, "normalization": "share"}, ["mean over all", "share of the row"]),
    ],
)
def test_the_switches_show_what_is_selected(
    changes: dict[str, Any], buttons: list[str], run: FinishedRun, selection: Selection
) -> None:
    assert set(buttons) <= set(pressed(draw_importance(run, replace(selection, **changes)).html))


def test_the_buttons_lead_back_to_what_they_say(run: FinishedRun, selection: Selection) -> None:
    layer, head = most_decisive(decisiveness(run.result.traces["pine"]))
    picked = {
        button.text: json.loads(button.attributes["data-pick"])
        for switch in read_html(draw_importance(run, selection).html).with_class("pine-switch")
        for button in switch.all("button")
    }
    assert picked == {
        f"most decisive: layer {layer}, head {head}": {"layer": layer, "head": head},
        "mean over heads": {"head": None},
        "mean over all": {"layer": None, "head": None},
        "raw": {"normalization": "raw"},
        "share of the row": {"normalization": "share"},
        "log scale": {"normalization": "log"},
        "everything": {"with_prefix": True},
        "documents only": {"with_prefix": False},
    }


def test_fifty_documents_are_drawn_at_once(run: FinishedRun, selection: Selection) -> None:
    """32 layers of 32 heads, 50 documents, 64 answer tokens: a fraction of a second, less than a megabyte."""
    rng = np.random.default_rng(0)
    layout = replace(run.result.layout, documents=((1,) * 140,) * 50)
    rows = layout.suffix_length + 63
    trace = replace(
        run.result.traces["pine"],
        layout=layout,
        suffix_starts=np.zeros((1, 1, rows, 50), np.int32),
        document_importance=rng.random((32, 32, 50, 50), np.float32),
        suffix_importance=rng.random((32, 32, rows, 50), np.float32),
        suffix_attention=rng.random((32, 32, rows, 52), np.float32),
    )
    record = replace(
        run.answer_records["pine"],
        token_ids=(1,) * 64,
        tokens=(" word",) * 64,
        logprobs=(-0.1,) * 64,
        alternatives=((),) * 64,
        attention=np.zeros((64, 52), np.float32),
        documents=tuple(document_segment(slot) for slot in range(50)),
    )
    large = replace(
        run,
        result=replace(run.result, layout=layout, traces={"pine": trace}),
        order=tuple(range(50)),
        answer_records={"pine": record},
    )
    draw_importance(large, selection)  # the first reads the templates
    began = time.process_time()
    drawn = draw_importance(large, replace(selection, layer=7, head=None))
    written = sum(len(packed_json(figure)) for figure in drawn.figures.values())
    # Measured: 0.2 s. Five times that would be noticed, a busy machine should not be.
    assert time.process_time() - began < 1
    assert written < 500_000


def test_every_pick_is_understood_by_the_page(run: FinishedRun, selection: Selection) -> None:
    picks = [
        what
        for figure in draw_importance(run, selection).figures.values()
        for trace in figure.data
        for axis in (trace.meta or {}).values()
        for what in axis
    ]
    assert len(picks) > 10
    for what in picks:
        chosen = selection.picked(what, bounds_of(run))
        for field, value in what.items():
            shown = getattr(chosen, field)
            assert (str(shown) if field == "query" else shown) == value, what


def test_a_run_without_ranking_says_so_and_shows_attention(engine: Engine) -> None:
    run = finish(engine, THREE, methods=("vanilla", "nia"))
    drawn = draw_importance(run, first_selection(run))
    assert "No method of this run ranks the documents" in drawn.html
    assert set(drawn.figures) == {"attention-shares", "answer-importance"}
    assert not any("decisive" in label for label in pressed(drawn.html))


def test_single_document_is_described_as_unranked(engine: Engine) -> None:
    run = finish(engine, THREE[:1], methods=("pine",))
    drawn = draw_importance(run, first_selection(run))
    assert "nothing to rank" in drawn.html and "importance" not in drawn.figures
