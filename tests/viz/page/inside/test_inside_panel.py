"""The pictures of a run, and the selection that they share."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gradio as gr
import pytest

from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError
from tests.support.runs import swapped, telling_queries
from tests.support.tokenizers import letter_tokenizer
from tests.support.viz_reading import HOSTILE, assert_harmless, read_html
from tests.support.widgets import built
from viz.export.packed import packed_json
from viz.page.answers.answering import FinishedRun, answer
from viz.page.form.documents import entries_from
from viz.page.form.form import Form
from viz.page.inside.inside_panel import (
    DRAWING,
    FIGURES,
    TABS,
    _chosen,
    _shown,
    after_pick,
    build_inside,
    new_picks,
    wire_inside,
)
from viz.page.inside.reading import (
    bounds_of,
    first_selection,
    longest_suffix,
    query_at,
    query_choices,
    query_of_step,
    step_of,
    summary_html,
    token_of,
    turned,
)
from viz.page.inside.selection import Query, Selection
from viz.page.jobs.loading import EngineSource
from viz.page.jobs.sources import Sources

THREE = entries_from([("Varo", "red cat"), ("Senna", "green"), ("Orm", "white hats")])
NAMES = list(DRAWING)


def finish(engine: Engine, form: Form) -> FinishedRun:
    *_, last = answer(engine, form)
    assert last.finished is not None
    return last.finished


@pytest.fixture(scope="module")
def engine(tiny_llama: Callable[..., Any]) -> Engine:
    return Engine(tiny_llama(max_context_length=1024), letter_tokenizer(), name="tiny")


@pytest.fixture(scope="module")
def form() -> Form:
    entries = swapped(THREE, 0)
    return Form("retrieval_qa", "Which is green?", "Answer.", ("vanilla", "pcw", "pine"), 3, entries)


@pytest.fixture(scope="module")
def run(engine: Engine, form: Form) -> FinishedRun:
    return finish(engine, form)


def assert_drawn(tab: str, run: FinishedRun, selection: Selection) -> None:
    """Something is drawn, and every figure has a place."""
    drawn = DRAWING[tab](run, selection)
    assert drawn.figures or read_html(drawn.html).with_class("pine-picture")
    assert set(drawn.figures) <= {place for column in FIGURES.get(tab, ()) for place in column}
    assert all(figure.layout.meta["name"] == place for place, figure in drawn.figures.items())


@pytest.mark.parametrize("tab", NAMES)
def test_every_picture_is_drawn_for_every_kind_of_query(tab: str, run: FinishedRun) -> None:
    first = first_selection(run)
    for value in telling_queries(run):
        assert_drawn(tab, run, first.picked({"query": value}, bounds_of(run)))


@pytest.mark.parametrize("tab", NAMES)
@pytest.mark.parametrize("changes", [{"layer": None}, {"head": None}, {"layer": None, "head": None}])
@pytest.mark.parametrize("method", ["vanilla", "pcw", "pine"])
def test_every_picture_is_drawn_for_means_and_for_every_method(
    tab: str, changes: dict[str, Any], method: str, run: FinishedRun
) -> None:
    selection = replace(first_selection(run), method=method, **changes)
    assert_drawn(tab, run, selection)


@pytest.mark.parametrize("tab", NAMES)
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text_in_every_picture(tab: str, text: str, engine: Engine, form: Form) -> None:
    entries = entries_from([(text, text), ("", f"plain {text}")])
    run = finish(engine, replace(form, entries=entries, question=f"q {text}"))
    drawn = DRAWING[tab](run, first_selection(run))
    assert_harmless(drawn.html)
    for figure in drawn.figures.values():
        written = json.dumps(json.loads(packed_json(figure)), ensure_ascii=False)
        tags = set(re.findall(r"<[^>]*>", written))
        title_tags = {"<span style='font-size: 0.9em'>", "</span>"}  # of panels
        assert tags <= {"<br>", "<b>", "</b>", "<extra>", "</extra>", *title_tags}
    assert_harmless(summary_html(run))


def test_every_query_of_a_run_can_be_chosen(run: FinishedRun) -> None:
    choices = query_choices(run)
    assert choices[0] == ("Document B · Senna", "document 0")
    assert len(choices) == 3 + longest_suffix(run)
    assert all(bounds_of(run).has(query) for _, value in choices if (query := Query.parse(value)))


def test_a_key_goes_through_all_queries_and_stops_at_the_ends(run: FinishedRun) -> None:
    choices = query_choices(run)
    query, seen = Query("document", 0), []
    for _ in choices:
        label, query = turned(run, query, 1)
        seen.append((label, str(query)))
    assert seen == [*choices[1:], choices[-1]]
    assert turned(run, query, -1) == (choices[-2][0], Query.parse(choices[-2][1]))
    assert turned(run, Query("document", 0), -1) == (choices[0][0], Query("document", 0))


def test_a_step_is_written_by_the_token_before_it(run: FinishedRun) -> None:
    suffix = run.result.layout.suffix_length
    assert query_of_step(run, 0) == Query("suffix", suffix - 1)
    for step in range(3):
        assert step_of(run, query_of_step(run, step)) == step
    assert step_of(run, Query("suffix", suffix - 2)) is None
    assert step_of(run, Query("document", 1)) is None


def test_what_the_widgets_show_is_what_is_selected(run: FinishedRun) -> None:
    for selection in (
        first_selection(run),
        Selection("vanilla", Query("document", 2), None, 1, "log", False, "method:pcw", "head"),
    ):
        values = (selection.method, str(selection.query), _shown(selection.layer), _shown(selection.head))
        other = Selection("pine", Query("suffix", 0))
        shown = _chosen(other, *values)
        assert (shown.method, shown.query, shown.layer, shown.head) == (
            selection.method,
            selection.query,
            selection.layer,
            selection.head,
        )
        assert shown.normalization == other.normalization


def test_functions_that_take_an_event_get_it(engine: Engine) -> None:
    """gradio reads their hints, and one that it cannot resolve hides the event from it, without a word."""

    def build() -> Any:
        with gr.Blocks() as page:
            sources = Sources(EngineSource(lambda: engine, "tiny"))
            click = gr.Button().click(lambda: None)
            wire_inside(build_inside(), gr.State(None), [click], sources, gr.State(None))
        return page

    taking = {
        function.name: gr.utils.get_type_hints(function.fn).get("event")
        for function in built(build).fns.values()
        if function.name == "open_tab"
    }
    assert taking == {"open_tab": gr.EventData}


def test_of_picks_that_wait_for_each_other_every_one_counts() -> None:
    sent = json.dumps([[3, {"layer": 1}], [4, {"turn": 1}], [5, {"turn": 1}]])
    assert new_picks(sent, 3) == [(4, {"turn": 1}), (5, {"turn": 1})]
    assert new_picks(sent, 5) == [] == new_picks("", 0)


@pytest.mark.parametrize("sent", ["[", '[["a", {}]]', "[[1, 2]]", json.dumps([[1, {}]] * 21)])
def test_what_are_no_picks_is_refused_in_a_sentence(sent: str) -> None:
    with pytest.raises(InputError, match="the picks cannot be read: "):
        new_picks(sent, 0)


def test_a_token_picks_the_query_that_stands_for_it(run: FinishedRun) -> None:
    layout, first = run.result.layout, first_selection(run)
    for _, value in query_choices(run):
        query = Query.parse(value)
        assert query is not None and query_at(run, token_of(run, query)) == query
        assert after_pick(run, first, {"token": token_of(run, query)})[0].query == query
    for slot, start in enumerate(layout.document_starts.tolist()):
        assert query_at(run, start) == Query("document", slot)
        # Of long prompts a cell is several tokens, and its middle may lie between two.
        assert after_pick(run, first, {"token": start + 0.5})[0].query == Query("document", slot)
    for outside in (
        0,
        layout.prefix_length - 1,
        layout.documents_end + longest_suffix(run),
        float("inf"),
        "5",
    ):
        assert after_pick(run, first, {"token": outside}) == (first, "")


def test_a_pick_of_nonsense_selects_what_was_selected(run: FinishedRun) -> None:
    first = first_selection(run)
    for nonsense in ({"turn": 2}, {"turn": "1"}, {"query": 5}, {"layer": 99}, {}):
        assert after_pick(run, first, nonsense) == (first, "")


def test_the_tabs_of_the_pictures_are_drawn_by_someone() -> None:
    assert [name for name, _ in TABS] == ["attention", *NAMES]
    assert [DRAWING[name].__name__ for name in NAMES] == [f"draw_{name}" for name in NAMES]
