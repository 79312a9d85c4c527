"""Updates of the tab "See it" after a change of the form: lengths, times, problems and notices."""

from collections.abc import Sequence

import gradio as gr

import pine_engine as pine
from pine_engine.scheduling.work import Work, planned
from viz.page.answers.form_state import FormState, total_sentence
from viz.page.answers.shown import Shown
from viz.page.answers.stale import stale_html
from viz.page.answers.start import num_missing, start_json
from viz.page.answers.workspace import Workspace
from viz.page.common.failures import notice
from viz.page.form.examples import example_of
from viz.page.form.form import Form, sized_instructions
from viz.page.form.orders import tries_all, with_controls
from viz.page.jobs.job_bar import Updates

ONE_ORDER = "One document has one order. Add a document to run others."


def follow_answers(
    page: Workspace, state: FormState, shown: Shown, num_orders: int, *, controls: bool
) -> Updates:
    """Return the updates of the tab; `shown` has the answers on the page."""
    form, num_documents = state.form, len(state.form.entries)
    methods = with_controls(form.methods) if controls else form.methods
    missing = num_missing(state.inputs, methods, shown, num_orders)
    note = stale_html(shown.form, shown.changes(state.inputs), press="" if state.problem else "start-all")
    problem = notice(ONE_ORDER, kind="note") if num_documents == 1 else ""
    updates: Updates = {
        page.problem: notice(state.problem, kind="error") if state.problem else problem,
        page.start: start_json(num_documents, num_orders, missing, state.problem),
        page.sample: gr.update(visible=not tries_all(num_documents)),
        page.stale: note,
    }
    default = form.row.instruction
    # Not that of another task, which the form has until a picked example has filled it.
    if form.instruction != default and form.instruction in sized_instructions(form.task):
        updates[page.instruction] = default
    return (
        updates
        | _lengths(page, state)
        | _estimates(page, state, missing, controls=controls)
        | _example_note(page, form, shown, is_stale=bool(note))
    )


def planned_answers(
    form: Form, tokens: int, *, orders: int, controls: bool, fitting: "Sequence[pine.Method]" = ()
) -> tuple[Work, Work]:
    """Plan a run of one order and of `orders`, without a model.

    `fitting` are the methods that fit the model, if it is known.
    """
    methods = with_controls(form.methods, fitting) if controls else form.methods
    return (
        planned(tokens=tokens, methods=len(form.methods), new_tokens=form.max_new_tokens),
        planned(tokens=tokens, methods=len(methods), orders=orders, new_tokens=form.max_new_tokens),
    )


def _lengths(page: Workspace, state: FormState) -> Updates:
    """Return the updates of the lengths of documents and prompt, none while they are unknown."""
    if state.count is None:
        return {}
    counts = ["" if length is None else f"{length:,} tokens" for length in state.count.documents]
    total = total_sentence(state.count, state.form.max_new_tokens)
    return {page.total: notice(total, kind="count"), page.editor.cards: gr.update(counts=counts)}


def _estimates(page: Workspace, state: FormState, orders: int, *, controls: bool) -> Updates:
    """Return the updates of the estimates of one order and of the missing orders."""
    one, many = planned_answers(
        state.form, state.num_tokens, orders=orders, controls=controls, fitting=state.fitting
    )
    if state.lacks("logits"):  # the first request is repeated
        again = Work(1, state.num_tokens, state.form.max_new_tokens)
        one, many = one + again if one.prompts > 1 else one, many + again
    updates = state.estimate(page.bar, one, "This order")
    updates |= state.estimate(page.shuffle_bar, many, f"{orders} orders")
    if state.count and (len(state.form.entries) < 2 or not orders):
        updates[page.shuffle_bar.estimate] = ""
    return updates


def _example_note(page: Workspace, form: Form, shown: Shown, *, is_stale: bool) -> Updates:
    """Return the update of the remark about an example, which is shown beside its answers only."""
    example = example_of(form)
    if is_stale and any(one and one.note for one in (example, example_of(shown.form))):
        return {page.note: ""}
    if not is_stale and example and example.note:
        return {page.note: notice(example.note, kind="note")}
    return {}
