"""Tab "Position sweep": one document moves through all slots; question and target answer stay."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import gradio as gr

from pine_engine.errors import InputError
from pine_engine.methods.table import METHODS
from pine_engine.prompts.tasks import TASKS, Nouns
from pine_engine.scheduling.runs import Job
from viz.drawing.identity import document_letter
from viz.drawing.markup import empty_panel
from viz.figures.order_effects import plot_order_effects
from viz.figures.position_sweep import plot_position_sweep
from viz.page.answers.stale import Origin
from viz.page.answers.workspace import Workspace
from viz.page.common.failures import notice
from viz.page.common.host_settings import HostSettings
from viz.page.common.widgets import PRIVATE_EVENT, build_figure, figure_value
from viz.page.form.documents import DOCUMENTS, capital, read_entries
from viz.page.form.examples import FormExample
from viz.page.form.form import read_form
from viz.page.form.options import DEFAULT_METHODS
from viz.page.internals_figures import how_to_read
from viz.page.jobs.job_bar import ButtonJob, JobBar, Updates, bind_job, build_bar, build_buttons
from viz.page.jobs.sources import Choice, Sources
from viz.page.position_sweep_job import SweepView, prepare_sweep

LABELS = {row.name: row.label for row in METHODS.values()}

ALWAYS_COMPARED = ("vanilla", "nia")  # explanation of the split of vanilla by NIA
WHAT_WILL_BE = (
    "Click “Run position sweep” to plot the log-probability of the answer against the document’s slot."
)


@dataclass(frozen=True)
class SweepTab:
    """Widgets of the tab that follow changes of the form, and the event of a sweep."""

    bar: JobBar
    stale: gr.HTML  # notice that the sweep is out of date
    origin: gr.State  # inputs of the sweep; None before
    event: Any


def compared_methods(ticked: Sequence[str]) -> tuple[str, ...]:
    """Return the ticked methods with vanilla and NIA, in the order of the table of methods."""
    return tuple(name for name in METHODS if name in (*ticked, *ALWAYS_COMPARED))


def work_sentence(num_documents: int, ticked: Sequence[str], nouns: Nouns = DOCUMENTS) -> str:
    """Describe the planned sweep."""
    if num_documents < 2:
        return f"Add {nouns.a_document} to run a sweep: there is only one slot."
    methods = compared_methods(ticked)
    added = [METHODS[name].label for name in methods if name not in ticked]
    note = f" (plus {' and '.join(added)})" if added else ""
    return f"{num_documents} slots × {len(methods)} methods{note}."


def document_choices(identities: Sequence[int], nouns: Nouns = DOCUMENTS) -> list[tuple[str, int]]:
    """Return label and identity of the documents that can be moved."""
    return [(capital(nouns.named(document_letter(identity))), identity) for identity in sorted(identities)]


def moved_at_first(identities: Sequence[int], picked: int | None, gold: int | None) -> int | None:
    """Return the document to move: the selected one, else the gold document, else the first."""
    return next((one for one in (picked, gold) if one in identities), min(identities, default=None))


def sweep_tab(
    page: Workspace,
    examples: Sequence[FormExample],
    sources: Sources,
    chosen: gr.State,
    settings: HostSettings,
) -> SweepTab:
    """Build the tab for the first example and connect its events."""
    num_documents = len(examples[0].documents)
    golds = {example.name: example.gold for example in examples}
    with gr.Column(elem_id="sweep-section", elem_classes="page-section"):
        gr.HTML(
            "<p class='page-about'>Moves one document through all slots. A curve that is not flat indicates "
            "position bias.</p>"
        )
        with gr.Row(elem_classes="page-row"):
            document = gr.Dropdown(
                document_choices(range(num_documents)),
                value=examples[0].gold,
                label="Document to move",
                elem_id="sweep-document",
                scale=1,
                min_width=160,
            )
            answer = gr.Textbox(
                "",
                label="Target answer",
                info="Default: PINE’s answer, which is the same for every order.",
                lines=1,
                max_lines=3,
                elem_id="sweep-answer",
                scale=4,
                min_width=260,
            )
        with gr.Row(elem_classes="page-row"):
            buttons = build_buttons("Run position sweep", run_id="sweep-run", stop_id="sweep-stop")
        bar = build_bar(buttons, work_sentence(num_documents, DEFAULT_METHODS), status_id="sweep-status")
        stale, origin = gr.HTML(""), gr.State(None)
        finding = gr.HTML(empty_panel(WHAT_WILL_BE), elem_id="sweep-finding")
        lines = build_figure("sweep-lines", picks_itself=True)
        effects = build_figure("sweep-effects", picks_itself=True)
        gr.HTML(how_to_read("sweep"))

    # Example and selected document. The value of the dropdown is no input where its choices change: another
    # event may have changed the choices, and gradio would refuse the value.
    picked = gr.State((None, 0))
    document.input(lambda name, document: (name, document), [page.example, document], picked, **PRIVATE_EVENT)

    def announce(
        documents: str, task: str, ticked: Sequence[str], name: str | None, picked: tuple[str | None, int]
    ) -> Updates:
        identities = [entry.letter for entry in read_entries(documents)]
        nouns = TASKS[task].nouns
        own = picked[1] if picked[0] == name else None
        return {
            document: gr.update(
                choices=document_choices(identities, nouns),
                label=f"{capital(nouns.document)} to move",
                value=moved_at_first(identities, own, golds.get(name or "")),
            ),
            bar.status: notice(work_sentence(len(identities), ticked, nouns)),
        }

    gr.on(
        [page.editor.cards.input, page.task.change, page.methods.change],
        announce,
        [page.editor.cards, page.task, page.methods, page.example, picked],
        [document, bar.status],
        **PRIVATE_EVENT,
    )

    def begin(choice: Choice | None, moved: int | None, reference: str | None, *values: Any) -> ButtonJob:
        if moved is None:
            raise InputError("No document selected. Select the document to move.")
        form = read_form(*values)
        swept = Origin(form, choice)
        form = replace(form, methods=compared_methods(form.methods))

        def show(view: SweepView) -> Updates:
            if not view.finding:
                return {}
            return {
                origin: swept,
                finding: notice(view.finding, kind="note"),
                lines: figure_value(plot_position_sweep(view.steps, slots=view.slots, labels=LABELS)),
                effects: figure_value(plot_order_effects(view.effects) if view.effects else None),
            }

        arguments = {"form": form, "document": moved, "answer": reference or "", "settings": settings}
        return ButtonJob(
            job=Job("sweep", form.methods, prepare_sweep, arguments),
            show=show,
            task=form.task,
            cleared={stale: ""},
            kept="Completed slots are kept.",
        )

    inputs = [chosen, document, answer, *page.inputs]
    outputs = [finding, lines, effects, origin, stale]
    return SweepTab(bar, stale, origin, bind_job(bar, begin, inputs, outputs, sources, chosen))
