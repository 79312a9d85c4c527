"""Methods that do not fit the model: their boxes are disabled, with the reason as tooltip."""

import json
from collections.abc import Sequence
from typing import Any

import gradio as gr

from pine_engine.errors import PineError
from pine_engine.methods.table import METHODS, default_methods
from viz.page.common.widgets import PRIVATE_EVENT, bind
from viz.page.jobs.job_bar import Updates
from viz.page.jobs.sources import Choice, Sources

USUAL = [{row.name for row in default_methods("placement")}, {row.name for row in default_methods("passes")}]
"""Default methods of models that fit all methods, and of those that fit methods of passes alone."""

OTHER_MODEL = "It runs on a model that PINE Explorer loads, such as the embedded one."


def bind_misfits(
    boxes: Sequence[gr.CheckboxGroup],
    sources: Sources,
    *,
    chosen: gr.State,
    task: gr.Dropdown,
    triggers: Sequence[Any],
) -> None:
    """Follow the model: `boxes` are all groups of methods, which assets/misfits.js disables.

    They are drawn for the model of the host, if it is known.
    """
    misfits = gr.HTML(  # the reasons by method as JSON
        "{}",
        elem_id="misfits",
        html_template="<span hidden></span>",
        js_on_load="pine.misfits.mount({ props, watch });",
    )
    known = fit_boxes(misfits, boxes, sources, None, task.value, *(group.value for group in boxes))
    for widget, value in known.items():
        widget.value = value
    show = bind(show_misfits, misfits, boxes, sources)
    gr.on(triggers, show, [chosen, task, *boxes], [misfits, *boxes], **PRIVATE_EVENT)


def show_misfits(*values: Any) -> Any:
    """Return the updates of `fit_boxes`."""
    return fit_boxes(*values) or gr.skip()


def fit_boxes(
    misfits: gr.HTML,
    boxes: Sequence[gr.CheckboxGroup],
    sources: Sources,
    model: Choice | None,
    task: str,
    *ticked: Sequence[str],
) -> Updates:
    """Return the updates for the model of a task: methods that do not fit are no longer ticked."""
    try:
        engine = sources.now(task, model)
    except PineError:  # which the line of the model shows
        engine = None
    if engine is None:
        return {}
    reasons = {
        name: f"{reason}. {OTHER_MODEL}" for name, row in METHODS.items() if (reason := engine.misfit(row))
    }
    usual = [method.name for method in engine.select_methods(None)]
    updates: Updates = {misfits: json.dumps(reasons)}
    for group, names in zip(boxes, ticked, strict=True):
        kept = usual if set(names) in USUAL else [name for name in names if name not in reasons] or usual
        if set(kept) != set(names):
            updates[group] = kept
    return updates
