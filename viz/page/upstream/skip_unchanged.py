"""Blocks that skip unchanged widgets."""

from copy import copy
from typing import Any

import gradio as gr
from gradio.blocks import Block


class SkipUnchangedBlocks(gr.Blocks):
    """Blocks that skip widgets which a function did not return.

    Gradio recreates every output of an event, 1 to 2 ms each (gradio issue 12831).
    """

    async def postprocess_data(self, block_fn: Any, predictions: Any, state: Any) -> list[Any]:
        """Return the data of each output, in order, as gradio sends it."""
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
