"""Shuffle test: one request in several document orders, and its figures below the table of answers.

button -> bind_job (queue, model) -> shuffle(engine, form) yields Shown -> draw_figures() -> widgets
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import gradio as gr

from pine_engine.methods.table import METHODS
from pine_engine.scheduling.job import Job
from viz.cards.shuffle import shuffle_answer, verdict_html
from viz.drawing.markup import empty_panel
from viz.figures.logprob_by_order import plot_logprob_by_order
from viz.figures.positions_by_order import plot_document_positions
from viz.figures.shuffle import plot_shuffle
from viz.page.answers.answering import accepted_answers, is_correct_by
from viz.page.answers.form_run import Started, clear_before, end_run, show_view, start_run
from viz.page.answers.order_answers import Order, OrderAnswers
from viz.page.answers.run import Run
from viz.page.answers.shown import Inputs, Shown
from viz.page.answers.workspace import Workspace
from viz.page.common.host_settings import HostSettings
from viz.page.common.widgets import PRIVATE_EVENT, bind, build_figure, figure_value
from viz.page.form.orders import number_of_orders, tries_all, with_controls
from viz.page.jobs.job_bar import ButtonJob, Updates, bind_job, bind_resume
from viz.page.jobs.sources import Sources
from viz.page.shuffle_job import orders_for, prepare_shuffle

EMPTY_TEXT = "Run all orders to compare the answers and log-probabilities across document orders."


class ShuffleFigures:
    """Widgets and states of the section of figures, empty."""

    def __init__(self) -> None:
        with gr.Accordion(
            "Shuffle test: logits, log-probabilities, positions", open=False, elem_id="shuffle-section"
        ) as self.section:
            self.verdict = gr.HTML(empty_panel(EMPTY_TEXT), elem_id="shuffle-verdict")
            self.matrix = build_figure("shuffle-matrix", picks_itself=True)
            self.answer = gr.HTML("", elem_id="shuffle-answer")  # of the selected cell
            self.positions = build_figure("shuffle-positions", picks_itself=True)
            self.logprobs = build_figure("shuffle-spread", picks_itself=True)
        self.drawn = gr.State(None)  # last view of a shuffle test
        self.panel = gr.State({"is_open": False})  # updated in place, also during a run
        shown = [self.verdict, self.matrix, self.positions, self.logprobs, self.answer]
        self.outputs: list[Any] = [self.drawn, *shown]  # what a shuffle test updates


def shuffle_tab(
    page: Workspace, sources: Sources, chosen: gr.State, settings: HostSettings
) -> tuple[Any, Any, gr.State]:
    """Build the figures and connect them.

    Returns the events of a shuffle test and of a resumed run, and the results of a shuffle test.
    """
    figures = ShuffleFigures()
    inputs, drawings = [figures.panel, figures.drawn, page.shown, page.accepted], figures.outputs
    page.accepted.change(bind(draw_again, figures), inputs, drawings, **PRIVATE_EVENT)
    figures.section.expand(bind(open_figures, figures), inputs, drawings, **PRIVATE_EVENT)
    figures.section.collapse(close_figures, figures.panel, **PRIVATE_EVENT)
    page.origin.change(bind(clear_figures, figures), [*inputs[:-1], page.origin], drawings, **PRIVATE_EVENT)
    for figure in (figures.matrix, figures.logprobs):
        figure.select(show_answer, figures.drawn, figures.answer, **PRIVATE_EVENT)
    options = [page.num_orders, page.seed, page.controls]
    event = bind_job(
        page.shuffle_bar,
        bind(begin_shuffle, page, figures, settings),
        [figures.panel, *options, page.shown, chosen, page.accepted, page.typed, *page.inputs],
        [*page.outputs, *drawings, page.bar.status],
        sources,
        chosen,
        page.key,
    )
    bars = [page.bar, page.shuffle_bar]
    resumed = bind_resume(bars, [*page.outputs, *drawings], sources, page.key)
    return event, resumed, figures.drawn


def draw_figures(
    figures: ShuffleFigures, panel: Mapping[str, bool], view: Shown, accepted: str | None
) -> Updates:
    """Return the updates that draw a view with a finished order, if the section is open."""
    run = view.run
    if run is None or not panel["is_open"]:
        return {figures.drawn: view}
    cut_off = {answers.texts[method] for answers in run.orders.values() for method in answers.cut_off}
    is_correct = is_correct_by(run.form.row, accepted_answers(accepted), cut_off)
    methods = [METHODS[card.method] for card in view.cards]
    labels = {method.name: method.label for method in methods}
    rows = run.comparisons
    return {
        figures.drawn: view,
        figures.verdict: verdict_html(methods, rows, caption=run.caption, is_right=is_correct),
        figures.matrix: figure_value(plot_shuffle(rows, labels=labels, is_right=is_correct)),
        figures.positions: _positions(run.orders.values(), labels),
        figures.logprobs: figure_value(
            plot_logprob_by_order(rows, labels=labels) if run.has_internals else None
        ),
    }


def _positions(orders: Iterable[OrderAnswers], labels: Mapping[str, str] | None = None) -> str:
    known = [answers.positions for answers in orders if answers.positions]
    query = "the decisive token of each answer"
    return figure_value(plot_document_positions(known, query=query, labels=labels) if known else None)


def draw_without_run(figures: ShuffleFigures, shown: Shown) -> Updates:
    """Return the updates without a shuffle test: what precomputed or shared answers have of it."""
    empty = dict.fromkeys([figures.matrix, figures.logprobs, figures.answer], "")
    labels = {card.method: card.row.label for card in shown.cards}
    panel = empty_panel(EMPTY_TEXT, press="shuffle", label="Run all orders")
    positions = _positions(shown.orders.values(), labels)
    return {figures.drawn: None, figures.verdict: panel, figures.positions: positions} | empty


def draw_again(
    figures: ShuffleFigures, panel: dict[str, bool], view: Shown | None, shown: Shown, accepted: Any
) -> Any:
    """Return the updates that draw the last shuffle test, scored by the accepted answers."""
    if view is None:
        return draw_without_run(figures, shown) if panel["is_open"] else gr.skip()
    return draw_figures(figures, panel, view, accepted)


def open_figures(
    figures: ShuffleFigures, panel: dict[str, bool], view: Shown | None, shown: Shown, accepted: Any
) -> Any:
    """Note that the section is open, and draw it."""
    panel["is_open"] = True
    return draw_again(figures, panel, view, shown, accepted)


def close_figures(panel: dict[str, bool]) -> None:
    """Note that the section is closed: it is not drawn."""
    panel["is_open"] = False


def clear_figures(
    figures: ShuffleFigures, panel: dict[str, bool], view: Shown | None, shown: Shown, inputs: Inputs | None
) -> Any:
    """Return the updates that clear the figures, if the answers on the page are of other inputs."""
    is_same = inputs and not view.changes(inputs) if view else not panel["is_open"]
    return gr.skip() if is_same else draw_without_run(figures, shown)


# gradio reads the hints of functions that take an event, so they name no type that is not imported.
def show_answer(event: gr.EventData, view: Any) -> Any:
    """Return the answer of the selected cell."""
    cell = event._data if isinstance(event._data, dict) else {}
    return gr.skip() if view is None else answer_html(view.run, cell)


def answer_html(run: Run, cell: Mapping[str, Any]) -> str:
    """Render the answer of a selected cell; "" for an invalid one.

    `cell` comes from the browser (untrusted): {"tried": index of the row, "method": ...}.
    """
    rows, number, method = run.comparisons, cell.get("tried"), cell.get("method")
    if type(number) is not int or not 0 <= number < len(rows):
        return ""
    if not isinstance(method, str) or method not in rows[number].comparisons:
        return ""
    return shuffle_answer(METHODS[method], rows[number], rows[0])


def orders_to_run(
    now: Inputs, methods: Sequence[str], shown: Shown, count: int, seed: int
) -> tuple[Order, ...]:
    """Return the orders without answers of this session, or else all; the order of the form is the first.

    Results are compared with those of the first order, which is therefore computed again.
    """
    order = now[0].order
    live = shown.finished_orders(now, methods, live=True)
    others = [one for one in shown.finished_orders(now, methods) if one not in live]
    slots = orders_for(len(order), count + (0 if tries_all(len(order)) else len(live)), seed)
    sample = [tuple(order[slot] for slot in one) for one in slots]
    missing = [one for one in dict.fromkeys([*others, *sample]) if one not in live]
    total = max(number_of_orders(len(order), count), len(others))
    wanted = missing[: total - len(live)] or sample[:total]
    return (order, *(one for one in wanted if one != order))


def begin_shuffle(
    page: Workspace,
    figures: ShuffleFigures,
    settings: HostSettings,
    panel: Mapping[str, bool],
    count: float,
    seed: float | None,
    controls: bool,
    shown: Shown,
    *values: Any,
) -> ButtonJob:
    """Return the job that runs the form in the orders that are not finished, or else in all orders again."""
    started = start_run(shown, *values)
    if (run := shown.run) and run.comparisons and started.before:
        # Compare with the same first order, so that both runs are one shuffle test.
        entries = sorted(started.form.entries, key=lambda entry: run.order.index(entry.letter))
        started = replace(started, form=replace(started.form, entries=tuple(entries)))
    form, count = started.form, int(count)
    methods = with_controls(form.methods) if controls else form.methods
    orders = orders_to_run((form, started.model), methods, shown, count, int(seed or 0))
    arguments = {"form": form, "settings": settings, "controls": controls, "orders": orders}
    arguments |= {"count": count, "seed": int(seed or 0)}
    return ButtonJob(
        job=Job("shuffle", methods, prepare_shuffle, arguments),
        show=partial(show_shuffle, page, figures, panel, started),
        task=form.task,
        cleared=clear_before(page, started, page.bar),
        replaced={page.stale: ""},
        kept="Finished answers are kept.",
        end=partial(end_run, page, started),
    )


def show_shuffle(
    page: Workspace, figures: ShuffleFigures, panel: Mapping[str, bool], started: Started, view: Shown
) -> Updates:
    """Return the updates of a view: the table of answers, and the figures once an order is finished."""
    updates = show_view(page, started, view)
    if not updates or view.run is None:
        return updates
    view = started.joined(view)
    return updates | {figures.answer: ""} | draw_figures(figures, panel, view, started.accepted)
