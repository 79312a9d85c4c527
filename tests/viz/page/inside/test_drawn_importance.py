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
from tests.support.runs import finish
from tests.support.tokenizers import letter_tokenizer
from tests.support.viz_reading import HOSTILE, Element, assert_harmless, read_html
from viz.drawing.identity import document_segment
from viz.figures.importance import most_decisive, normalise, spread
from viz.page.answers.answering import FinishedRun
from viz.page.form import documents
from viz.page.form.documents import entries_from
from viz.page.inside.drawn_importance import draw_importance
from viz.page.inside.reading import bounds_of, first_selection, query_of_step
from viz.page.inside.selection import Query, Selection

THREE = entries_from([("Varo", "red"), ("Senna", "green cat"), ("Orm", "white")])
STEPS = 4


@pytest.fixture(scope="module")
def engine(tiny_llama: Callable[..., Any]) -> Engine:
    return Engine(tiny_llama(max_context=1024), letter_tokenizer(), name="tiny")


@pytest.fixture(scope="module")
def run(engine: Engine) -> FinishedRun:
    """The documents B, A, C, in that order."""
    return finish(engine, documents.move(THREE, 0, 1), max_new_tokens=STEPS)


@pytest.fixture
def selection(run: FinishedRun) -> Selection:
    return replace(first_selection(run), method="pine", layer=1, head=2, normalisation="raw")


def suffix_importance(run: FinishedRun) -> np.ndarray:
    found = run.result.traces["pine"].suffix_importance
    assert found is not None
    return found


def suffix_attention(run: FinishedRun, method: str) -> np.ndarray:
    found = run.result.traces[method].suffix_attention
    assert found is not None
    return found


def picture(html: str, name: str) -> Element:
    """The picture of that name."""
    return next(
        figure
        for figure in read_html(html).with_class("pine-picture")
        if figure.attributes["data-name"] == name
    )


def numbers(html: str, name: str) -> Any:
    """The rows of the numbers of a picture."""
    return json.loads(picture(html, name).with_class("pine-numbers")[0].text)["rows"]


def values(html: str, name: str, lead: int) -> np.ndarray:
    """The numbers of a picture without the first columns; NaN where there is none."""
    return np.array([row[lead:] for row in numbers(html, name)], dtype=np.float32)


def caption(html: str, name: str) -> str:
    return picture(html, name).all("figcaption")[0].text


def pressed(html: str) -> list[str]:
    return [
        button.text
        for switch in read_html(html).with_class("pine-switch")
        for button in switch.all("button")
        if button.attributes["aria-pressed"] == "true"
    ]


def test_the_strip_has_the_spreads_of_the_trace(run: FinishedRun, selection: Selection) -> None:
    html = draw_importance(run, selection)
    expected = spread(suffix_importance(run))
    np.testing.assert_array_equal(values(html, "decisive-heads", 1), expected.T)
    layer, head = most_decisive(expected)
    assert f"Most decisive: layer {layer}, head {head}" in caption(html, "decisive-heads")
    assert "Chosen: layer 1, head 2" in caption(html, "decisive-heads")


def test_the_most_decisive_head_is_chosen_first(run: FinishedRun) -> None:
    first = first_selection(run)
    assert (first.layer, first.head) == most_decisive(spread(suffix_importance(run)))
    assert pressed(draw_importance(run, first))[0] == f"most decisive: layer {first.layer}, head {first.head}"


def test_documents_are_drawn_as_the_trace_has_them(run: FinishedRun, selection: Selection) -> None:
    importance = run.result.traces["pine"].document_importance
    assert importance is not None
    html = draw_importance(run, selection)
    np.testing.assert_array_equal(values(html, "importance-of-documents", 1), importance[1, 2])
    assert [row[0] for row in numbers(html, "importance-of-documents")] == ["B", "A", "C"]
    shares = draw_importance(run, replace(selection, normalisation="share"))
    np.testing.assert_array_equal(
        values(shares, "importance-of-documents", 1), normalise(importance[1, 2], "share")
    )
    mean = draw_importance(run, replace(selection, layer=None, head=None))
    np.testing.assert_allclose(
        values(mean, "importance-of-documents", 1), importance.mean(axis=(0, 1)), rtol=1e-6
    )
    assert "PINE, mean over layers and heads" in caption(mean, "importance-of-documents")


