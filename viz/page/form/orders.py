"""The document orders and methods of a shuffle test."""

import math
from collections.abc import Sequence

import gradio as gr

from pine_engine.methods.table import METHODS

ALL_ORDERS_UP_TO = 4
"""Largest number of documents of which all orders are run; of more, a seeded sample."""

SAMPLED_AT_MOST = 24
DEFAULT_ORDERS = 6


def tries_all(num_documents: int, most: int) -> bool:
    """Whether every order is tried. most: orders that the host allows."""
    return num_documents <= ALL_ORDERS_UP_TO and math.factorial(num_documents) <= most


def number_of_orders(num_documents: int, count: int, most: int) -> int:
    """How many orders are tried, where a visitor asks for so many of a sample."""
    return math.factorial(num_documents) if tries_all(num_documents, most) else count


def orders_label(num_documents: int, count: int, most: int) -> str:
    """Return the label of the button that runs the orders."""
    orders = number_of_orders(num_documents, count, most)
    return f"Run all {orders} orders" if tries_all(num_documents, most) else f"Run {orders} orders"


def with_controls(methods: Sequence[str]) -> tuple[str, ...]:
    """The methods, and after them those that must be able to change, as far as they are not among them.

    These are the controls of the table of methods, and the default methods that promise nothing.
    """
    controls = [
        row.name
        for row in METHODS.values()
        if not row.is_order_invariant and (row.is_default or row.role == "control")
    ]
    return (*methods, *(name for name in controls if name not in methods))


def build_orders(num_documents: int, max_orders: int) -> tuple[gr.Row, gr.Slider, gr.Number, gr.Checkbox]:
    """Build sample (hidden where all orders are run), number of orders, seed and controls.

    Args:
        num_documents: Number of documents in the form.
        max_orders: Limit of the host.
    """
    with gr.Row(elem_classes="page-row"):
        controls = gr.Checkbox(
            False,
            label="Include control methods",
            info="Controls must change with the order, so the test could fail.",
            elem_id="with-controls",
            container=False,
            min_width=220,
        )
        with gr.Row(visible=not tries_all(num_documents, max_orders), elem_classes="page-row") as sample:
            count = gr.Slider(
                2,
                min(SAMPLED_AT_MOST, max_orders),
                value=min(DEFAULT_ORDERS, max_orders),
                step=1,
                label="Number of orders",
                elem_id="orders",
                min_width=160,
            )
            seed = gr.Number(0, label="Seed", precision=0, elem_id="seed", min_width=120)
    return sample, count, seed, controls
