"""Shuffle test: one request in several document orders, its figures and its certificate."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import gradio as gr

from viz.cards.shuffle import shuffle_answer, verdict_html
from viz.drawing.markup import empty_panel
from viz.figures.logprob_by_order import plot_logprob_by_order
from viz.figures.positions_by_order import plot_document_positions
from viz.figures.shuffle import plot_shuffle
from viz.page.answers.cards import Shown, accepted_answers, is_correct_by
from viz.page.answers.outdated import Origin
from viz.page.answers.workspace import Workspace, has_text, show
from viz.page.common.disk import Disk
from viz.page.common.event_options import PRIVATE_EVENT
from viz.page.common.failures import notice
from viz.page.common.figure_box import build_figure, figure_value
from viz.page.common.host_settings import HostSettings
from viz.page.form.documents import read_entries
from viz.page.form.form import Form, read_form
from viz.page.form.orders import orders_label, tries_all, with_controls
from viz.page.jobs.cost import Work
from viz.page.jobs.job_bar import Job, Updates, Views, wire_job
from viz.page.jobs.sources import Sources
from viz.page.sharing.sheets import Files, remove_files, write_files

if TYPE_CHECKING:  # imports torch, which would keep the page waiting
    from pine_engine.engine.engine import Engine
    from viz.page.jobs.model_pool import Choice
    from viz.page.shuffle.shuffling import ShuffleOutcome, ShuffleView, Tried

EMPTY_TEXT = (
    "Run the orders to see a letter for each different answer, log-probabilities and the certificate."
)


@dataclass(frozen=True)
class ShufflePanel:
    """Widgets below the table of answers."""

    verdict: gr.HTML
    matrix: gr.HTML
    """Matrix of answers; the selected cell is shown below."""

    answer: gr.HTML
    """Answer of the selected cell."""

    played: gr.HTML
    spread: gr.HTML
    tried: gr.State
    """Orders that are drawn, or None."""

    offer: gr.Accordion
    certificate: gr.DownloadButton
    sheet: gr.DownloadButton
    kept: gr.State
    """Files of the certificate, or None."""


def build_shuffle() -> ShufflePanel:
    """Build the widgets."""
    with gr.Accordion(
        "Shuffle test: logits, log-probabilities, positions", open=False, elem_id="shuffle-section"
    ):
        verdict = gr.HTML(empty_panel(EMPTY_TEXT), elem_id="shuffle-verdict")
        matrix = build_figure("shuffle-matrix", picks_itself=True)
        answer = gr.HTML("", elem_id="shuffle-answer")
        played = build_figure("shuffle-played", picks_itself=True)
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
            sheet = gr.DownloadButton("Printable page", elem_id="certificate-page", size="sm")
    return ShufflePanel(
        verdict=verdict,
        matrix=matrix,
        answer=answer,
        played=played,
        spread=spread,
        tried=gr.State(None),
        offer=offer,
        certificate=certificate,
        sheet=sheet,
        kept=gr.State(None, delete_callback=_forget),
    )


def wire_shuffle(
    panel: ShufflePanel,
    page: Workspace,
    sources: Sources,
    chosen: gr.State,
    settings: HostSettings,
    disk: Disk,
) -> Any:
    """Connect the widgets and return the event of a shuffle test."""

    def announce(documents: str, count: int) -> dict[Any, Any]:
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

    def hand_over(outcome: "ShuffleOutcome") -> dict[Any, Any]:
        files = write_files(outcome.certificate, disk.new_folder())
        return {
            page.finished: outcome.finished,
            panel.kept: files,
            panel.offer: gr.update(visible=True),
            panel.certificate: str(files.certificate),
            panel.sheet: str(files.page),
        }

    def draw(tried: "Tried", task: str, accepted: str | None) -> Updates:
        is_correct = is_correct_by(task, accepted_answers(accepted))
        labels = {method.name: method.label for method in tried.methods}
        return {
            panel.tried: tried,
            panel.verdict: verdict_html(
                tried.methods, tried.rows, caption=tried.caption, is_right=is_correct
            ),
            panel.matrix: figure_value(
                plot_shuffle(tried.rows, labels=labels, is_right=is_correct) if tried.rows else None
            ),
            panel.played: figure_value(
                plot_document_positions(tried.placed, labels=labels) if tried.placed else None
            ),
            panel.spread: figure_value(
                plot_logprob_by_order(tried.rows, labels=labels) if tried.rows else None
            ),
        }

    # gradio reads the hints of functions that take an event, so these name no type that is not imported.
    def show_answer(event: gr.EventData, tried: Any) -> Any:
        what = event._data if isinstance(event._data, dict) else {}
        return gr.skip() if tried is None else answer_behind(tried, what)

    for figure in (panel.matrix, panel.spread):
        figure.select(show_answer, panel.tried, panel.answer, **PRIVATE_EVENT)

    def judge(tried: Any, task: str, accepted: str | None) -> Any:
        return gr.skip() if tried is None else draw(tried, task, accepted)

    drawn = [panel.tried, panel.verdict, panel.matrix, panel.played, panel.spread]
    page.accepted.change(
        judge, [panel.tried, page.task, page.accepted], drawn, trigger_mode="always_last", **PRIVATE_EVENT
    )

    def begin(
        kept: Files | None,
        choice: "Choice | None",
        accepted: str | None,
        count: float,
        seed: float | None,
        controls: bool,
        *values: Any,
    ) -> Job:
        form = read_form(*values)
        origin = Origin(form, choice, is_for_all_orders=True)
        outcome: ShuffleOutcome | None = None
        _forget(kept)

        def show_view(view: "ShuffleView") -> Updates:
            if not has_text(view.cards):
                return {}
            shown = Shown(view.cards, form.task, in_orders=view.in_orders, order=form.order)
            updates = show(page, shown, accepted) | {page.results.origin: origin}
            return updates if view.tried is None else updates | draw(view.tried, form.task, accepted)

        def keep(view: "ShuffleView") -> None:
            nonlocal outcome
            outcome = view.outcome or outcome

        run: dict[str, Any] = {
            "form": form,
            "count": int(count),
            "seed": int(seed or 0),
            "controls": controls,
            "settings": settings,
        }
        return Job(
            what="shuffle",
            methods=with_controls(form.methods) if controls else form.methods,
            work=partial(_shuffle, **run),
            plan=partial(_plan, **run),
            show=show_view,
            keep=keep,
            task=lambda: form.task,
            cleared={
                panel.answer: "",
                panel.offer: gr.update(visible=False),
                panel.kept: None,
                page.results.note: "",
                page.bar.status: notice(""),
            },
            kept="The orders finished so far are kept.",
            end=lambda: hand_over(outcome) if outcome else {},
        )

    outputs: list[Any] = [*drawn, panel.answer, panel.offer, panel.certificate, panel.sheet, panel.kept]
    outputs += [page.results.origin, page.results.note, page.finished, page.bar.status]
    outputs += [page.answers, page.order_table, page.shown]
    inputs = [panel.kept, chosen, page.accepted, page.num_orders, page.seed, page.controls, *page.inputs]
    return wire_job(page.shuffle_bar, begin, inputs, outputs, sources, chosen)


def answer_behind(tried: "Tried", what: Mapping[str, Any]) -> str:
    """Render the answer of a selected cell; "" for an invalid one.

    `what` comes from the browser (untrusted): {"tried": index of the row, "method": ...}.
    """
    number = what.get("tried")
    method = next((one for one in tried.methods if one.name == what.get("method")), None)
    if method is None or type(number) is not int or not 0 <= number < len(tried.rows):
        return ""
    row = tried.rows[number]
    return shuffle_answer(method, row, tried.rows[0]) if method.name in row.comparisons else ""


def _shuffle(
    engine: "Engine", form: Form, count: int, seed: int, controls: bool, settings: HostSettings
) -> Views:
    from viz.page.shuffle.shuffling import shuffle  # imports torch, which is there by now

    return shuffle(engine, form, count=count, seed=seed, controls=controls, settings=settings)


def _plan(
    engine: "Engine", form: Form, count: int, seed: int, controls: bool, settings: HostSettings
) -> Work:
    from viz.page.shuffle.shuffling import plan_shuffle  # imports torch, as above

    return plan_shuffle(engine, form, count=count, seed=seed, controls=controls, settings=settings)


def _forget(files: Files | None) -> None:
    """Remove the certificate of an earlier test, also when the page is closed."""
    if files is not None:
        remove_files(files)
