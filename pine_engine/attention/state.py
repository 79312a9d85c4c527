"""State of one prompt under one method, and selection of its attention strategy."""

from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pine_engine.attention.causal import CausalAttention
from pine_engine.attention.isolated import IsolatedAttention
from pine_engine.attention.kv_cache import KVCache
from pine_engine.attention.placed import PlacedAttention
from pine_engine.attention.ranked import RankedAttention
from pine_engine.attention.recorder import TraceRecorder
from pine_engine.attention.strategy import Strategy, StrategyContext
from pine_engine.methods.plan import AttentionPlan
from pine_engine.network.model_patching import PatchedModel


@dataclass(frozen=True)
class PromptState:
    """State that all layers of one prompt under one method share.

    Attributes:
        reserved_tokens: Number of tokens that may follow the prompt.
        positions: int64 (n + reserved_tokens,), position of every token as a query.
        strategies: Attention strategy for each device of the model.
    """

    plan: AttentionPlan
    patched_model: PatchedModel
    recorder: TraceRecorder | None
    reserved_tokens: int
    positions: Tensor
    strategies: dict[torch.device, Strategy] = field(default_factory=dict, repr=False, compare=False)

    def strategy(self, device: torch.device) -> Strategy:
        """Return the strategy of the layers on a device, created once per device."""
        if device not in self.strategies:
            context = StrategyContext(
                self.plan, self.patched_model, self.reserved_tokens, self.recorder, device
            )
            self.strategies[device] = choose_strategy(context)
        return self.strategies[device]

    def position_ids(self, first: int, count: int) -> Tensor:
        """Return the position ids (1, count) of tokens first .. first + count - 1 for the model."""
        ids = self.positions[None, first : first + count]
        return ids if self.plan.model_rotates else torch.zeros_like(ids)


def choose_strategy(context: StrategyContext) -> Strategy:
    """Select the attention strategy from the plan."""
    plan = context.plan
    if plan.document_starts is None or plan.suffix_document_starts is None:
        return RankedAttention.of(context)
    if not plan.model_rotates:
        return PlacedAttention.of(context, plan.document_starts, plan.suffix_document_starts)
    if plan.method.mask == "causal":
        return CausalAttention.of(context)
    return IsolatedAttention.of(context, plan.suffix_document_starts)


def new_state(
    plan: AttentionPlan,
    *,
    patched_model: PatchedModel,
    reserved_tokens: int,
    recorder: TraceRecorder | None,
) -> PromptState:
    """Return the state of a prompt; raise ModelError if PINE must rotate and head dimensions differ."""
    device = input_device(patched_model.network)
    positions = torch.from_numpy(plan.query_positions(reserved_tokens)).to(device)
    state = PromptState(plan, patched_model, recorder, reserved_tokens, positions)
    state.strategy(device)  # raises before the forward pass begins
    return state


def input_device(model: PreTrainedModel) -> torch.device:
    """Return the device of the model's input tokens.

    An embedding offloaded to disk is on `meta`. Its input belongs on the first device that computes:
    accelerate moves tokens to that device, but not away from `meta`.
    """
    if model.device.type != "meta":
        return model.device
    places = getattr(model, "hf_device_map", {}).values()
    return torch.device(next((place for place in places if place not in ("cpu", "disk")), "cpu"))


@dataclass(frozen=True)
class SequenceState:
    """One prompt under one method with its KV cache, which prefill fills."""

    state: PromptState
    cache: KVCache

    def num_cached_tokens(self) -> int:
        """Return the number of tokens of prompt and continuation in the cache."""
        layout = self.state.plan.layout
        in_blocks = layout.documents_end - layout.prefix_length if self.state.plan.is_ranked else 0
        return self.cache.length + in_blocks
