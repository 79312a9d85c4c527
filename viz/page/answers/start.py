"""Buttons that start: one runs the missing orders or plays all of them, the other runs the order of the form.

assets/start.js draws them; they press the hidden buttons of the runs.
"""

import json
from collections.abc import Sequence

import gradio as gr

from viz.drawing.markup import render
from viz.page.answers.shown import Inputs, Shown
from viz.page.form.orders import DEFAULT_ORDERS, number_of_orders, tries_all


def build_start(shown: Shown) -> gr.HTML:
    """Build the buttons for the initial answers."""
    form = shown.form
    missing = num_missing((form, shown.model), form.methods, shown, DEFAULT_ORDERS)
    return gr.HTML(
        start_json(len(form.entries), DEFAULT_ORDERS, missing),
        html_template=render("start.html"),
        js_on_load="pine.start.mount({ element, props, watch });",
        apply_default_css=False,
        elem_id="start",
        min_width=0,
    )


def num_missing(now: Inputs, methods: Sequence[str], shown: Shown, count: int) -> int:
    """Return the number of orders to run, of all or of a sample of `count`; 0 if all have answers.

    Precomputed and shared answers count if they are complete.
    """
    total = number_of_orders(len(now[0].entries), count)
    if len(shown.finished_orders(now, methods)) >= total:
        return 0
    return total - len(shown.finished_orders(now, methods, live=True))


def start_json(num_documents: int, count: int, missing: int, why: str = "") -> str:
    """Return the state of the buttons; `why` is the reason why the form cannot be run."""
    plays = not missing and num_documents > 1
    orders = missing or number_of_orders(num_documents, count)
    noun = ("" if tries_all(num_documents) else "sampled ") + ("order" if orders == 1 else "orders")
    label = f"{'▶ Play' if plays else 'Run'} {orders} {noun}" if num_documents > 1 else "Run"
    return json.dumps({"label": label, "plays": plays, "runs_one": num_documents < 2, "problem": why})
