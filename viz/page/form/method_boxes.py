"""Checkboxes of methods, and the list of debiasing wrappers."""

from collections.abc import Sequence

import gradio as gr

from pine_engine.debias.table import DEBIASERS, MeasuredMethod
from pine_engine.methods.table import METHODS, get_methods

DEFAULT_METHODS = [row.name for row in get_methods()]
OFFERED = {
    row.name: row.label
    for row in sorted(METHODS.values(), key=lambda row: row.role == "other")
    if row.role != "variant"
}
WRAPPED = tuple(MeasuredMethod(METHODS[base], wrapper) for base in OFFERED for wrapper in DEBIASERS.values())
"""Each wrapper around each method."""


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


def wrapped_choices(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return label and name of these wrapped methods."""
    return [(one.label, one.name) for one in WRAPPED if one.name in names]


def build_wrapped(elem_id: str, names: Sequence[str]) -> gr.Dropdown:
    """Build a list of these wrapped methods without a selection."""
    return gr.Dropdown(
        wrapped_choices(names),
        value=[],
        multiselect=True,
        label="Debiasing wrappers",
        elem_id=elem_id,
    )
