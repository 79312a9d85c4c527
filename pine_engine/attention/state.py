"""Selection of the attention strategy of a prompt, and the state of a prompt with its KV cache."""

from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from pine_engine.attention.causal import CausalAttention
from pine_engine.attention.isolated import IsolatedAttention
from pine_engine.attention.kv_cache import KVCache
from pine_engine.attention.placed import PlacedAttention
from pine_engine.attention.ranked import RankedAttention
from pine_engine.attention.recorder import TraceRecorder
from pine_engine.attention.rotated import RotatedAttention
from pine_engine.attention.strategy import PromptState, Strategy
from pine_engine.methods.plan import AttentionPlan
from pine_engine.network.model_patching import PatchedModel
from pine_engine.network.stock_model import StockModel


def new_state(
    plan: AttentionPlan,
    *,
    patched_model: PatchedModel,
    reserved_tokens: int,
    recorder: TraceRecorder | None,
    log_weights: tuple[float, ...] | None = None,
) -> PromptState:
    """Return the state of a prompt; raise ModelError if PINE must rotate and head dimensions differ.

    A model that runs as it is has no strategies, and records nothing.
    """
    device = input_device(patched_model.network)
    positions = torch.from_numpy(plan.query_positions(reserved_tokens)).to(device)
    if isinstance(patched_model, StockModel):
        return PromptState(plan, patched_model, None, reserved_tokens, positions)
    state = PromptState(plan, patched_model, recorder, reserved_tokens, positions, log_weights)
    strategy_on(state, device)  # raises before the forward pass begins
    return state


def strategy_on(state: PromptState, device: torch.device) -> Strategy:
    """Return the strategy of the layers on a device, created once per device."""
    if device not in state.strategies:
        state.strategies[device] = _choose_strategy(state, device)
    return state.strategies[device]


def _choose_strategy(state: PromptState, device: torch.device) -> Strategy:
    plan = state.plan
    if plan.document_starts is None or plan.suffix_document_starts is None:
        return RankedAttention(state, device)
    if plan.method.is_rotated:
        return RotatedAttention(state, device)
    if not plan.model_rotates:
        return PlacedAttention(state, device, plan.document_starts, plan.suffix_document_starts)
    if plan.method.mask == "causal" or plan.method.recomputed != "nothing":
        return CausalAttention(state, device)
    return IsolatedAttention(state, device, plan.suffix_document_starts)


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

    @property
    def sequences(self) -> tuple["SequenceState", ...]:
        """Sequences that the model computes for this one: itself, or several whose outputs are merged."""
        return (self,)

    def num_cached_tokens(self) -> int:
        """Return the number of tokens of prompt and continuation in the cache."""
        layout = self.state.plan.layout
        in_blocks = layout.documents_end - layout.prefix_length if self.state.plan.is_ranked else 0
        return self.cache.length + in_blocks
