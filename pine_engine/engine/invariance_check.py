"""Check of order invariance here: a short prompt in two document orders, for each prepared model."""

from collections.abc import Sequence

import torch

from pine_engine.attention.state import input_device
from pine_engine.engine import passes
from pine_engine.methods.table import METHODS
from pine_engine.network.model_patching import PatchedModel
from pine_engine.network.parallel import num_processes
from pine_engine.prompts.layout import TokenLayout

CHECKED_METHODS = ("pcw", "pine")
"""In the first, the model rotates keys; the second ranks documents and arranges keys."""

LENGTHS = (4, 9, 1, 14, 2, 9)
"""Lengths of prefix and five documents, in tokens. The suffix has the length of the prefix."""

MAX_PROCESSES = 2
"""Maximum number of processes of a split model: a sum of two is equal in either order, one of more is not."""


def check_invariance(patched_models: Sequence[PatchedModel], name: str, vocab_size: int) -> str | None:
    """Return a reason in a sentence if a model is not bitwise order-invariant here, otherwise None."""
    network = patched_models[0].network
    if (processes := num_processes(network)) > MAX_PROCESSES:
        return (
            f"Bitwise order invariance of {name} is not guaranteed here: it is split among {processes} "
            f"processes, whose sums depend on the position of a token. Up to {MAX_PROCESSES} are supported."
        )
    changes = _changes_by_order(patched_models, vocab_size)
    if not changes:
        return None
    found = " and ".join(f"{label} (up to {change:.1e})" for label, change in changes.items())
    dtype = str(network.dtype).removeprefix("torch.")
    return (
        f"Bitwise order invariance of {name} is not guaranteed here ({dtype}, {input_device(network)}, "
        f"{torch.get_num_threads()} threads): shuffling a short prompt changed logits of {found}."
    )


@torch.inference_mode()
def _changes_by_order(patched_models: Sequence[PatchedModel], vocab_size: int) -> dict[str, float]:
    """Return the largest change of a logit by label of the method; empty without a change."""
    ids = torch.randint(vocab_size, (sum(LENGTHS) + LENGTHS[0],), generator=torch.Generator().manual_seed(0))
    prefix, *documents, suffix = (tuple(part.tolist()) for part in ids.split([*LENGTHS, LENGTHS[0]]))
    layout = TokenLayout(prefix, tuple(documents), suffix)
    options = passes.PassOptions(patched_models, logits_to_keep=layout.suffix_length)
    orders = layout, layout.reorder([3, 0, 4, 1, 2])
    changes = {}
    for name in CHECKED_METHODS:
        one, other = (passes.prefill(each, METHODS[name], options)[1] for each in orders)
        if not torch.equal(one, other):
            changes[METHODS[name].label] = (one - other).abs().max().item()
    return changes
