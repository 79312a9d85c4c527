"""Where the time of one method goes: torch's profiler, every operation counted to whoever asked for it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional, Protocol

import torch
from torch.profiler import ProfilerActivity, profile

from pine_engine.attention.state import input_device
from pine_engine.engine import passes
from pine_engine.engine.engine import Engine
from pine_engine.methods.table import Method
from pine_engine.prompts.layout import TokenLayout

LINEAR = "linear layers"
REST = "rest of the model"
"""Norms, activations, embedding, reshaping around attention."""

_PLACE = re.compile(
    r"nn\.Module: (?P<class>\w+?)_\d+$"
    r"|(^|/)pine_engine/(?P<folder>\w+)/(?P<file>\w+)\.py\(\d+\): (?P<function>\w+)$"
)
_IN_PLACE_OF_TORCH = "batch_invariant_ops"
"""The file whose functions do what a module asked of torch: the module is where their time goes."""

_WAITS = "model_worker"
"""The file whose threads wait for something to do while another one computes."""


class Event(Protocol):
    """What we read of torch's FunctionEvent; microseconds, without those of the events inside."""

    @property
    def name(self) -> str:
        """An operation, a Python function or a module; they nest."""

    @property
    def cpu_parent(self) -> Optional["Event"]:
        """The event that this one happened in."""

    @property
    def self_cpu_time_total(self) -> float:
        """On the CPU."""

    @property
    def self_device_time_total(self) -> float:
        """On the GPU."""


@dataclass(frozen=True)
class Share:
    """where: linear layers, one of our functions as `folder.function`, or the rest of the model.

    seconds: without what it asked of the others. share: of all of them, 0 to 1.
    """

    where: str
    seconds: float
    share: float


@torch.inference_mode()
def profile_method(
    engine: Engine, layout: TokenLayout, method: Method, new_tokens: int
) -> dict[str, list[Share]]:
    """Shares of time of "prefill" and of "decode", new_tokens - 1 steps, largest first.

    Time of the GPU where the model is on one, else of the CPU. The profiler itself takes time, more for many
    small operations than for few large ones: read the shares, and take seconds from a run without it.
    """
    on_gpu = input_device(engine.model).type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]

    def read() -> None:
        passes.prefill(engine.patched_models, layout, method, room=new_tokens, logits_to_keep=1)

    def write() -> None:
        for _ in range(new_tokens - 1):
            passes.extend([row], [layout.ids[:1]], is_step=True)

    read()  # a first time pays for memory and kernels that a second one finds
    with profile(activities=activities, with_stack=True) as prefill:
        read()
    row, _ = passes.prefill(engine.patched_models, layout, method, room=new_tokens, logits_to_keep=1)
    with profile(activities=activities, with_stack=True) as decode:
        write()
    return {
        "prefill": sum_up(prefill.events(), on_gpu=on_gpu),
        "decode": sum_up(decode.events(), on_gpu=on_gpu),
    }


def sum_up(events: Iterable[Event], *, on_gpu: bool = False) -> list[Share]:
    """Seconds and shares by place, largest first."""
    seconds: dict[str, float] = {}
    for event in events:
        own = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        if (where := place_of(event)) is None:
            continue
        seconds[where] = seconds.get(where, 0.0) + own / 1e6
    total = sum(seconds.values())
    shares = [Share(where, own, own / total) for where, own in seconds.items() if own]
    return sorted(shares, key=lambda share: -share.seconds)


def place_of(event: Event) -> str | None:
    """The innermost module or function of ours that an event happened in; linear layers are all one.

    None for a thread that waits: the profiler sees all threads, and not only the one that computes.
    """
    around: Event | None = event
    while around is not None:
        found = _PLACE.search(around.name)
        if found and found["file"] == _WAITS:
            return None
        if found and found["function"] and found["file"] != _IN_PLACE_OF_TORCH:
            return f"{found['folder']}.{found['function']}"
        if found and found["class"]:
            return LINEAR if "Linear" in found["class"] else REST
        around = around.cpu_parent
    return REST
