"""The pictures of a run, and the selection that they share."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gradio as gr
import pytest

from pine_engine.engine.engine import Engine
from tests.support.tokenizers import letter_tokenizer
from tests.support.viz_reading import HOSTILE, assert_harmless, read_html
from tests.support.widgets import built
from viz.page.answers.answering import FinishedRun, answer
from viz.page.form import documents
from viz.page.form.documents import entries_from
from viz.page.form.form import Form
from viz.page.inside.inside_panel import DRAWING, TABS, _chosen, _shown, build_inside, wire_inside
from viz.page.inside.reading import (
    bounds_of,
    first_selection,
    longest_suffix,
    query_choices,
    query_of_step,
    step_of,
    summary_html,
    turned,
)
from viz.page.inside.selection import Query, Selection

THREE = entries_from([("Varo", "red cat"), ("Senna", "green"), ("Orm", "white hats")])
NAMES = [name for name, _ in TABS]


def finish(engine: Engine, form: Form) -> FinishedRun:
    *_, last = answer(engine, form)
    assert last.finished is not None
    return last.finished


@pytest.fixture(scope="module")
def engine(tiny_llama: Callable[..., Any]) -> Engine:
    return Engine(tiny_llama(max_context=1024), letter_tokenizer(), name="tiny")


@pytest.fixture(scope="module")
def form() -> Form:
    entries = documents.move(THREE, 0, 1)
    return Form("retrieval_qa", "Which is green?", "Answer.", ("vanilla", "pcw", "pine"), 3, entries)


@pytest.fixture(scope="module")
def run(engine: Engine, form: Form) -> FinishedRun:
    return finish(engine, form)


@pytest.mark.parametrize("tab", NAMES)
def test_every_picture_is_drawn_for_every_query(tab: str, run: FinishedRun) -> None:
    first = first_selection(run)
    for _, value in query_choices(run):
        html = DRAWING[tab](run, first.picked({"query": value}, bounds_of(run)))
        assert read_html(html).with_class("pine-picture")


@pytest.mark.parametrize("tab", NAMES)
@pytest.mark.parametrize("changes", [{"layer": None}, {"head": None}, {"layer": None, "head": None}])
@pytest.mark.parametrize("method", ["vanilla", "pcw", "pine"])
def test_every_picture_is_drawn_for_means_and_for_every_method(
    tab: str, changes: dict[str, Any], method: str, run: FinishedRun
) -> None:
    selection = replace(first_selection(run), method=method, **changes)
    assert read_html(DRAWING[tab](run, selection)).with_class("pine-picture")


@pytest.mark.parametrize("tab", NAMES)
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text_in_every_picture(tab: str, text: str, engine: Engine, form: Form) -> None:
    entries = entries_from([(text, text), ("", f"plain {text}")])
    run = finish(engine, replace(form, entries=entries, question=f"q {text}"))
    assert_harmless(DRAWING[tab](run, first_selection(run)))
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
        Selection("vanilla", Query("document", 2), None, 1, "log", False, "method:pcw", 5),
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
        assert shown.normalisation == other.normalisation


def test_functions_that_take_an_event_get_it() -> None:
    """gradio reads their hints, and one that it cannot resolve hides the event from it, without a word."""

    def build() -> Any:
        with gr.Blocks() as page:
            wire_inside(build_inside(), gr.State(None), [gr.Button().click(lambda: None)])
        return page

    taking = {
        function.name: gr.utils.get_type_hints(function.fn).get("event")
        for function in built(build).fns.values()
        if function.name in ("take_pick", "open_tab")
    }
    assert taking == {"take_pick": gr.EventData, "open_tab": gr.EventData}


def test_the_tabs_of_the_pictures_are_drawn_by_someone() -> None:
    assert [DRAWING[name].__name__ for name in NAMES] == [f"draw_{name}" for name in NAMES]
