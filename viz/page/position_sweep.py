"""Tab "Position sweep": one document moves through all slots; question and target answer stay."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import gradio as gr

from pine_engine.errors import InputError
from pine_engine.methods.table import METHODS
from pine_engine.prompts.tasks import TASKS, Nouns
from pine_engine.scheduling.job import Job
from pine_engine.scheduling.work import Work
from viz.drawing.identity import document_letter
from viz.drawing.markup import empty_panel
from viz.figures.order_effects import plot_order_effects
from viz.figures.position_sweep import plot_position_sweep
from viz.page.answers.form_state import FormState
from viz.page.answers.shown import Inputs, changes
from viz.page.answers.stale import stale_html
from viz.page.answers.workspace import Workspace
from viz.page.common.failures import notice
from viz.page.common.host_settings import HostSettings
from viz.page.common.widgets import PRIVATE_EVENT, bind, build_figure, figure_value
from viz.page.form.documents import DOCUMENTS, capital, read_entries
from viz.page.form.examples import load_examples
from viz.page.form.form import read_form
from viz.page.form.options import DEFAULT_METHODS
from viz.page.internals.content import how_to_read
from viz.page.jobs.job_bar import ButtonJob, JobBar, Updates, bind_job
from viz.page.jobs.sources import Choice, Sources
from viz.page.position_sweep_job import SweepView, compared_methods, planned_sweep, prepare_sweep

LABELS = {row.name: row.label for row in METHODS.values()}

WHAT_WILL_BE = (
    "Click “Run position sweep” to plot the log-probability of the answer against the document’s slot."
)


def work_sentence(num_documents: int, ticked: Sequence[str], nouns: Nouns = DOCUMENTS) -> str:
    """Describe the planned sweep."""
    if num_documents < 2:
        return f"Add {nouns.a_document} to run a sweep: there is only one slot."
    methods = compared_methods(ticked)
    added = [
        METHODS[name].label + ("" if METHODS[name].fits("passes") else ", where it fits")
        for name in methods
        if name not in ticked
    ]
    note = f" (plus {' and '.join(added)})" if added else ""
    return f"{num_documents} slots × {len(methods)} methods{note}."


def document_choices(identities: Sequence[int], nouns: Nouns = DOCUMENTS) -> list[tuple[str, int]]:
    """Return label and identity of the documents that can be moved."""
    return [(capital(nouns.named(document_letter(identity))), identity) for identity in sorted(identities)]


def moved_at_first(identities: Sequence[int], picked: int | None, gold: int | None) -> int | None:
    """Return the document to move: the selected one, else the gold document, else the first."""
    return next((one for one in (picked, gold) if one in identities), min(identities, default=None))


class SweepTab:
    """Widgets and states of the tab, for the first example."""

    def __init__(self) -> None:
        first = load_examples()[0]
        num_documents = len(first.documents)
        with gr.Column(elem_id="sweep-section", elem_classes="page-section"):
            gr.HTML(
                "<p class='page-about'>Moves one document through all slots. A curve that is not flat "
                "indicates position bias.</p>"
            )
            with gr.Row(elem_classes="page-row"):
                self.document = gr.Dropdown(
                    document_choices(range(num_documents)),
                    value=first.gold,
                    label="Document to move",
                    elem_id="sweep-document",
                    scale=1,
                )
                self.answer = gr.Textbox(
                    "",
                    label="Target answer",
                    info="Default: an answer that is the same for every order, PINE’s where it fits.",
                    max_lines=3,
                    elem_id="sweep-answer",
                    scale=4,
                    min_width=260,
                )
            with gr.Row(elem_classes="page-row"):
                self.bar = JobBar("Run position sweep", run_id="sweep-run", stop_id="sweep-stop")
            self.bar.build_status(work_sentence(num_documents, DEFAULT_METHODS), status_id="sweep-status")
            self.stale = gr.HTML("")  # notice that the sweep is out of date
            self.finding = gr.HTML(empty_panel(WHAT_WILL_BE), elem_id="sweep-finding")
            self.lines = build_figure("sweep-lines", picks_itself=True)
            self.effects = build_figure("sweep-effects", picks_itself=True)
            gr.HTML(how_to_read("sweep"))
        self.origin = gr.State(None)  # inputs of the sweep; None before
        self.picked = gr.State((None, 0))  # example, and the document that was selected for it


def bind_sweep(
    tab: SweepTab, page: Workspace, sources: Sources, chosen: gr.State, settings: HostSettings
) -> Any:
    """Connect the tab; return the event of a sweep."""
    # The value of the dropdown is no input where its choices change: another event may have changed the
    # choices, and gradio would refuse the value.
    tab.document.input(lambda *picked: picked, [page.example, tab.document], tab.picked, **PRIVATE_EVENT)
    gr.on(
        [page.editor.cards.input, page.task.change, page.methods.change],
        bind(show_choices, tab),
        [page.editor.cards, page.task, page.methods, page.example, tab.picked],
        [tab.document, tab.bar.status],
        **PRIVATE_EVENT,
    )
    inputs = [chosen, tab.document, tab.answer, *page.inputs]
    outputs = [tab.finding, tab.lines, tab.effects, tab.origin, tab.stale]
    return bind_job(tab.bar, bind(begin_sweep, tab, settings), inputs, outputs, sources, chosen)


def show_choices(
    tab: SweepTab,
    documents: str,
    task: str,
    ticked: Sequence[str],
    example: str | None,
    picked: tuple[str | None, int | None],
) -> Updates:
    """Return the updates of the documents that can be moved, and of the planned sweep."""
    identities = [entry.letter for entry in read_entries(documents)]
    nouns = TASKS[task].nouns
    golds = {one.name: one.gold for one in load_examples()}
    own = picked[1] if picked[0] == example else None
    return {
        tab.document: gr.update(
            choices=document_choices(identities, nouns),
            label=f"{capital(nouns.document)} to move",
            value=moved_at_first(identities, own, golds.get(example or "")),
        ),
        tab.bar.status: notice(work_sentence(len(identities), ticked, nouns)),
    }


def follow_sweep(tab: SweepTab, state: FormState, swept: Inputs | None) -> Updates:
    """Return the updates after a change of the form; `swept` has the inputs of the sweep, None before."""
    press, form = "sweep-run", swept[0] if swept else state.form
    is_possible = not state.lacks("logprobs")
    work = planned_sweep(state.form, state.num_tokens, state.fitting) if is_possible else Work()
    stale = stale_html(form, changes(swept, state.inputs), press=press, with_order=True)
    return {tab.stale: stale} | state.estimate(tab.bar, work)


def begin_sweep(
    tab: SweepTab,
    settings: HostSettings,
    model: Choice | None,
    document: int | None,
    answer: str | None,
    *values: Any,
) -> ButtonJob:
    """Return the job that moves a document. Raises InputError if none is selected."""
    if document is None:
        raise InputError("No document selected. Select the document to move.")
    form = read_form(*values)
    arguments = {"form": form, "document": document, "answer": answer or "", "settings": settings}
    return ButtonJob(
        job=Job("sweep", compared_methods(form.methods), prepare_sweep, arguments),
        show=partial(show_sweep, tab, (form, model)),
        task=form.task,
        cleared={tab.stale: ""},
        kept="Completed slots are kept.",
    )


def show_sweep(tab: SweepTab, inputs: Inputs, view: SweepView) -> Updates:
    """Return the updates of a view with a finished slot."""
    if not view.finding:
        return {}
    return {
        tab.origin: inputs,
        tab.finding: notice(view.finding, kind="note"),
        tab.lines: figure_value(plot_position_sweep(view.steps, slots=view.slots, labels=LABELS)),
        tab.effects: figure_value(plot_order_effects(view.effects) if view.effects else None),
    }
