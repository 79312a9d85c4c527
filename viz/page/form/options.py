"""Widgets of the options of a run: methods, and arguments of the chat template."""

import gradio as gr

from pine_engine.methods.table import METHODS, get_methods

DEFAULT_METHODS = [row.name for row in get_methods()]
OFFERED = {
    row.name: row.label
    for row in sorted(METHODS.values(), key=lambda row: row.role == "other")
    if row.role != "variant"
}


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
