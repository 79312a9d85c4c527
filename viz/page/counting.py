"""Updates after a change of the form: token counts, time estimates, out-of-date results."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gradio as gr

import pine_engine as pine
from pine_engine.errors import PineError
from pine_engine.methods.table import METHODS
from pine_engine.models.load import context_words
from pine_engine.scheduling.work import Work, planned
from viz.drawing.identity import document_letter
from viz.drawing.markup import join_words, render
from viz.page.answers.run import Inputs, Shown, changes
from viz.page.answers.start import num_missing, start_json
from viz.page.answers.workspace import Workspace
from viz.page.common.failures import explain, notice
from viz.page.common.host_settings import HostSettings
from viz.page.common.widgets import NEWEST_EVENT, PRIVATE_EVENT, bind
from viz.page.form.checks import too_long
from viz.page.form.examples import example_of
from viz.page.form.form import Form, TokenCount, count_tokens, read_form, sized_instructions
from viz.page.form.orders import tries_all, with_controls
from viz.page.jobs.job_bar import JobBar, Updates
from viz.page.jobs.sources import Choice, Sources
from viz.page.position_sweep import SweepTab
from viz.page.position_sweep_job import compared_methods

if TYPE_CHECKING:  # imports torch
    from pine_engine.endpoint.client import Endpoint

ONE_ORDER = "One document has one order. Add a document to run others."


def total_sentence(count: TokenCount, max_new_tokens: int) -> str:
    """Describe the lengths of prompt and answer, and the context length of the model, in tokens."""
    if count.max_context_length is None:
        return f"about {count.total:,} prompt + {max_new_tokens} answer tokens"
    context = context_words(count.max_context_length)
    return f"{count.total:,} prompt + {max_new_tokens} answer tokens (context: {context})"


def too_many_tokens(count: TokenCount, max_new_tokens: int, settings: HostSettings) -> str:
    """Return why a prompt does not fit, or ""."""
    if count.max_context_length is None or count.total + max_new_tokens <= count.max_context_length:
        return too_long(count.total, settings) or ""
    return f"Prompt too long: {total_sentence(count, max_new_tokens)}. Shorten or remove documents."


def planned_jobs(
    form: Form, tokens: int, *, orders: int, controls: bool, fitting: "Sequence[pine.Method]" = ()
) -> tuple[Work, Work, Work]:
    """Plan a run of one order, of `orders` and a position sweep of the form, without a model.

    `fitting` are the methods that fit the model, if it is known.
    """
    documents = len(form.entries)
    shuffled = with_controls(form.methods, fitting) if controls else form.methods
    return (
        planned(tokens=tokens, methods=len(form.methods), new_tokens=form.max_new_tokens),
        planned(tokens=tokens, methods=len(shuffled), orders=orders, new_tokens=form.max_new_tokens),
        planned(tokens=tokens, methods=len(compared_methods(form.methods, fitting)), orders=documents),
    )


def stale_html(form: Form, changed: Sequence[str], *, press: str, with_order: bool = False) -> str:
    """Render the form of results, the changes since and a button that reruns; "" without changes."""
    if not changed:
        return ""
    return render(
        "stale.html",
        order=[document_letter(letter) for letter in form.order] if with_order else [],
        question=form.question.strip() if form.row.needs_question else "",
        methods=[METHODS[name].label for name in form.methods],
        changed=join_words(changed),
        press=press,
    )


@dataclass(frozen=True)
class Counting:
    """Parts of the page that show lengths, times and problems of the form; `stale` is that of Internals."""

    page: Workspace
    sweep: SweepTab
    stale: gr.HTML
    sources: Sources
    settings: HostSettings

    @property
    def bars(self) -> tuple[JobBar, JobBar, JobBar]:
        """Bars of one order, all orders and the sweep."""
        return self.page.bar, self.page.shuffle_bar, self.sweep.bar


def bind_counting(counting: Counting, *, chosen: gr.State, ready: gr.State, runs: Sequence[Any]) -> None:
    """Connect the token count and the estimates to each change and to the events of a run."""
    page, sweep = counting.page, counting.sweep
    paused = gr.Button(visible="hidden", elem_id="count-form")  # pressed by assets/typing.js
    picked: list[Any] = [page.task, page.instruction, page.methods, page.length, page.chat_template_kwargs]
    picked += [page.num_orders, page.controls, ready, page.origin, sweep.origin]
    inputs = [chosen, page.num_orders, page.controls, page.shown, sweep.origin, *page.inputs]
    outputs = [page.total, page.editor.cards, page.instruction, page.problem, page.start, page.sample]
    outputs += [page.note, page.stale, sweep.stale, counting.stale, *(bar.estimate for bar in counting.bars)]
    follow = bind(follow_form, counting)
    changes = [paused.click, page.editor.cards.input, *(widget.change for widget in picked)]
    gr.on(changes, follow, inputs, outputs, **NEWEST_EVENT)
    for event in runs:
        event.then(follow, inputs, outputs, **PRIVATE_EVENT)


def follow_form(
    counting: Counting,
    model: Choice | None,
    orders: float,
    controls: bool,
    shown: Shown,
    swept: Inputs | None,
    *values: Any,
) -> Updates:
    """Return the updates after a change of the form."""
    page, sweep, form = counting.page, counting.sweep, read_form(*values)
    updates: Updates = {}
    inputs, num_documents, why = (form, model), len(form.entries), ""
    methods = with_controls(form.methods) if controls else form.methods
    missing = num_missing(inputs, methods, shown, int(orders))
    try:
        if engine := counting.sources.now(form.task, model):
            updates, why = count_form(counting, form, engine, missing, controls)
        form.check()
    except PineError as error:
        why = explain(error)
    press = "" if why else "start-all"
    note = stale_html(shown.form, shown.changes(inputs), press=press)
    if why:
        updates |= {bar.estimate: "" for bar in counting.bars} | {page.problem: notice(why, kind="error")}
    else:
        updates[page.problem] = "" if num_documents > 1 else notice(ONE_ORDER, kind="note")
    updates |= {
        page.start: start_json(num_documents, int(orders), missing, why),
        page.sample: gr.update(visible=not tries_all(num_documents)),
        page.stale: note,
        counting.stale: note,
        sweep.stale: stale_html(
            swept[0] if swept else form, changes(swept, inputs), press="sweep-run", with_order=True
        ),
    }
    default = form.row.instruction
    # Not that of another task, which the form has until a picked example has filled it.
    if form.instruction != default and form.instruction in sized_instructions(form.task):
        updates[page.instruction] = default
    example, left = example_of(form), example_of(shown.form) if note else None
    if left and left.note:
        updates[page.note] = ""
    elif not note and example and example.note:
        updates[page.note] = notice(example.note, kind="note")
    return updates


def count_form(
    counting: Counting, form: Form, engine: "pine.Engine | Endpoint", orders: int, controls: bool
) -> tuple[Updates, str]:
    """Return the updates of the lengths and times of a form, and why prompt or method do not fit, or ""."""
    page, settings = counting.page, counting.settings
    counted = count_tokens(form, engine)
    counts = ["" if length is None else f"{length:,} tokens" for length in counted.documents]
    works = planned_jobs(form, counted.total, orders=orders, controls=controls, fitting=engine.methods)
    is_text = engine.meets == "texts"
    if is_text:  # one request is repeated, and none scores an answer
        again = Work(1, counted.total, form.max_new_tokens)
        works = (works[0] + again if works[0].prompts > 1 else works[0], works[1] + again, Work())
    speed = counting.sources.runs.speed(engine.model_name)
    updates: Updates = {
        page.total: notice(total_sentence(counted, form.max_new_tokens), kind="count"),
        page.editor.cards: gr.update(counts=counts),
    }
    labels = ("This order", f"{orders} orders", "")
    for bar, work, label in zip(counting.bars, works, labels, strict=True):
        updates[bar.estimate] = notice(speed.estimate(work, label, is_text=is_text), kind="count")
    if len(form.entries) < 2 or not orders:
        updates[page.shuffle_bar.estimate] = ""
    misfits = filter(None, (engine.misfit(METHODS[name]) for name in form.methods))
    return updates, next(misfits, "") or too_many_tokens(counted, form.max_new_tokens, settings)
