"""What a run records for the pictures: document-level summaries per layer, head and query."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pine_engine.blocks import BlockLayout
from pine_engine.layout import TokenLayout
from pine_engine.plan import MASKED, AttentionPlan


@dataclass(frozen=True)
class Trace:
    """Where every query of one run saw every document, and how important it found it.

    Axes: A layers, H query heads, D documents in input order, Q suffix tokens (the prompt's, then
    the decoded ones that were fed back). Methods whose starts do not depend on the layer or head
    have length 1 there.

    document_starts: int32 (A, H, D, D), position of document b's first token as seen from document
        a's tokens; -1 where document a does not see document b.
    suffix_starts: int32 (A, H, Q, D), the same as seen from each suffix token.
    document_importance: float32 (A, H, D, D), sums of softmax weights over a's tokens divided by b's
        length in tokens, the diagonal NaN; None for methods that do not rank.
    suffix_importance: float32 (A, H, Q, D), the same for each suffix token; None as above.
    """

    method: str
    layout: TokenLayout
    document_starts: NDArray[np.int32]
    suffix_starts: NDArray[np.int32]
    document_importance: NDArray[np.float32] | None = None
    suffix_importance: NDArray[np.float32] | None = None


class TraceRecorder:
    """Collects what the layers of one run report; documents arrive in block order."""

    def __init__(self) -> None:
        self._documents: dict[int, tuple[Tensor, Tensor]] = {}
        self._suffix: dict[int, list[tuple[Tensor, Tensor]]] = defaultdict(list)

    def record_documents(self, layer: int, blocks: BlockLayout, importance: Tensor, starts: Tensor) -> None:
        """importance and starts: (D, H, D), query document first."""
        in_order = [blocks.to_input_order(values, 0, 2).transpose(0, 1) for values in (importance, starts)]
        in_order[0].diagonal(dim1=1, dim2=2).fill_(float("nan"))
        self._documents[layer] = (in_order[0], in_order[1])

    def record_suffix(self, layer: int, blocks: BlockLayout, importance: Tensor, starts: Tensor) -> None:
        """importance and starts: (H, Q, D), the next Q suffix tokens."""
        self._suffix[layer].append((blocks.to_input_order(importance, 2), blocks.to_input_order(starts, 2)))

    def finish(self, plan: AttentionPlan, num_decoded: int) -> Trace:
        """The trace of a run in which num_decoded tokens were fed back after the prompt."""
        if plan.document_starts is not None and plan.suffix_document_starts is not None:
            rows = plan.layout.suffix_length + num_decoded
            document_starts = plan.document_starts.where(plan.visible, MASKED)
            return Trace(
                method=plan.method.name,
                layout=plan.layout,
                document_starts=_int32(document_starts[None, None]),
                suffix_starts=_int32(plan.suffix_document_starts.expand(1, 1, rows, -1)),
            )
        layers = sorted(self._documents)
        importance, starts = (torch.stack([self._documents[layer][i] for layer in layers]) for i in (0, 1))
        suffix_importance, suffix_starts = (
            torch.stack([torch.cat([part[i] for part in self._suffix[layer]], dim=1) for layer in layers])
            for i in (0, 1)
        )
        return Trace(
            method=plan.method.name,
            layout=plan.layout,
            document_starts=_int32(starts),
            suffix_starts=_int32(suffix_starts),
            document_importance=importance.float().cpu().numpy(),
            suffix_importance=suffix_importance.float().cpu().numpy(),
        )


def _int32(values: Tensor) -> NDArray[np.int32]:
    return values.to(torch.int32).cpu().numpy()
