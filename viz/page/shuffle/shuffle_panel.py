"""The shuffle: the same question under one order of the documents after the other."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import gradio as gr

from pine_engine.prompts.tasks import Nouns, get_task
from viz.cards.shuffle import shuffle_answer, verdict_html
from viz.drawing.markup import empty_panel
from viz.figures.logprob_by_order import plot_logprob_by_order
from viz.figures.positions_by_order import plot_document_positions
from viz.figures.shuffle import plot_shuffle
from viz.page.answers.answering import finished_cards, in_orders
from viz.page.answers.cards import accepted_answers, right_by
from viz.page.answers.outdated import Origin, Results, build_results, no_results
from viz.page.answers.workspace import Workspace, show
from viz.page.common.disk import Disk
from viz.page.common.event_options import PRIVATE_EVENT
from viz.page.common.failures import notice
from viz.page.common.figure_box import build_figure, figure_value
from viz.page.common.host_settings import HostSettings
from viz.page.form.documents import DOCUMENTS, read_entries
from viz.page.form.form import Form, read_form
from viz.page.jobs.cost import Work
from viz.page.jobs.job_bar import Job, JobBar, Updates, Views, build_bar, build_buttons, wire_job
from viz.page.jobs.sources import Sources
from viz.page.sharing.sheets import Files, remove_files, write_files
from viz.page.shuffle.orders import DEFAULT_ORDERS, SAMPLED_AT_MOST, orders_sentence, tries_all, with_controls

if TYPE_CHECKING:  # imports torch, which would keep the page waiting
    from pine_engine.engine.engine import Engine
    from viz.page.jobs.model_pool import Choice
    from viz.page.shuffle.shuffling import ShuffleOutcome, ShuffleView, Tried

WHAT_WILL_BE = (
    "Here will be a row for every order of the documents, with a letter for each different answer, and the "
    "documents as they move."
)


@dataclass(frozen=True)
class ShufflePanel:
    """The widgets of the shuffle."""

    bar: JobBar
    results: Results
    controls: gr.Checkbox
    sample: gr.Row
    count: gr.Slider
    seed: gr.Number
    verdict: gr.HTML
    matrix: gr.HTML
    """A letter for each answer; what is picked in it is shown below."""

    answer: gr.HTML
    """The answer behind the cell that was picked."""

    played: gr.HTML
    spread: gr.HTML
    tried: gr.State
    """The orders that are drawn, or None."""

    offer: gr.Accordion
    certificate: gr.DownloadButton
    sheet: gr.DownloadButton
    many: gr.State
    """Whether only a sample of the orders is tried."""

    kept: gr.State
    """The files of the certificate that is offered, or None."""


def button_label(nouns: Nouns) -> str:
    """What is written on the button that shuffles."""
    return f"Shuffle the {nouns.documents}"


def build_shuffle(num_documents: int, max_orders: int) -> ShufflePanel:
    """Makes the widgets. num_documents: how many the editor shows at first. max_orders: the host's limit."""
    first = min(DEFAULT_ORDERS, max_orders)
    many = not tries_all(num_documents, max_orders)
    with gr.Column(elem_id="shuffle-section", elem_classes="page-section"):
        gr.HTML(
            "<p class='page-about'>Every order is computed from scratch. What does not depend on it has to "
            "be the same to the last bit.</p>"
        )
        with gr.Row(elem_classes="page-row page-shuffle-bar"):
            buttons = build_buttons(button_label(DOCUMENTS), run_id="shuffle", stop_id="stop-shuffle")
            controls = gr.Checkbox(
                not many,
                label="with controls",
                info="Also run what must be able to change, so that you see the check can fail.",
                elem_id="with-controls",
                container=False,
                min_width=220,
            )
            with gr.Row(visible=many, elem_classes="page-row") as sample:
                count = gr.Slider(
                    2,
                    min(SAMPLED_AT_MOST, max_orders),
                    value=first,
                    step=1,
                    label="Orders to try",
                    elem_id="orders",
                    min_width=160,
                )
                seed = gr.Number(
                    0, label="Seed of the random orders", precision=0, elem_id="seed", min_width=120
                )
        sentence = orders_sentence(num_documents, first, 0, max_orders)
        bar = build_bar(buttons, sentence, status_id="shuffle-status")
        results = build_results()
        verdict = gr.HTML(empty_panel(WHAT_WILL_BE), elem_id="shuffle-verdict")
        matrix = build_figure("shuffle-matrix", picks_itself=True)
        answer = gr.HTML("", elem_id="shuffle-answer")
        played = build_figure("shuffle-played", picks_itself=True)
        spread = build_figure("shuffle-spread", picks_itself=True)
        with gr.Accordion(
            "Certificate: anybody can repeat this shuffle",
            open=False,
            visible=False,
            elem_id="certificate-offer",
        ) as offer:
            gr.HTML(
                '<p class="page-caption">With one command, which both files name. They hold everything you '
                "typed: the question, the instruction and all documents.</p>"
            )
            with gr.Row(elem_classes="page-row"):
                certificate = gr.DownloadButton("JSON", elem_id="certificate", size="sm")
                sheet = gr.DownloadButton("To print", elem_id="certificate-page", size="sm")
    return ShufflePanel(
        bar=bar,
        results=results,
        controls=controls,
        sample=sample,
        count=count,
        seed=seed,
        verdict=verdict,
        matrix=matrix,
        answer=answer,
        played=played,
        spread=spread,
        tried=gr.State(None),
        offer=offer,
        certificate=certificate,
        sheet=sheet,
        many=gr.State(many),
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
    """Connects the widgets; returns the event of a shuffle, which ends as a run with other orders tried.

    chosen: see wire_job.
    """

    def announce(documents: str, task: str, count: int, seed: int | None, were_many: bool) -> dict[Any, Any]:
        num_documents = len(read_entries(documents))
        many = not tries_all(num_documents, settings.max_orders)
        nouns = get_task(task).nouns
        sentence = orders_sentence(num_documents, count, seed or 0, settings.max_orders, nouns)
        updates: dict[Any, Any] = {
            panel.sample: gr.update(visible=many),
            panel.bar.run: gr.update(value=button_label(nouns)),
            panel.bar.status: notice(sentence),
            panel.many: many,
        }
        # Only here, so that what a visitor has chosen stays while documents are edited.
        return updates if many == were_many else updates | {panel.controls: not many}

    gr.on(
        [page.editor.cards.input, page.task.change, panel.count.change, panel.seed.change],
        announce,
        [page.editor.cards, page.task, panel.count, panel.seed, panel.many],
        [panel.bar.run, panel.sample, panel.bar.status, panel.many, panel.controls],
        **PRIVATE_EVENT,
    )

    def hand_over(outcome: "ShuffleOutcome", origin: Origin) -> dict[Any, Any]:
        files = write_files(outcome.certificate, disk.new_folder())
        return {
            page.finished: outcome.finished,
            page.bar.status: notice("The answers in the order as entered, from the shuffle."),
            panel.kept: files,
            panel.offer: gr.update(visible=True),
            panel.certificate: str(files.certificate),
            panel.sheet: str(files.page),
            page.results.origin: origin,
            page.results.note: "",
        } | show(page, finished_cards(outcome.finished), origin.form.task, in_orders(outcome.finished))

    def draw(tried: "Tried", task: str, accepted: str | None) -> Updates:
        is_right = right_by(task, accepted_answers(accepted))
        labels = {method.name: method.label for method in tried.methods}
        return {
            panel.tried: tried,
            panel.verdict: verdict_html(tried.methods, tried.rows, caption=tried.caption, is_right=is_right),
            panel.matrix: figure_value(
                plot_shuffle(tried.rows, labels=labels, is_right=is_right) if tried.rows else None
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
        origin = Origin(form, choice)
        outcome: ShuffleOutcome | None = None
        _forget(kept)

        def show_view(view: "ShuffleView") -> Updates:
            drawn = {} if view.tried is None else draw(view.tried, form.task, accepted)
            return drawn | {panel.results.origin: origin}

        def keep(view: "ShuffleView") -> None:
            nonlocal outcome
            outcome = view.outcome or outcome

        asked: dict[str, Any] = {
            "form": form,
            "count": int(count),
            "seed": int(seed or 0),
            "controls": controls,
            "settings": settings,
        }
        emptied: list[Any] = [panel.verdict, panel.matrix, panel.answer, panel.played, panel.spread]
        return Job(
            what="shuffle",
            methods=with_controls(form.methods) if controls else form.methods,
            work=partial(_shuffle, **asked),
            plan=partial(_plan, **asked),
            show=show_view,
            keep=keep,
            task=lambda: form.task,
            cleared={
                **dict.fromkeys(emptied, ""),
                panel.tried: None,
                panel.offer: gr.update(visible=False),
                panel.kept: None,
            }
            | no_results(panel.results),
            kept="The orders tried so far are kept.",
            end=lambda: hand_over(outcome, origin) if outcome else {},
        )

    shown: list[Any] = [*drawn, panel.answer, panel.offer, panel.certificate, panel.sheet, panel.kept]
    shown += [panel.results.origin, panel.results.note, page.results.origin, page.results.note]
    answers = [page.finished, page.answers, page.shown, page.bar.status]
    inputs = [panel.kept, chosen, page.accepted, panel.count, panel.seed, panel.controls, *page.inputs]
    return wire_job(panel.bar, begin, inputs, [*shown, *answers], sources, chosen)


def answer_behind(tried: "Tried", what: Mapping[str, Any]) -> str:
    """HTML of the answer that a pick names; "" for one that names none.

    what: {"tried": number of the row, "method": ...}, comes from the browser and is not to be trusted.
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
    """Removes the certificate of an earlier shuffle, also when the page is closed."""
    if files is not None:
        remove_files(files)
