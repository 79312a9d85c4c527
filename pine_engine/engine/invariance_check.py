"""Check of order invariance here: a prompt and a decode step in two document orders, for each model."""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pine_engine.attention.forward import batch_caches
from pine_engine.attention.state import SequenceState, input_device
from pine_engine.engine import passes
from pine_engine.methods.table import METHODS
from pine_engine.models.support import context_limit
from pine_engine.network.model_patching import PatchedModel
from pine_engine.network.parallel import num_processes
from pine_engine.network.stock_model import StockModel
from pine_engine.prompts.layout import TokenLayout

CHECKED_METHODS: dict[bool, tuple[str, str]] = {False: ("pcw", "pine"), True: ("reorder_content", "nbce")}
"""Methods that are checked, by whether a model runs as it is. Its order and its streams do not change.

Otherwise, in the first the model rotates keys; the second ranks documents and arranges keys.
"""

LENGTHS = (4, 9, 1, 14, 2, 9)
"""Lengths of prefix and five documents, in tokens. The suffix has the length of the prefix."""

GPU_FACTOR = 24
"""Factor of these lengths on a GPU, whose kernels of longer sums differ from those of short ones."""

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


def _lengths(network: PreTrainedModel) -> list[int]:
    """Return the lengths of prefix, documents and suffix on the device of a network, within its context."""
    lengths = (*LENGTHS, LENGTHS[0])
    if input_device(network).type == "cpu":
        return list(lengths)
    limit = context_limit(network.config)
    factor = min(GPU_FACTOR, (limit[0] - 1) // sum(lengths)) if limit else GPU_FACTOR
    return [length * max(factor, 1) for length in lengths]


@torch.inference_mode()
def _changes_by_order(patched_models: Sequence[PatchedModel], vocab_size: int) -> dict[str, float]:
    """Return the largest change of a logit by label of the method; empty without a change."""
    network = patched_models[0].network
    lengths = _lengths(network)
    ids = torch.randint(vocab_size, (sum(lengths),), generator=torch.Generator().manual_seed(0))
    prefix, *documents, suffix = (tuple(part.tolist()) for part in ids.split(lengths))
    layout = TokenLayout(prefix, tuple(documents), suffix)
    options = passes.PassOptions(patched_models, reserved_tokens=1, logits_to_keep=layout.suffix_length)
    orders = layout, layout.reorder([3, 0, 4, 1, 2])
    # Hooks, such as those of adapters, may expect one prompt.
    has_hooks = any(module._forward_pre_hooks for module in network.modules())
    changes = {}
    for name in CHECKED_METHODS[isinstance(patched_models[0], StockModel)]:
        rows, logits = zip(*(passes.prefill(each, METHODS[name], options) for each in orders), strict=True)
        if has_hooks:
            steps = [passes.extend([row], [suffix[:1]], is_step=True)[0] for row in rows]
        else:
            batch_caches(rows)
            steps = [*passes.extend(rows, [suffix[:1]] * len(rows), is_step=True)]
        one, other = (torch.cat(pair) for pair in zip(logits, steps, strict=True))
        if not torch.equal(one, other):
            changes[METHODS[name].label] = (one - other).abs().max().item()
        can_stack = not has_hooks and not isinstance(patched_models[0], StockModel)
        if can_stack and input_device(network).type == "cpu":
            alone, stacked = (_decode(rows, batch, suffix[0]) for batch in ([rows[0], None], rows))
            if not torch.equal(alone, stacked):
                changes.setdefault(METHODS[name].label, (alone - stacked).abs().max().item())
    return changes


def _decode(rows: Sequence[SequenceState], batch: Sequence[SequenceState | None], token: int) -> Tensor:
    """Return the logits (1, V) of the first row after its prompt and a token, with others in a batch."""
    for row in rows:
        num_decoded = row.num_cached_tokens() - row.state.plan.layout.num_tokens
        row.cache.truncate(row.cache.length - num_decoded)
    return passes.extend(batch, [[token]] * len(batch), is_step=True)[0]
