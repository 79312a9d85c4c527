"""States with large values: what gradio reads of them."""

from dataclasses import dataclass

import gradio as gr

from viz.page.gradio_patches.large_state import large_state


class Uncopied:
    def __deepcopy__(self, memo: object) -> object:
        raise AssertionError("the value was copied")


@dataclass
class Value:
    part: object = None


def test_settings_are_those_of_a_state_and_do_not_copy_the_value() -> None:
    state = large_state(Value())
    state.value = Value(Uncopied())
    settings = state.get_config()
    assert "value" not in settings and settings["name"] == gr.State().get_config()["name"]
