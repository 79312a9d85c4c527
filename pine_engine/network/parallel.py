"""A model that transformers has split among the processes of `torchrun` (tensor parallel), as one sees it.

Each process has some heads of every layer, and ranks and places documents for these alone. What a layer gives
is the sum, or all parts side by side, of what the processes have: transformers does that, in hooks around the
modules whose weights it has split.
"""

from typing import Any, cast

from transformers import PreTrainedModel
from transformers.distributed.tensor_parallel import apply_tensor_parallelism, get_kv_heads_per_rank

from pine_engine.errors import ModelError


def num_processes(model: PreTrainedModel) -> int:
    """Among how many processes its layers are split; 1 for a model that is here as a whole."""
    return model.tp_size or 1


def own_heads(model: PreTrainedModel) -> int:
    """How many query heads of each layer are this process's own.

    Raises ModelError if heads cannot be dealt out, or if the model is split in another way than by heads.
    """
    config = model.config.get_text_config()
    heads: int = config.num_attention_heads
    if not model.is_distributed_loading_by_transformers:
        return heads
    split = model.config.distributed_config
    if split.pp_size * split.dp_size * split.ep_size != 1:
        raise ModelError(
            f"{type(model).__name__}: it is split by stages, experts or for training (FSDP), and PINE knows "
            "only layers that are split by heads; load it with DistributedConfig(tp_plan='auto')"
        )
    count = num_processes(model)
    key_heads: int = getattr(config, "num_key_value_heads", None) or heads
    own, own_keys = (get_kv_heads_per_rank(model.tp_plan, number, count) for number in (heads, key_heads))
    if not isinstance(own, int) or own_keys is None:
        raise ModelError(
            f"{type(model).__name__}: its {heads} heads and {key_heads} key heads cannot be dealt out evenly "
            f"to {count} processes; start a number of them that divides both"
        )
    return own


def reattach_hooks(network: PreTrainedModel, model: PreTrainedModel) -> None:
    """Gives a copy of a split model hooks of its own: those that came along run the modules of the model."""
    if num_processes(model) == 1:
        return
    modules, split = dict(network.named_modules()), cast(Any, model._mesh_manager)
    for module in modules.values():
        if is_split(module):
            module.__dict__.pop("forward", None)
    plan = model._resolve_parallel_plans(model.config.distributed_config)[0]
    hooks = {name: style for name, style in plan.items() if name in modules}
    apply_tensor_parallelism(network, split.get_mesh("tp"), hooks)


def is_split(module: Any) -> bool:
    """Whether a hook of transformers is around the module, which has parts of its weights here."""
    return hasattr(module, "_is_hooked")
