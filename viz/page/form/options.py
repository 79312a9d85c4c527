"""Options of a run: methods, and the document orders of a shuffle test."""

import math
from collections.abc import Iterable, Sequence

import gradio as gr

from pine_engine.methods.table import METHODS, Method, get_methods
from pine_engine.prompts.orders import ALL_ORDERS_UP_TO

DEFAULT_METHODS = [row.name for row in get_methods()]
OFFERED = {
    row.name: row.label
    for row in sorted(METHODS.values(), key=lambda row: row.role == "other")
    if row.role != "variant"
}
SAMPLED_AT_MOST = 24
DEFAULT_ORDERS = 6


def build_method_boxes(elem_id: str) -> gr.CheckboxGroup:
    """Build a checkbox for each method except variants; the default methods are ticked.

    Those that the PINE paper does not compare are last, and hidden until "More methods" is ticked or they
    are; the stylesheet does this, without an event.
    """
    with gr.Column(elem_classes="page-method-boxes", scale=3, min_width=240):
        boxes = gr.CheckboxGroup(
            [(label, name) for name, label in OFFERED.items()],
            value=DEFAULT_METHODS,
            label="Methods",
            elem_id=elem_id,
            elem_classes="page-methods",
        )
        gr.Checkbox(
            False,
            label="More methods",
            info="RoToR, APE, NBCE, reordering and others; see docs/methods.md.",
            elem_id=f"{elem_id}-more",
            elem_classes="page-more-methods",
            container=False,
        )
    return boxes


def build_template_kwargs(elem_id: str) -> gr.Textbox:
    """Build a field for arguments of the chat template."""
    return gr.Textbox(
        "",
        label="Chat template arguments",
        info="chat_template_kwargs as JSON. Leave empty for none.",
        placeholder='{"enable_thinking": false}',
        max_lines=4,
        elem_id=elem_id,
        min_width=240,
    )


# Orders


def tries_all(num_documents: int) -> bool:
    """Check whether all orders are run."""
    return num_documents <= ALL_ORDERS_UP_TO


def number_of_orders(num_documents: int, count: int) -> int:
    """Return the number of orders to run, for a sample of `count`."""
    return math.factorial(num_documents) if tries_all(num_documents) else count


def with_controls(methods: Sequence[str], fitting: Iterable[Method] = ()) -> tuple[str, ...]:
    """Return the methods and the missing controls: those of the table, and order-dependent defaults.

    Of the controls, only those among the `fitting` methods, if these are known.
    """
    controls = [
        row.name
        for row in tuple(fitting) or METHODS.values()
        if not row.is_order_invariant and (row.is_default or row.role == "control")
    ]
    return (*methods, *(name for name in controls if name not in methods))
