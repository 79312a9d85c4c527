"""Blocks to which a widget that stays as it is costs nothing."""

from copy import copy
from typing import Any

import gradio as gr
from gradio.blocks import Block


class SkipUnchangedBlocks(gr.Blocks):
    """gradio makes every widget that an event might change anew, with all its properties, also where the
    function did not mention it: a millisecond or two each, for dozens of widgets at every word that somebody
    is told (gradio issue 12831 is about such pages). Here those are left as they are.
    """

    async def postprocess_data(self, block_fn: Any, predictions: Any, state: Any) -> list[Any]:
        """What the page is sent for each output of a function, in their order, as gradio sends it."""
        match predictions:
            case {"__type__": "update", **more} if not more:  # gr.skip()
                mentioned = set()
            case dict() if predictions and all(isinstance(key, Block) for key in predictions):
                mentioned = {widget._id for widget in predictions}
            case _:
                sent: list[Any] = await super().postprocess_data(block_fn, predictions, state)
                return sent
        changed = copy(block_fn)
        changed.outputs = [widget for widget in block_fn.outputs if widget._id in mentioned]
        shown = iter(await super().postprocess_data(changed, predictions, state) if mentioned else ())
        return [
            next(shown) if widget._id in mentioned else None if widget.stateful else gr.skip()
            for widget in block_fn.outputs
        ]
