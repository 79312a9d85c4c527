"""What follows a change of the form: its tokens, how long each job takes, and which results are outdated."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import gradio as gr

from viz.page.answers.outdated import outdated_html
from viz.page.answers.workspace import Workspace
from viz.page.common.event_options import PRIVATE_EVENT
from viz.page.common.failures import explain, notice
from viz.page.common.host_settings import DEFAULTS, HostSettings
from viz.page.form.form import Form, TokenCount, count_tokens, read_form
from viz.page.form.limits import too_long
from viz.page.jobs.cost import Work, planned
from viz.page.jobs.sources import Sources
from viz.page.shuffle.orders import number_of_orders, with_controls
from viz.page.shuffle.shuffle_panel import ShufflePanel
from viz.page.sweep.sweep_panel import StandingPanel, compared_methods

if TYPE_CHECKING:  # imports torch, which would keep the page waiting
    from pine_engine.engine.engine import Engine
    from viz.page.jobs.model_pool import Choice


def total_html(count: TokenCount, max_new_tokens: int, settings: HostSettings = DEFAULTS) -> str:
    """HTML: the prompt's length against the model's context, in tokens. settings: what the host allows."""
    needed = count.total + max_new_tokens
    sentence = (
        f"{count.total:,} prompt tokens + {max_new_tokens} for the answer, of {count.max_context_length:,}"
    )
    if needed > count.max_context_length:
        return notice(f"{sentence}: too long, shorten or remove documents", kind="error")
    if why := too_long(count.total, settings):
        return notice(why, kind="error")
    return notice(sentence, kind="count")


def planned_jobs(
    form: Form, tokens: int, *, orders: int, controls: bool, settings: HostSettings
) -> tuple[Work, Work, Work]:
    """The work of a run of the form, of a shuffle, and of moving a document through all slots.

    tokens: of the prompt. orders, controls: what the shuffle is origin for. No model is needed for it.
    """
    documents = len(form.entries)
    shuffled = with_controls(form.methods) if controls else form.methods
    return (
        planned(tokens=tokens, methods=len(form.methods), new_tokens=form.max_new_tokens),
        planned(
            tokens=tokens,
            methods=len(shuffled),
            orders=number_of_orders(documents, orders, settings.max_orders),
            new_tokens=form.max_new_tokens,
        ),
        planned(tokens=tokens, methods=len(compared_methods(form.methods)), orders=documents),
    )


def wire_counting(
    page: Workspace,
    shuffle: ShufflePanel,
    standing: StandingPanel,
    sources: Sources,
    settings: HostSettings,
    *,
    chosen: gr.State,
    ready: gr.State,
    runs: Sequence[Any],
) -> None:
    """Follows each change, and each of the events of a run, which were measured.

    chosen: see wire_job. ready: state that changes when a model has been loaded.
    """
    jobs: tuple[Workspace | ShufflePanel | StandingPanel, ...] = (page, shuffle, standing)

    def count(form: Form, engine: "Engine", orders: int, controls: bool) -> dict[Any, Any]:
        counted = count_tokens(form, engine)
        counts = ["" if length is None else f"{length:,} tokens" for length in counted.documents]
        works = planned_jobs(form, counted.total, orders=orders, controls=controls, settings=settings)
        speed = sources.runs.speed(engine.model_name)
        return {
            page.total: total_html(counted, form.max_new_tokens, settings),
            page.editor.cards: gr.update(counts=counts),
            **{
                job.bar.estimate: notice(speed.estimate(work), kind="count")
                for job, work in zip(jobs, works, strict=True)
            },
        }

    def follow(choice: "Choice | None", orders: float, controls: bool, *values: Any) -> Any:
        origin, values = values[: len(jobs)], values[len(jobs) :]
        updates: dict[Any, Any] = {}
        try:
            form = read_form(*values)
            engine = sources.now(form.task, choice)
            if engine is not None:
                updates |= count(form, engine, int(orders), controls)
        except Exception as error:
            updates[page.total] = notice(explain(error), kind="error")
        for job, one in zip(jobs, origin, strict=True):
            note = outdated_html(one, form, choice, press=job.bar.run.elem_id or "")
            updates[job.results.note] = note
            if one and not one.recorded and not note:
                updates[job.bar.estimate] = ""  # it is done
        return updates

    inputs = [chosen, shuffle.count, shuffle.controls, *(job.results.origin for job in jobs), *page.inputs]
    outputs = [page.total, page.editor.cards]
    outputs += [widget for job in jobs for widget in (job.bar.estimate, job.results.note)]
    paused = gr.Button(visible="hidden", elem_id="count-form")  # pressed by assets/typing.js
    picked: list[Any] = [page.task, page.instruction, page.methods, page.length]
    picked += [shuffle.count, shuffle.controls, ready]
    gr.on(
        [paused.click, page.editor.cards.input, *(widget.change for widget in picked)],
        follow,
        inputs,
        outputs,
        trigger_mode="always_last",
        **PRIVATE_EVENT,
    )
    for event in runs:
        event.then(follow, inputs, outputs, **PRIVATE_EVENT)
