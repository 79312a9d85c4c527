"""The boxes to tick methods in."""

import gradio as gr

from pine_engine.methods import METHODS, get_methods

DEFAULT_METHODS = [row.name for row in get_methods()]
OFFERED = {row.name: row.label for row in METHODS.values() if row.role != "variant"}


def build_method_boxes(elem_id: str) -> gr.CheckboxGroup:
    """A box for each method but the variants, the usual ones ticked."""
    return gr.CheckboxGroup(
        [(label, name) for name, label in OFFERED.items()],
        value=DEFAULT_METHODS,
        label="Methods",
        elem_id=elem_id,
        elem_classes="page-methods",
        scale=3,
        min_width=240,
    )
