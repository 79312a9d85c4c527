"""Whether equal bits can be promised of a model here: tried with a shuffle, before anybody relies on it.

What the engine does for it (docs/exactness.md) is enough on the processors, dtypes and families that were
measured. Elsewhere, or where a family computes something in a way of its own, this tells.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pine_engine.attention.state import input_device
from pine_engine.engine import passes
from pine_engine.methods.table import METHODS, Method
from pine_engine.network.parallel import num_processes
from pine_engine.network.wiring import Wiring
from pine_engine.prompts.layout import TokenLayout

TRIED = ("pcw", "pine")
"""A method in which the model rotates, and one that ranks and lays keys out: all others are like them."""

LENGTHS = (4, 9, 1, 14, 2, 9)
"""In tokens: the prefix and five documents. The suffix is as long as the prefix."""


SAFE_PROCESSES = 2
"""Among how many a model may be split: of two the sum is the same in either order, of more it is not, and
their order depends on where in a batch a number stands."""


def find_caveat(wirings: Sequence[Wiring], name: str, vocabulary: int) -> str | None:
    """What cannot be promised of the model of that name here, in a sentence; None if nothing was found."""
    processes = num_processes(wirings[0].network)
    if processes > SAFE_PROCESSES:
        return (
            f"Equal bits are not promised of {name} here: it is split among {processes} processes, whose "
            f"sums are added in an order that depends on the place of a token; they are of {SAFE_PROCESSES}."
        )

    def prefill(layout: TokenLayout, method: Method) -> Tensor:
        return passes.prefill(wirings, layout, method, room=0, rows_kept=layout.suffix_length)[1]

    changes = changes_by_order(prefill, vocabulary)
    if not changes:
        return None
    found = " and ".join(f"{label} (up to {change:.1e})" for label, change in changes.items())
    network = wirings[0].network
    dtype = str(network.dtype).removeprefix("torch.")
    return (
        f"Equal bits are not promised of {name} here ({dtype}, {input_device(network)}, "
        f"{torch.get_num_threads()} threads): shuffling the documents of a short prompt changed logits "
        f"of {found}. Answers can then differ between orders where two tokens are nearly as likely."
    )


@torch.inference_mode()
def changes_by_order(prefill: Callable[[TokenLayout, Method], Tensor], vocabulary: int) -> dict[str, float]:
    """By how much a logit changes, of the methods of TRIED of which one does when documents are shuffled.

    prefill: the logits (T, V) of a prompt's suffix under a method. vocabulary: how many tokens there are.
    """
    ids = torch.randint(vocabulary, (sum(LENGTHS) + LENGTHS[0],), generator=torch.Generator().manual_seed(0))
    prefix, *documents, suffix = (tuple(part.tolist()) for part in ids.split([*LENGTHS, LENGTHS[0]]))
    layout = TokenLayout(prefix, tuple(documents), suffix)
    shuffled = layout.reorder([3, 0, 4, 1, 2])
    changes = {}
    for name in TRIED:
        one, other = (prefill(order, METHODS[name]) for order in (layout, shuffled))
        if not torch.equal(one, other):
            changes[METHODS[name].label] = (one - other).abs().max().item()
    return changes
