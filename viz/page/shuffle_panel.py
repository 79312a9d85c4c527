"""The shuffle: the same question under one order of the documents after the other."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import gradio as gr

from pine_engine.tasks import Nouns, get_task
from viz.page.documents import DOCUMENTS
from viz.page.failures import notice
from viz.page.form import Form, read_form
from viz.page.jobs import Job, JobBar, Updates, Views, build_bar, build_buttons, wire_job
from viz.page.running import PRIVATE_EVENT
from viz.page.source import Sources
from viz.page.speed import Work
from viz.page.workspace import Workspace, show
from viz.shuffle import shuffle_table

if TYPE_CHECKING:  # imports torch, which would keep the page waiting
    from pine_engine.engine import Engine
    from viz.page.sheets import Files
    from viz.page.shuffling import Outcome, ShuffleView

ALL_ORDERS_UP_TO = 4
"""With so many documents or fewer every order is tried; with more, a seeded sample.

Controls run by default up to there too: the proof is complete only with them, and all of it takes minutes at
most. Two of them read as much as PINE does, so with more documents a visitor decides about the wait.
"""
MOST_ORDERS = 24
DEFAULT_ORDERS = 6


@dataclass(frozen=True)
class ShufflePanel:
    """The widgets of the shuffle.

    many: state, whether only a sample of the orders is tried. kept: state, the files of the certificate that
    is offered, or None.
    """

    bar: JobBar
    controls: gr.Checkbox
    sample: gr.Row
    count: gr.Slider
    seed: gr.Number
    table: gr.HTML
    spread: gr.HTML
    offer: gr.Row
    certificate: gr.DownloadButton
    sheet: gr.DownloadButton
    many: gr.State
    kept: gr.State


def orders_sentence(num_documents: int, count: int, seed: int, nouns: Nouns = DOCUMENTS) -> str:
    """Which orders Shuffle will try, in words."""
    if num_documents < 2:
        return f"There is one order only; add {nouns.a_document}."
    counted = f"{num_documents} {nouns.documents}"
    if num_documents <= ALL_ORDERS_UP_TO:
        return f"{counted}: all {math.factorial(num_documents)} orders will be tried."
    return f"{counted}: the order as entered and {count - 1} random ones, seed {seed}."


def button_label(nouns: Nouns) -> str:
    """What is written on the button that shuffles."""
    return f"Shuffle the {nouns.documents}"


def build_shuffle(num_documents: int) -> ShufflePanel:
    """Makes the widgets. num_documents: how many the editor shows at first."""
    with gr.Column(elem_id="shuffle-section", elem_classes="page-section"):
        gr.HTML(
            "<h2>Shuffle</h2><p>Every order is computed from scratch. A method that depends on the order "
            "changes its answer; one that does not must repeat it, with a logit difference of 0.0.</p>"
        )
        with gr.Row(elem_classes="page-row page-shuffle-bar"):
            buttons = build_buttons(button_label(DOCUMENTS), run_id="shuffle", stop_id="stop-shuffle")
            controls = gr.Checkbox(
                num_documents <= ALL_ORDERS_UP_TO,
                label="with controls",
                info="Also run what must be able to change, so that you see the check can fail.",
                elem_id="with-controls",
                container=False,
                min_width=220,
            )
            with gr.Row(visible=num_documents > ALL_ORDERS_UP_TO, elem_classes="page-row") as sample:
                count = gr.Slider(
                    2,
                    MOST_ORDERS,
                    value=DEFAULT_ORDERS,
                    step=1,
                    label="Orders to try",
                    elem_id="orders",
                    min_width=160,
                )
                seed = gr.Number(
                    0, label="Seed of the random orders", precision=0, elem_id="seed", min_width=120
                )
        sentence = orders_sentence(num_documents, DEFAULT_ORDERS, 0)
        bar = build_bar(buttons, sentence, status_id="shuffle-status")
        table = gr.HTML(shuffle_table([], []), elem_id="shuffle-table")
        spread = gr.HTML("", elem_id="shuffle-spread")
        with gr.Row(visible=False, elem_classes="page-row", elem_id="certificate-offer") as offer:
            certificate = gr.DownloadButton(
                "Certificate (JSON)", elem_id="certificate", size="sm", min_width=160
            )
            sheet = gr.DownloadButton(
                "Certificate to print", elem_id="certificate-page", size="sm", min_width=160
            )
            gr.HTML(
                '<p class="page-caption">So that somebody else can repeat this shuffle with one command, '
                "which they name. Both files contain everything you typed: the question, the instruction and "
                "all documents.</p>"
            )
    return ShufflePanel(
        bar=bar,
        controls=controls,
        sample=sample,
        count=count,
        seed=seed,
        table=table,
        spread=spread,
        offer=offer,
        certificate=certificate,
        sheet=sheet,
        many=gr.State(num_documents > ALL_ORDERS_UP_TO),
        kept=gr.State(None, delete_callback=_forget),
    )


def wire_shuffle(panel: ShufflePanel, page: Workspace, sources: Sources) -> Any:
    """Connects the widgets; returns the event of a shuffle, which ends as a run with other orders tried."""

    def announce(
        identities: Sequence[int], task: str, count: int, seed: int | None, were_many: bool
    ) -> dict[Any, Any]:
        many, nouns = len(identities) > ALL_ORDERS_UP_TO, get_task(task).nouns
        updates: dict[Any, Any] = {
            panel.sample: gr.update(visible=many),
            panel.bar.run: gr.update(value=button_label(nouns)),
            panel.bar.status: notice(orders_sentence(len(identities), count, seed or 0, nouns)),
            panel.many: many,
        }
        # Only here, so that what a visitor has chosen stays while documents are edited.
        return updates if many == were_many else updates | {panel.controls: not many}

    gr.on(
        [page.editor.identities.change, page.task.change, panel.count.change, panel.seed.change],
        announce,
        [page.editor.identities, page.task, panel.count, panel.seed, panel.many],
        [panel.bar.run, panel.sample, panel.bar.status, panel.many, panel.controls],
        **PRIVATE_EVENT,
    )

    def hand_over(outcome: "Outcome", task: str) -> dict[Any, Any]:
        from viz.page.answering import finished_cards  # these import torch, which is there by now
        from viz.page.sheets import write_files

        files = write_files(outcome.certificate, panel.certificate.GRADIO_CACHE)
        return {
            page.finished: outcome.finished,
            page.bar.status: notice("The answers in the order as entered, from the shuffle."),
            panel.kept: files,
            panel.offer: gr.update(visible=True),
            panel.certificate: str(files.certificate),
            panel.sheet: str(files.page),
        } | show(page, finished_cards(outcome.finished), task)

    def begin(kept: "Files | None", count: float, seed: float | None, controls: bool, *values: Any) -> Job:
        form = read_form(*values)
        outcome: Outcome | None = None
        _forget(kept)

        def show_view(view: "ShuffleView") -> Updates:
            shown = {panel.table: view.table, panel.spread: view.spread}
            return {widget: html for widget, html in shown.items() if html is not None}

        def keep(view: "ShuffleView") -> None:
            nonlocal outcome
            outcome = view.outcome or outcome

        asked: dict[str, Any] = {
            "form": form,
            "count": int(count),
            "seed": int(seed or 0),
            "controls": controls,
        }
        return Job(
            work=partial(_shuffle, **asked),
            plan=partial(_plan, **asked),
            show=show_view,
            keep=keep,
            task=lambda: form.task,
            cleared={
                panel.table: shuffle_table([], []),
                panel.spread: "",
                panel.offer: gr.update(visible=False),
                panel.kept: None,
            },
            stopped="Stopped. The orders tried so far are kept.",
            end=lambda: hand_over(outcome, form.task) if outcome else {},
        )

    shown = [panel.table, panel.spread, panel.offer, panel.certificate, panel.sheet, panel.kept]
    answers = [page.finished, page.answers, page.shown, page.bar.status]
    inputs = [panel.kept, panel.count, panel.seed, panel.controls, *page.inputs]
    return wire_job(panel.bar, begin, inputs, [*shown, *answers], sources)


def _shuffle(engine: "Engine", form: Form, count: int, seed: int, controls: bool) -> Views:
    from viz.page.shuffling import shuffle  # imports torch, which is there by now

    return shuffle(engine, form, count=count, seed=seed, controls=controls)


def _plan(engine: "Engine", form: Form, count: int, seed: int, controls: bool) -> Work:
    from viz.page.planning import plan_shuffle  # imports torch, as above

    return plan_shuffle(engine, form, count=count, seed=seed, controls=controls)


def _forget(files: "Files | None") -> None:
    """Removes the certificate of an earlier shuffle, also when the page is closed."""
    if files is not None:
        from viz.page.sheets import remove_files  # imports torch, which has made the certificate

        remove_files(files)
