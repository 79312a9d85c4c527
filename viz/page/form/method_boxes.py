"""The boxes to tick methods in, and the list of wrappers around them."""

from collections.abc import Sequence

import gradio as gr

from pine_engine.debias.table import DEBIASERS, MeasuredMethod
from pine_engine.methods.table import METHODS, get_methods

DEFAULT_METHODS = [row.name for row in get_methods()]
OFFERED = {row.name: row.label for row in METHODS.values() if row.role != "variant"}
WRAPPED = tuple(MeasuredMethod(METHODS[base], wrapper) for base in OFFERED for wrapper in DEBIASERS.values())
"""Every wrapper around each of them."""


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


def wrapped_choices(names: Sequence[str]) -> list[tuple[str, str]]:
    """Label and name of those of WRAPPED that are named."""
    return [(one.label, one.name) for one in WRAPPED if one.name in names]


def build_wrapped(elem_id: str) -> gr.Dropdown:
    """A list to pick wrapped methods from, of which none is picked at first; too many for a box each."""
    return gr.Dropdown(
        wrapped_choices([one.name for one in WRAPPED]),
        value=[],
        multiselect=True,
        label="Permutation and calibration around a method",
        elem_id=elem_id,
    )
