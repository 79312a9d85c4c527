"""Models that transformers has split between the processes of `torchrun` (tensor parallelism).

Each process ranks and places documents for its heads of every layer. transformers sums or concatenates the
outputs of all processes in hooks around the modules whose weights it has split.
"""

from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.distributed.tensor_parallel import apply_tensor_parallelism, get_kv_heads_per_rank

from pine_engine.errors import ModelError
from pine_engine.models.support import shared_value


def num_processes(model: PreTrainedModel) -> int:
    """Return the number of processes between which the layers are split; 1 for a whole model."""
    return model.tp_size or 1


def gather_heads(values: Tensor, processes: int) -> tuple[Tensor, slice]:
    """Return values (heads,) of the heads of all processes, and the place of the own ones."""
    if processes == 1:
        return values, slice(None)
    parts = [torch.empty_like(values) for _ in range(processes)]
    torch.distributed.all_gather(parts, values)
    first = torch.distributed.get_rank() * len(values)
    return torch.cat(parts), slice(first, first + len(values))


def num_local_heads(model: PreTrainedModel) -> int:
    """Return the number of query heads per layer in this process; 0 if layers have no or other numbers."""
    config = model.config.get_text_config()
    num_heads: int = shared_value(config, "num_attention_heads") or 0
    if not model.is_distributed_loading_by_transformers:
        return num_heads
    split = model.config.distributed_config
    if split.pp_size * split.dp_size * split.ep_size != 1:
        message = f"{type(model).__name__} is split by stages, experts or for training, expected by heads"
        raise ModelError(f"{message}; load it with DistributedConfig(tp_plan='auto')")
    count = num_processes(model)
    num_kv_heads: int = getattr(config, "num_key_value_heads", None) or num_heads
    local_heads, local_kv_heads = (
        get_kv_heads_per_rank(model.tp_plan, number, count) for number in (num_heads, num_kv_heads)
    )
    if not isinstance(local_heads, int) or local_kv_heads is None:
        numbers = f"{num_heads} heads, {num_kv_heads} key heads and {count} processes"
        message = f"{type(model).__name__} cannot be split evenly: got {numbers}"
        raise ModelError(f"{message}; start a number of processes that divides both")
    return local_heads


def reattach_hooks(network: PreTrainedModel, model: PreTrainedModel) -> None:
    """Attach new hooks to the copy of a split model: the copied ones run the modules of the original."""
    if num_processes(model) == 1:
        return
    modules, split = dict(network.named_modules()), cast(Any, model._mesh_manager)
    for module in modules.values():
        if is_split(module):
            module.__dict__.pop("forward", None)
    plan = model._resolve_parallel_plans(model.config.distributed_config)[0]
    hooks = {name: style for name, style in plan.items() if name in modules}
    apply_tensor_parallelism(network, split.get_mesh("tp"), hooks)


def has_hooks(model: PreTrainedModel) -> bool:
    """Check whether modules have hooks of accelerate or transformers, which move or split their weights."""
    return num_processes(model) > 1 or any(hasattr(module, "_hf_hook") for module in model.modules())


def is_split(module: Any) -> bool:
    """Check whether a module has a hook of transformers, so that only a part of its weights is here."""
    return hasattr(module, "_is_hooked")
