"""Progress within a layer of a long prompt, so that a run can be stopped there and others computed."""

import time
from contextvars import ContextVar
from dataclasses import dataclass

from pine_engine.network.thread_tuner import OnLayer

MIN_PART_FLOP = 2**32
"""Smallest number of operations between two reports, so that short prompts report whole layers only."""

MIN_PART_S = 0.5
"""Shortest time between two reports in seconds, so that a GPU does not wait for them."""

MAX_SHARE = 0.99  # of a layer that is not finished


@dataclass
class LayerProgress:
    """Floating-point operations of one layer so far, linear layers included."""

    on_layer: OnLayer
    layer: int
    total: float  # estimated operations
    done: float = 0.0
    reported: float = 0.0  # operations at the last report
    reported_s: float = 0.0  # time of the last report

    def add(self, flop: float) -> None:
        """Count operations, and report the share of the layer if enough were computed."""
        self.done += flop
        now = time.monotonic()
        if self.done - self.reported >= MIN_PART_FLOP and now - self.reported_s >= MIN_PART_S:
            self.reported = self.done
            self.on_layer(self.layer + min(self.done / self.total, MAX_SHARE))
            self.reported_s = time.monotonic()


LAYER_PROGRESS: ContextVar[LayerProgress | None] = ContextVar("layer_progress", default=None)
"""Progress of the current layer, in the prefill of a prompt."""


def add_flop(flop: float) -> None:
    """Count floating-point operations of the current layer; raises if the run was stopped."""
    if progress := LAYER_PROGRESS.get():
        progress.add(flop)
