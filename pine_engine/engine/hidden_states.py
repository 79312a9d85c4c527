"""Hidden state of the last token of a pass, from which the model computes its logits."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from pine_engine.engine.prepared_model import PreparedModel
from pine_engine.errors import ModelError


@contextmanager
def record_hidden_states(model: PreparedModel) -> Iterator[list[NDArray[np.float64]]]:
    """Record the hidden states (hidden size,) of the last token of each pass of this thread, in turn.

    Raises:
        ModelError: At the end, if a pass computed its logits in another way than by the output embeddings.
    """
    states: list[NDArray[np.float64]] = []
    thread = threading.get_ident()  # another one may run the same network

    def record(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        if threading.get_ident() == thread:
            states.append(inputs[0][0, -1].double().cpu().numpy())

    with ExitStack() as hooks:
        for one in model.patched_models:
            head = one.network.get_output_embeddings()
            if head is not None:
                hooks.callback(head.register_forward_pre_hook(record).remove)
        yield states
    if not states:
        raise ModelError(
            f"{model.model_name} has no output embeddings to record hidden states", field="methods"
        )
