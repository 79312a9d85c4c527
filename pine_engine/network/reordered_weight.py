"""Output layer in the layout of oneDNN's GEMM, for decode steps on the CPU.

The output layer is often the largest weight, and 4-bit models have it in float32. oneDNN reorders a plain
weight in each call, which takes up to as long as the GEMM itself.
"""

from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from pine_engine.network.batch_invariant_ops import HAS_ONEDNN, onednn_gemm
from pine_engine.network.parallel import is_split
from pine_engine.network.thread_tuner import torch_num_threads

MIN_NUMEL = 2**22
"""Size from which an output layer is reordered: 16 MB, more than a core's cache holds."""

PROBE_ROWS = (2, 5, 17, 33, 65)
"""Numbers of rows for which a reordered weight is compared with the original one."""


@dataclass
class ReorderedWeight:
    """A float32 weight in the layout of oneDNN; results of two or more rows are those of the original."""

    weight: Tensor  # (out, in), in a layout that only oneDNN reads
    min_rows: ClassVar[int] = 2

    @classmethod
    @torch.no_grad()
    def of(cls, weight: Tensor) -> "ReorderedWeight":
        """Reorder a float32 weight (out, in)."""
        return cls(torch.ops.mkldnn._reorder_linear_weight(weight))

    def multiply(self, inputs: Tensor) -> Tensor:
        """Return the matrix product of float32 inputs (..., in) and the weight, (..., out)."""
        return onednn_gemm(inputs, self.weight)


def reorder_output_layer(model: PreTrainedModel) -> dict[nn.Parameter, ReorderedWeight]:
    """Return the reordered weight of a large output layer in float32, by parameter.

    Empty if a result differs in some bit from that of the original weight on this processor.
    """
    layer = model.get_output_embeddings()
    is_plain = type(layer) is nn.Linear and type(layer.weight) is nn.Parameter and not is_split(layer)
    if not HAS_ONEDNN or not is_plain:
        return {}
    is_large_float32 = layer.weight.dtype == torch.float32 and layer.weight.numel() >= MIN_NUMEL
    if not is_large_float32 or layer.weight.device.type != "cpu":
        return {}
    reordered = ReorderedWeight.of(layer.weight)
    return {layer.weight: reordered} if is_exact(reordered, layer.weight) else {}


@torch.no_grad()
def is_exact(reordered: ReorderedWeight, weight: Tensor) -> bool:
    """Check, by a few GEMMs, whether the results are bitwise those of the original weight here."""
    generator = torch.Generator().manual_seed(0)
    for count, threads in product(PROBE_ROWS, {1, torch.get_num_threads()}):
        rows = torch.randn(count, weight.shape[1], generator=generator)
        with torch_num_threads(threads):
            if not torch.equal(reordered.multiply(rows), onednn_gemm(rows, weight)):
                return False
    return True
