"""One pass of a transformers model through our attention function, registered under one name.

The model is run with position ids of our choice: the real positions for methods whose keys stand at
one position for all queries, zeros where every query has its own. Rotation by zero is the identity, so
queries and keys then arrive unrotated and are rotated here. What a pass needs travels as an argument
of `forward`; nothing is stored on modules.
"""

from typing import Any, Protocol, cast

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from pine_engine.attention import Scoring
from pine_engine.errors import ModelError

NAME = "pine_engine"
"""Name of our attention function in transformers' registry."""


class Pass(Protocol):
    """What the registered attention function calls in every layer."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
        """query (B, H, n, d), key and value (B, G, n, d) to the attention output (B, H, n, d)."""


def _attention_function(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    pine_pass: Pass,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    if s_aux is not None:
        raise ModelError("its attention has sinks (learned scores without a key), which are not supported")
    if attention_mask is not None:  # not ours, which is None
        raise ModelError("its attention masks or biases keys in a way of its own, which is not supported")
    output = pine_pass.attend(cast(int, module.layer_idx), query, key, value, Scoring(scaling, softcap))
    return output.transpose(1, 2).contiguous(), None


def _no_mask(*_: Any, **__: Any) -> None:
    """The attention function knows who sees whom; without this transformers would build masks."""


AttentionInterface.register(NAME, _attention_function)
AttentionMaskInterface.register(NAME, _no_mask)
