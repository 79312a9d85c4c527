"""Shuffle test: one request in several document orders, its figures and its certificate.

button -> bind_job (queue, model) -> shuffle(engine, form) yields OrdersTried -> draw() -> widgets
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from pine_engine.scheduling.runs import Job
from viz.cards.shuffle import shuffle_answer, verdict_html
from viz.drawing.markup import empty_panel
from viz.figures.logprob_by_order import plot_logprob_by_order
from viz.figures.positions_by_order import plot_document_positions
from viz.figures.shuffle import plot_shuffle
from viz.page.answers.cards import Shown, accepted_answers, is_correct_by
from viz.page.answers.order_table import with_orders
from viz.page.answers.stale import Origin, changes
from viz.page.answers.workspace import Workspace, has_text, keep_accepted, orders_before, run_begun, show
from viz.page.certificate_files import write_certificate
from viz.page.common.disk import Disk, remove_folder
from viz.page.common.failures import notice
from viz.page.common.host_settings import HostSettings
from viz.page.common.widgets import PRIVATE_EVENT, build_figure, figure_value
from viz.page.form.documents import read_entries
from viz.page.form.form import read_form
from viz.page.form.options import orders_label, tries_all, with_controls
from viz.page.jobs.job_bar import ButtonJob, Updates, bind_job
from viz.page.jobs.sources import Choice, Sources
from viz.page.shuffle_job import OrdersTried, prepare_shuffle

EMPTY_TEXT = "Run all orders to compare the answers and log-probabilities across document orders."


def shuffle_tab(
    page: Workspace, sources: Sources, chosen: gr.State, settings: HostSettings, disk: Disk
) -> tuple[Any, gr.State, gr.State]:
    """Build the widgets below the table of answers and connect them.

    Return the event of a shuffle test, and the states with the folder of its certificate and its results.
    """
    with gr.Accordion(
        "Shuffle test: logits, log-probabilities, positions", open=False, elem_id="shuffle-section"
    ) as section:
        verdict = gr.HTML(empty_panel(EMPTY_TEXT), elem_id="shuffle-verdict")
        matrix = build_figure("shuffle-matrix", picks_itself=True)
        answer = gr.HTML("", elem_id="shuffle-answer")
        played = build_figure("shuffle-positions", picks_itself=True)
        spread = build_figure("shuffle-spread", picks_itself=True)
    with gr.Accordion(
        "Reproducibility certificate", open=False, visible=False, elem_id="certificate-offer"
    ) as offer:
        gr.HTML(
            '<p class="page-caption">Anyone can reproduce this shuffle test with the command in either file. '
            "Both files contain everything you entered: question, instruction and all documents.</p>"
        )
        with gr.Row(elem_classes="page-row"):
            certificate = gr.DownloadButton("Download JSON", elem_id="certificate", size="sm")
            sheet = gr.DownloadButton("Download printable page", elem_id="certificate-page", size="sm")
    drawn, kept = gr.State(None), gr.State(None, delete_callback=remove_folder)
    shuffled = gr.State(None)  # origin of the figures
    panel = gr.State({"is_open": False})  # updated in place, also during a run
    figures = [drawn, verdict, matrix, played, spread]

    def announce(documents: str, count: int) -> Updates:
        num_documents = len(read_entries(documents))
        return {
            page.sample: gr.update(visible=not tries_all(num_documents, settings.max_orders)),
            page.shuffle_bar.run: orders_label(num_documents, count, settings.max_orders),
        }

    gr.on(
        [page.editor.cards.input, page.num_orders.change],
        announce,
        [page.editor.cards, page.num_orders],
        [page.shuffle_bar.run, page.sample],
        **PRIVATE_EVENT,
    )

    def draw(panel: dict[str, bool], tried: OrdersTried, task: str, accepted: str | None) -> Updates:
        if not panel["is_open"]:
            return {drawn: tried}
        is_correct = is_correct_by(task, accepted_answers(accepted))
        labels = {method.name: method.label for method in tried.methods}
        rows, placed = tried.rows, tried.placed
        return {
            drawn: tried,
            verdict: verdict_html(tried.methods, rows, caption=tried.caption, is_right=is_correct),
            matrix: figure_value(plot_shuffle(rows, labels=labels, is_right=is_correct) if rows else None),
            played: figure_value(plot_document_positions(placed, labels=labels) if placed else None),
            spread: figure_value(plot_logprob_by_order(rows, labels=labels) if rows else None),
        }

    def judge(panel: dict[str, bool], tried: Any, task: str, accepted: str | None) -> Any:
        return gr.skip() if tried is None else draw(panel, tried, task, accepted)

    def expand(panel: dict[str, bool], *values: Any) -> Any:
        panel["is_open"] = True
        return judge(panel, *values)

    def collapse(panel: dict[str, bool]) -> None:
        panel["is_open"] = False

    judged = [panel, drawn, page.task, page.accepted]
    page.accepted.change(judge, judged, figures, trigger_mode="always_last", **PRIVATE_EVENT)
    section.expand(expand, judged, figures, **PRIVATE_EVENT)
    section.collapse(collapse, panel, **PRIVATE_EVENT)

    def forget(folder: Path | None, before: Origin | None, origin: Origin | None) -> Any:
        if before is None or (origin and not changes(before, origin.form, origin.model)):
            return gr.skip()
        remove_folder(folder)
        cleared: Updates = {verdict: empty_panel(EMPTY_TEXT), offer: gr.update(visible=False), answer: ""}
        return cleared | dict.fromkeys((drawn, kept, shuffled)) | dict.fromkeys((matrix, played, spread), "")

    forgotten = [*figures, answer, offer, kept, shuffled]
    page.origin.change(forget, [kept, shuffled, page.origin], forgotten, **PRIVATE_EVENT)

    # gradio reads the hints of functions that take an event, so these name no type that is not imported.
    def show_answer(event: gr.EventData, tried: Any) -> Any:
        what = event._data if isinstance(event._data, dict) else {}
        return gr.skip() if tried is None else answer_behind(tried, what)

    for figure in (matrix, spread):
        figure.select(show_answer, drawn, answer, **PRIVATE_EVENT)

    def hand_over(before: Path | None, corrected: Updates, tried: OrdersTried) -> Updates:
        if (made := tried.certificate) is None:
            return corrected if has_text(tried.cards) else {}
        remove_folder(before)
        folder = disk.new_folder()
        file, printable = write_certificate(made, folder)
        return corrected | {
            page.finished: tried.finished,
            kept: folder,
            offer: gr.update(visible=True),
            certificate: str(file),
            sheet: str(printable),
        }

    def begin(
        panel: dict[str, bool],
        folder: Path | None,
        shown: Shown,
        origin: Origin | None,
        choice: Choice | None,
        accepted: str | None,
        count: float,
        seed: float | None,
        controls: bool,
        *values: Any,
    ) -> ButtonJob:
        form = read_form(*values)
        now = Origin(form, choice, is_for_all_orders=True)
        before = orders_before(shown, origin, now)
        scored_by, corrected = keep_accepted(page, form, accepted)

        def show_view(tried: OrdersTried) -> Updates:
            if not has_text(tried.cards):
                return {}
            in_orders = with_orders(before, tried.in_orders)
            shown = Shown(tried.cards, form.task, in_orders=in_orders, order=form.order)
            updates = show(page, shown, scored_by) | {page.origin: now}
            if not tried.rows:
                return updates
            cleared = {answer: "", offer: gr.update(visible=False), shuffled: now}
            return updates | cleared | draw(panel, tried, form.task, scored_by)

        methods = with_controls(form.methods) if controls else form.methods
        arguments = {"form": form, "settings": settings, "controls": controls}
        arguments |= {"count": int(count), "seed": int(seed or 0)}
        return ButtonJob(
            job=Job("shuffle", methods, prepare_shuffle, arguments),
            show=show_view,
            task=form.task,
            cleared=run_begun(page, form) | {page.bar.status: notice("")},
            kept="Completed orders are kept.",
            end=partial(hand_over, folder, corrected),
        )

    outputs = [*forgotten, certificate, sheet, page.origin, page.stale, page.finished, page.bar.status]
    outputs += [page.example, page.accepted]
    outputs += [page.answers, page.order_table, page.shown]
    inputs = [panel, kept, page.shown, page.origin, chosen, page.accepted]
    inputs += [page.num_orders, page.seed, page.controls, *page.inputs]
    return bind_job(page.shuffle_bar, begin, inputs, outputs, sources, chosen), kept, drawn


def answer_behind(tried: OrdersTried, what: Mapping[str, Any]) -> str:
    """Render the answer of a selected cell; "" for an invalid one.

    `what` comes from the browser (untrusted): {"tried": index of the row, "method": ...}.
    """
    number = what.get("tried")
    method = next((one for one in tried.methods if one.name == what.get("method")), None)
    if method is None or type(number) is not int or not 0 <= number < len(tried.rows):
        return ""
    row = tried.rows[number]
    return shuffle_answer(method, row, tried.rows[0]) if method.name in row.comparisons else ""
