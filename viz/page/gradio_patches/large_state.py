"""State with a large value, whose settings are read without it."""

from functools import partial
from typing import Any

import gradio as gr
from gradio.blocks import Block
from gradio.components import Component


def large_state(value: Any) -> gr.State:
    """Return a state whose first value is not converted to JSON.

    Gradio (6.31) reads the settings of a state at each update, converts its first value, if that is a data
    class, and then removes it: 1.2 ms for the answers of an example.
    """
    state = gr.State(value)
    vars(state)["get_config"] = partial(Component.get_config, state, Block)  # the settings of any block
    return state