def test_each_word_is_drawn_from_the_query_that_writes_it(run: FinishedRun, selection: Selection) -> None:
    html = draw_importance(run, replace(selection, query=query_of_step(run, 2)))
    first = run.result.layout.suffix_length - 1
    count = len(run.answer_tokens["pine"])
    expected = suffix_importance(run)[1, 2, first : first + count]
    np.testing.assert_array_equal(values(html, "importance-while-writing", 2), expected)
    drawn = numbers(html, "importance-while-writing")
    assert [row[:2] for row in drawn] == [
        [step + 1, text] for step, text in enumerate(run.answer_tokens["pine"])
    ]
    words = picture(html, "importance-while-writing").with_class("pine-answer-tokens")[0].all("button")
    picked = [json.loads(word.attributes["data-pick"])["query"] for word in words]
    assert picked == [f"suffix {first + step}" for step in range(count)]
    assert [word.attributes["aria-pressed"] == "true" for word in words] == [
        step == 2 for step in range(count)
    ]


def test_a_method_that_does_not_rank_shows_its_attention(run: FinishedRun, selection: Selection) -> None:
    html = draw_importance(run, replace(selection, method="vanilla"))
    first = run.result.layout.suffix_length - 1
    count = len(run.answer_tokens["vanilla"])
    expected = suffix_attention(run, "vanilla")[1, 2, first : first + count]
    np.testing.assert_array_equal(values(html, "importance-while-writing", 2), expected)
    said = caption(html, "importance-while-writing")
    assert said.startswith("This method does not rank documents") and "Vanilla, layer 1, head 2" in said
    # What another method ranks is still there, under its own name.
    assert caption(html, "importance-of-documents").startswith("PINE, layer 1, head 2")


@pytest.mark.parametrize("method", list(METHODS))
def test_the_bars_are_the_attention_of_the_step(method: str, run: FinishedRun, selection: Selection) -> None:
    attention = suffix_attention(run, method)[1, 2]
    row = run.result.layout.suffix_length - 1 + 1
    chosen = replace(selection, method=method, query=query_of_step(run, 1))
    html = draw_importance(run, chosen)
    assert [row[0] for row in numbers(html, "attention-by-document")] == ["SYS", "B", "A", "C", "SUF"]
    np.testing.assert_array_equal(values(html, "attention-by-document", 1)[:, 0], attention[row])
    assert "while writing token 2" in caption(html, "attention-by-document")
    alone = draw_importance(run, replace(chosen, with_prefix=False))
    assert [row[0] for row in numbers(alone, "attention-by-document")] == ["B", "A", "C"]
    documents_alone = attention[row, 1:-1] / attention[row, 1:-1].sum()
    drawn = values(alone, "attention-by-document", 1)[:, 0]
    np.testing.assert_allclose(drawn, documents_alone, rtol=1e-6)
    assert "left out" in caption(alone, "attention-by-document")
    assert "left out" not in caption(html, "attention-by-document")


@pytest.mark.parametrize("query", [Query("document", 1), Query("suffix", 0), Query("suffix", 9999)])
def test_without_a_chosen_word_the_bars_are_the_mean_of_the_answer(
    query: Query, run: FinishedRun, selection: Selection
) -> None:
    html = draw_importance(run, replace(selection, query=query))
    first, count = run.result.layout.suffix_length - 1, len(run.answer_tokens["pine"])
    attention = suffix_attention(run, "pine")[1, 2, first : first + count]
    drawn = values(html, "attention-by-document", 1)[:, 0]
    np.testing.assert_allclose(drawn, attention.mean(axis=0), rtol=1e-6)
    assert f"mean over its {count} tokens" in caption(html, "attention-by-document")
    rows = picture(html, "importance-of-documents").all("tbody")[0].all("tr")
    assert ["pine-selected" in row.classes for row in rows] == [
        query == Query("document", slot) for slot in range(3)
    ]


