"""Texts of the Lab, of all settings and of the list of examples: each has a pair in every language."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest

from pine_engine.engine.engine import Engine
from pine_engine.methods.table import METHODS
from pine_engine.prompts.tasks import TASKS
from tests.support.running import views_of
from tests.support.runs import THREE, finish, form_of, swapped, telling_queries, with_orders
from tests.support.translations import (
    Found,
    component_texts,
    figure_texts,
    html_texts,
    translate,
    untranslated,
)
from tests.support.widgets import whole_page
from viz.cards.shuffle import verdict_html
from viz.figures.logprob_by_order import plot_logprob_by_order
from viz.figures.order_effects import plot_order_effects
from viz.figures.position_sweep import plot_position_sweep
from viz.figures.positions_by_order import plot_document_positions
from viz.figures.shuffle import plot_shuffle
from viz.lab.bias_curve import plot_bias_curve
from viz.lab.page.data_sets import orders_for, read_built_in, usual_orders
from viz.lab.page.evaluate_job import MeasureRequest, measure_rows, work_sentence
from viz.lab.page.evaluate_view import curves_of, results_html
from viz.page.answers.run import Run
from viz.page.answers.tutorial_recording import tutorial_recording
from viz.page.common.widgets import figure_value
from viz.page.form.examples import load_examples
from viz.page.internals.attention import draw_attention
from viz.page.internals.attention_job import attend, attention_request
from viz.page.internals.comparison import other_answers
from viz.page.internals.content import TabContent
from viz.page.internals.left_out_job import left_out_request, score
from viz.page.internals.tab import summary_html
from viz.page.internals.tabs import DRAWING
from viz.page.position_sweep_job import prepare_sweep
from viz.page.queries import Query, query_choices
from viz.page.selection import Selection, first_selection
from viz.page.serving.languages import load_languages
from viz.page.shuffle import answer_html
from viz.page.shuffle_job import prepare_shuffle

LABELS = {name: method.label for name, method in METHODS.items()}
SOME = ("vanilla", "nia", "pcw", "sp", "mspoe", "superposition", "calibrated_attention", "pine")
STEPS = 3
OTHERS = sorted(load_languages().keys() - {"en"})
VALUE = re.compile(r"\{@{0,2}(\w+)\}")
PLURAL = re.compile(r"\{\w:(?:[^}|]*\|)*([^}|]*)\}")


def page_texts(_: Engine) -> Iterator[Found]:
    """Yield the texts of the widgets of the page, of its examples and of all methods."""
    yield from ((method.description,) for method in METHODS.values())
    for component in whole_page().config["components"]:
        if component["props"].get("elem_id") not in ("model", "measure-orders", "pasted"):
            yield from component_texts(component)
    yield from ((text,) for one in load_examples() for text in (one.name, one.note, one.challenge) if text)


def selections(run: Run) -> Iterator[Selection]:
    """Yield selections with every value of each field."""
    first = replace(first_selection(run), method="pine")
    yield from (replace(first, method=method) for method in run.result.traces)
    queries = map(Query.parse, telling_queries(run, "pine"))
    yield from (replace(first, query=query) for query in queries if query)
    yield from (replace(first, normalization=one) for one in ("raw", "share", "log"))
    yield from (replace(first, layer=layer, head=head) for layer in (None, 1) for head in (None, 2))
    yield from (replace(first, rows=rows) for rows in ("layer", "head"))
    yield from (replace(first, with_prefix=shown, with_sink=shown) for shown in (True, False))
    yield from (replace(first, other=other) for other in other_answers(run, "pine"))


def content_texts(content: TabContent) -> Iterator[Found]:
    yield from html_texts(content.html)
    yield from figure_texts(map(figure_value, content.figures.values()))


def internals_texts(engine: Engine) -> Iterator[Found]:
    """Yield the texts of the tabs of Internals, for runs with several orders and with one document."""
    entries = [THREE, swapped(THREE, 0)]
    first, second = (finish(engine, one, methods=SOME, max_new_tokens=STEPS) for one in entries)
    run = with_orders(first, (second.order, second.answer_records))
    *_, scored = score(engine, left_out_request(run, "pine"))
    run = replace(run, left_out=scored.scores)
    for one in (run, tutorial_recording().run):
        yield from html_texts(summary_html(one))
    yield from ((label,) for label, _ in query_choices(run, "pine"))
    alone = finish(engine, THREE[:1], methods=("vanilla", "pine"), max_new_tokens=STEPS)
    shown = [(run, one) for one in selections(run)] + [(one, first_selection(one)) for one in (first, alone)]
    for one, selection in shown:
        for draw in DRAWING.values():
            yield from content_texts(draw(one, selection))
    request = attention_request(run, first_selection(run))
    *_, view = attend(engine, request)
    for attention in (None, view, replace(view, request=replace(request, head=request.head + 1))):
        yield from content_texts(draw_attention(run, first_selection(run), attention))
    yield from ((sentence,) for sentence in (view.sentence, scored.sentence))


def sweep_texts(engine: Engine) -> Iterator[Found]:
    """Yield the texts of a position sweep."""
    form = form_of(methods=("vanilla", "nia", "pine"))
    for view in views_of(prepare_sweep, engine, form, document=0, answer=" so "):
        yield (view.sentence,)
        yield (view.finding,)
        figures = [plot_position_sweep(view.steps, slots=view.slots, labels=LABELS)]
        figures += [plot_order_effects(view.effects)] if view.effects else []
        yield from figure_texts(map(figure_value, figures))


def shuffle_texts(engine: Engine) -> Iterator[Found]:
    """Yield the texts of the figures of a shuffle test."""
    *_, view = views_of(prepare_shuffle, engine, form_of(), count=6, seed=0, controls=True)
    run = view.run
    assert run is not None
    methods, rows = [card.row for card in view.cards], run.comparisons
    for is_right in (None, lambda text: len(text) > 2):
        yield from html_texts(verdict_html(methods, rows, caption=run.caption, is_right=is_right))
        yield from figure_texts([figure_value(plot_shuffle(rows, labels=LABELS, is_right=is_right))])
    for cell in ({"tried": row, "method": method.name} for row in range(len(rows)) for method in methods):
        yield from html_texts(answer_html(run, cell))
    positions = [one.positions for one in run.orders.values() if one.positions]
    drawn = plot_document_positions(positions, query="the decisive token of each answer", labels=LABELS)
    yield from figure_texts(map(figure_value, [drawn, plot_logprob_by_order(rows, labels=LABELS)]))


def evaluation_texts(engine: Engine, *, task: str) -> Iterator[Found]:
    """Yield the texts of an evaluation of a built-in dataset."""
    rows = read_built_in(task)
    orders = tuple(usual_orders(orders_for(rows)))
    request = MeasureRequest(rows, 2, ("vanilla", "nia", "pine"), orders, True, True, STEPS)
    yield (work_sentence(request),)
    for view in measure_rows(engine, request):
        yield (view.sentence,)
    yield from html_texts(results_html(view, view.run))
    if curves := curves_of(view, view.run):
        yield from figure_texts([figure_value(plot_bias_curve(curves))])


VIEWS: dict[str, Callable[[Engine], Iterator[Found]]] = {
    "page": page_texts,
    "internals": internals_texts,
    "sweep": sweep_texts,
    "shuffle": shuffle_texts,
    "evaluate-questions": partial(evaluation_texts, task="retrieval_qa"),
    "evaluate-judge": partial(evaluation_texts, task="judge"),
    "evaluate-options": partial(evaluation_texts, task="options"),
}


@pytest.mark.parametrize("language", OTHERS)
def test_translated_text_is_not_translated_again(language: str) -> None:
    """The document may report a text twice, so that a text of a language must be none of English."""
    pairs = [pair for part in load_languages()[language].values() for pair in part.items()]
    texts = [VALUE.sub(_example, PLURAL.sub(r"\1", text)) for _, text in pairs]
    again = translate(texts, pairs, language)
    assert [pair for pair in zip(texts, again, strict=True) if pair[0] != pair[1]] == []


def _example(hole: re.Match[str]) -> str:
    return "3" if len(hole[1]) == 1 else "Xyz"


@pytest.mark.parametrize("view", VIEWS)
def test_every_text_of_a_view_has_a_pair(view: str, engine: Engine) -> None:
    found = [*VIEWS[view](engine)]
    assert len(found) > 5
    for language in OTHERS:
        assert untranslated(found, language, names=(engine.model_name, *TASKS)) == []
