"""Position sweep: one document moves through all slots; question and target answer stay."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import gradio as gr

from pine_engine.methods.table import METHODS
from pine_engine.prompts.tasks import Nouns, get_task
from viz.drawing.identity import document_letter
from viz.drawing.markup import empty_panel, render
from viz.figures.order_effects import plot_order_effects
from viz.figures.position_sweep import plot_position_sweep
from viz.page.answers.outdated import Origin, Results, build_results, no_results
from viz.page.answers.workspace import Workspace
from viz.page.common.event_options import PRIVATE_EVENT
from viz.page.common.failures import notice
from viz.page.common.figure_box import build_figure, figure_value
from viz.page.common.host_settings import HostSettings
from viz.page.form.documents import DOCUMENTS, read_entries
from viz.page.form.examples import FormExample
from viz.page.form.form import Form, read_form
from viz.page.form.method_boxes import DEFAULT_METHODS
from viz.page.form.words import capital
from viz.page.jobs.cost import Work
from viz.page.jobs.job_bar import Job, JobBar, Updates, Views, build_bar, build_buttons, wire_job
from viz.page.jobs.sources import Sources

if TYPE_CHECKING:  # imports torch, which would keep the page waiting
    from pine_engine.engine.engine import Engine
    from viz.page.jobs.model_pool import Choice
    from viz.page.sweep.sweeping import SweepView

LABELS = {row.name: row.label for row in METHODS.values()}

ALWAYS_COMPARED = ("vanilla", "nia")
"""Explanation of the split of vanilla by NIA."""

NOTHING_YET = "No document has been moved yet."
WHAT_WILL_BE = (
    "Here will be a line for every method: how likely it finds the answer with the document in the first "
    "slot, the second, and so on."
)


HOW_TO_READ = (
    "In each slot every method says how likely it finds the same answer. Vanilla and NIA are always "
    "compared: under NIA documents do not see each other, so its line shows what positions (RoPE) do alone, "
    "and what vanilla does beyond that is causal attention.",
)


@dataclass(frozen=True)
class StandingPanel:
    """Widgets of the tab."""

    document: gr.Dropdown
    answer: gr.Textbox
    bar: JobBar
    results: Results
    finding: gr.HTML
    """Range of each method, in words."""

    lines: gr.HTML
    effects: gr.HTML


def compared_methods(ticked: Sequence[str]) -> tuple[str, ...]:
    """Return the ticked methods with vanilla and NIA, in the order of the table of methods."""
    return tuple(name for name in METHODS if name in (*ticked, *ALWAYS_COMPARED))


def work_sentence(num_documents: int, ticked: Sequence[str], nouns: Nouns = DOCUMENTS) -> str:
    """Describe the planned sweep."""
    if num_documents < 2:
        return f"There is one slot only; add {nouns.a_document}."
    methods = compared_methods(ticked)
    added = [METHODS[name].label for name in methods if name not in ticked]
    note = f" ({' and '.join(added)} added to the ticked ones)" if added else ""
    return f"{num_documents} slots × {len(methods)} methods{note}."


def document_choices(identities: Sequence[int], nouns: Nouns = DOCUMENTS) -> list[tuple[str, int]]:
    """Return label and identity of the documents that can be moved."""
    return [(capital(nouns.named(document_letter(identity))), identity) for identity in sorted(identities)]


def moved_at_first(identities: Sequence[int], picked: int | None, gold: int | None) -> int | None:
    """Return the document to move: the selected one, else the gold document, else the first."""
    return next((one for one in (picked, gold) if one in identities), min(identities, default=None))


def build_standing(num_documents: int, moved: int = 0) -> StandingPanel:
    """Build the widgets for this number of documents."""
    with gr.Column(elem_id="standing-section", elem_classes="page-section"):
        gr.HTML(
            "<p class='page-about'>One document goes through all slots: a line that is not flat is position "
            "bias.</p>"
        )
        with gr.Row(elem_classes="page-row"):
            document = gr.Dropdown(
                document_choices(range(num_documents)),
                value=moved,
                label="Document to move",
                elem_id="standing-document",
                scale=1,
                min_width=160,
            )
            answer = gr.Textbox(
                "",
                label="Reference answer",
                info="Left empty, it is PINE’s answer, which is the same in every order and favours no slot.",
                lines=1,
                max_lines=3,
                elem_id="standing-answer",
                scale=4,
                min_width=260,
            )
        with gr.Row(elem_classes="page-row"):
            buttons = build_buttons("Move the document", run_id="standing-run", stop_id="standing-stop")
        bar = build_bar(buttons, work_sentence(num_documents, DEFAULT_METHODS), status_id="standing-status")
        results = build_results()
        finding = gr.HTML(empty_panel(WHAT_WILL_BE), elem_id="standing-said")
        lines = build_figure("standing-lines", picks_itself=True)
        effects = build_figure("standing-effects", picks_itself=True)
        gr.HTML(render("how_to_read.html", name="standing", sentences=HOW_TO_READ))
    return StandingPanel(document, answer, bar, results, finding, lines, effects)


def wire_standing(
    panel: StandingPanel,
    page: Workspace,
    examples: Sequence[FormExample],
    sources: Sources,
    chosen: gr.State,
    settings: HostSettings,
) -> Any:
    """Connect the widgets; return the event of a sweep."""
    golds = {example.name: example.gold for example in examples}
    # Under which example which document was picked. The list itself is not read where its choices change:
    # another answer of the server may have changed them meanwhile, and gradio would refuse its value.
    picked = gr.State((None, 0))
    panel.document.input(
        lambda name, document: (name, document), [page.example, panel.document], picked, **PRIVATE_EVENT
    )

    def announce(
        documents: str, task: str, ticked: Sequence[str], name: str | None, picked: tuple[str | None, int]
    ) -> dict[Any, Any]:
        identities = [entry.identity for entry in read_entries(documents)]
        nouns = get_task(task).nouns
        own = picked[1] if picked[0] == name else None
        return {
            panel.document: gr.update(
                choices=document_choices(identities, nouns),
                label=f"{capital(nouns.document)} to move",
                value=moved_at_first(identities, own, golds.get(name or "")),
            ),
            panel.bar.run: gr.update(value=f"Move the {nouns.document}"),
            panel.bar.status: notice(work_sentence(len(identities), ticked, nouns)),
        }

    gr.on(
        [page.editor.cards.input, page.task.change, page.methods.change],
        announce,
        [page.editor.cards, page.task, page.methods, page.example, picked],
        [panel.document, panel.bar.run, panel.bar.status],
        **PRIVATE_EVENT,
    )

    def begin(choice: "Choice | None", document: int | None, answer: str | None, *values: Any) -> Job:
        form = read_form(*values)
        origin = Origin(form, choice)
        form = replace(form, methods=compared_methods(form.methods))

        def show_view(view: "SweepView") -> Updates:
            shown: Updates = {panel.results.origin: origin}
            if view.steps:
                lines = plot_position_sweep(view.steps, slots=view.slots, labels=LABELS)
                shown |= {panel.finding: notice(view.finding, kind="note"), panel.lines: figure_value(lines)}
            if view.effects is not None:
                shown[panel.effects] = figure_value(plot_order_effects(view.effects))
            return shown

        return Job(
            what="standing",
            methods=form.methods,
            work=partial(_stand, form=form, document=document or 0, answer=answer or "", settings=settings),
            plan=partial(_plan, form=form, answer=answer or "", settings=settings),
            show=show_view,
            task=lambda: form.task,
            cleared={panel.finding: empty_panel(NOTHING_YET), panel.lines: "", panel.effects: ""}
            | no_results(panel.results),
            kept="The slots computed so far are kept.",
        )

    inputs = [chosen, panel.document, panel.answer, *page.inputs]
    outputs = [panel.finding, panel.lines, panel.effects, panel.results.origin, panel.results.note]
    return wire_job(panel.bar, begin, inputs, outputs, sources, chosen)


def _stand(engine: "Engine", form: Form, document: int, answer: str, settings: HostSettings) -> Views:
    from viz.page.sweep.sweeping import stand  # imports torch, which is there by now

    return stand(engine, form, document=document, answer=answer, settings=settings)


def _plan(engine: "Engine", form: Form, answer: str, settings: HostSettings) -> Work:
    from viz.page.sweep.sweeping import plan_sweep  # imports torch, as above

    return plan_sweep(engine, form, answer=answer, settings=settings)