def test_a_prompt_without_a_prefix_has_no_bar_for_it(run: FinishedRun, selection: Selection) -> None:
    layout = replace(run.result.layout, prefix=())
    bare = replace(run, result=replace(run.result, layout=layout))
    drawn = numbers(draw_importance(bare, selection), "attention-by-document")
    assert [row[0] for row in drawn] == ["B", "A", "C", "SUF"]


@pytest.mark.parametrize(
    ("changes", "buttons"),
    [
        ({"normalisation": "log", "with_prefix": False}, ["log scale", "documents only"]),
        ({"head": None}, ["mean over heads", "raw", "everything"]),
        ({"layer": None, "head": None, "normalisation": "share"}, ["mean over all", "share of the row"]),
    ],
)
def test_the_switches_show_what_is_selected(
    changes: dict[str, Any], buttons: list[str], run: FinishedRun, selection: Selection
) -> None:
    assert set(buttons) <= set(pressed(draw_importance(run, replace(selection, **changes))))


def test_the_buttons_lead_back_to_what_they_say(run: FinishedRun, selection: Selection) -> None:
    layer, head = most_decisive(spread(suffix_importance(run)))
    picked = {
        button.text: json.loads(button.attributes["data-pick"])
        for switch in read_html(draw_importance(run, selection)).with_class("pine-switch")
        for button in switch.all("button")
    }
    assert picked == {
        f"most decisive: layer {layer}, head {head}": {"layer": layer, "head": head},
        "mean over heads": {"head": None},
        "mean over all": {"layer": None, "head": None},
        "raw": {"normalisation": "raw"},
        "share of the row": {"normalisation": "share"},
        "log scale": {"normalisation": "log"},
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
    told = replace(
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
        answer_records={"pine": told},
    )
    draw_importance(large, selection)  # the first reads the templates
    began = time.process_time()
    html = draw_importance(large, replace(selection, layer=7, head=None))
    # Measured: 0.1 s. Ten times that would be noticed, a busy machine should not be.
    assert time.process_time() - began < 1
    assert len(html.encode()) < 500_000


def test_every_pick_is_understood_by_the_page(run: FinishedRun, selection: Selection) -> None:
    pending: list[tuple[Element, dict[str, Any]]] = [(read_html(draw_importance(run, selection)), {})]
    picks = []
    while pending:
        element, shared = pending.pop()
        shared = json.loads(element.attributes.get("data-shared", "{}")) or shared
        if "data-pick" in element.attributes:
            picks.append(shared | json.loads(element.attributes["data-pick"]))
        pending += [(child, shared) for child in element.children]
    assert len(picks) > 30
    for what in picks:
        chosen = selection.picked(what, bounds_of(run))
        for field, value in what.items():
            shown = getattr(chosen, field)
            assert (str(shown) if field == "query" else shown) == value, what


def test_a_run_without_ranking_says_so_and_shows_attention(engine: Engine) -> None:
    run = finish(engine, THREE, methods=("vanilla", "nia"))
    html = draw_importance(run, first_selection(run))
    assert "No method of this run ranks the documents" in html
    names = [figure.attributes["data-name"] for figure in read_html(html).with_class("pine-picture")]
    assert names == ["attention-by-document", "importance-while-writing"]
    assert not any("decisive" in label for label in pressed(html))


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text(text: str, run: FinishedRun, selection: Selection) -> None:
    told = replace(run.answer_records["pine"], tokens=(text, *run.answer_records["pine"].tokens[1:]))
    hostile = replace(run, answer_records=run.answer_records | {"pine": told}, titles=(text,) * 3, model=text)
    html = draw_importance(hostile, replace(selection, query=query_of_step(run, 0)))
    assert_harmless(html)
    assert numbers(html, "importance-while-writing")[0][1] == text
