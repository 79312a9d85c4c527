"""What the layers of one prompt under one method share, and the row that carries it with its cache."""

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
    """What all layers of one prompt under one method share.

    wiring: the network that reads it. positions: int64 (n + room,), the position of every token as a query.
    room: how many tokens may follow the prompt. strategies: how layers attend, by the device on which they
    compute: a model may be spread over several.
    """

    plan: AttentionPlan
    patched_model: PatchedModel
    recorder: TraceRecorder | None
    room: int
    positions: Tensor
    strategies: dict[torch.device, Strategy] = field(default_factory=dict, repr=False, compare=False)

    def strategy(self, device: torch.device) -> Strategy:
        """How layers on a device attend; made once for each."""
        if device not in self.strategies:
            reading = StrategyContext(self.plan, self.patched_model, self.room, self.recorder, device)
            self.strategies[device] = choose_strategy(reading)
        return self.strategies[device]

    def position_ids(self, first: int, count: int) -> Tensor:
        """Position ids for the model, (1, count), of tokens first .. first + count - 1."""
        ids = self.positions[None, first : first + count]
        return ids if self.plan.model_rotates else torch.zeros_like(ids)


def choose_strategy(reading: StrategyContext) -> Strategy:
    """How a prompt is read under its plan."""
    plan = reading.plan
    if plan.document_starts is None or plan.suffix_document_starts is None:
        return RankedAttention.of(reading)
    if not plan.model_rotates:
        return PlacedAttention.of(reading, plan.document_starts, plan.suffix_document_starts)
    if plan.method.mask == "causal":
        return CausalAttention.of(reading)
    return IsolatedAttention.of(reading, plan.suffix_document_starts)


def new_state(
    plan: AttentionPlan,
    *,
    patched_model: PatchedModel,
    room: int,
    recorder: TraceRecorder | None,
) -> PromptState:
    """The shared state of one prompt; room is how many tokens may follow it.

    Raises ModelError if the model's layers differ in the dimension of their heads, where we rotate.
    """
    device = input_device(patched_model.network)
    positions = torch.from_numpy(plan.query_positions(room)).to(device)
    state = PromptState(plan, patched_model, recorder, room, positions)
    state.strategy(device)  # for most models the only one, and what cannot be read is said before it is
    return state


def input_device(model: PreTrainedModel) -> torch.device:
    """Where a model takes its tokens. If its embedding is offloaded to disk, that is the first device it
    computes on: accelerate carries tokens there, but not away from `meta`, where the embedding says it is."""
    if model.device.type != "meta":
        return model.device
    places = getattr(model, "hf_device_map", {}).values()
    return torch.device(next((place for place in places if place not in ("cpu", "disk")), "cpu"))


@dataclass(frozen=True)
class SequenceState:
    """One prompt under one method, on its way: the state and the cache that prefill fills."""

    state: PromptState
    cache: KVCache

    def num_read(self) -> int:
        """How many tokens of the prompt and its continuation have been read."""
        layout = self.state.plan.layout
        in_blocks = layout.documents_end - layout.prefix_length if self.state.plan.is_ranked else 0
        return self.cache.length + in_blocks
