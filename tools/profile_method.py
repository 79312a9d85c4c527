"""Print the operations of prefill and of decode with their seconds and share, largest first.

python -m tools.profile_method pine --documents 20 --document-tokens 140

Profiling adds time to each operation: use the shares, and take seconds from `python -m pine_engine bench`.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import typer
from torch.profiler import ProfilerActivity, profile

import pine_engine as pine
from pine_engine.attention.state import SequenceState
from pine_engine.benchmark.shapes import Workload, load_engine
from pine_engine.engine import passes

MIN_SHARE = 0.01  # operations with a smaller share of the time are not printed


class Operation(NamedTuple):
    """An operation with its time, in seconds of the GPU for a model on a GPU, otherwise of the CPU."""

    name: str
    seconds: float
    share: float


@torch.inference_mode()
def profile_method(engine: pine.Engine, work: Workload, name: str) -> dict[str, list[Operation]]:
    """Return the operations of prefill and of decode, largest first."""
    layout, on_gpu = work.layout(engine), engine.model.device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]

    def prefill() -> SequenceState:
        options = passes.PassOptions(engine.patched_models, reserved_tokens=work.new_tokens)
        return passes.prefill(layout, pine.METHODS[name], options)[0]

    def decode() -> None:
        for _ in range(work.new_tokens - 1):
            passes.extend([sequence], [layout.ids[:1]], is_step=True)

    def operations(run: Callable[[], object]) -> list[Operation]:
        with profile(activities=activities) as recorded:
            run()
        time_of = "self_device_time_total" if on_gpu else "self_cpu_time_total"
        seconds = {event.key: getattr(event, time_of) / 1e6 for event in recorded.key_averages()}
        total = sum(seconds.values())
        ordered = sorted(seconds.items(), key=lambda pair: -pair[1])
        return [Operation(key, value, value / total) for key, value in ordered if value]

    sequence = prefill()  # also allocates memory and selects kernels
    return {"prefill": operations(prefill), "decode": operations(decode)}


def main(
    method: str,
    model: str | None = None,
    dtype: str = "auto",
    device: str = "cpu",
    documents: int = 2,
    document_tokens: int = 200,
    max_new_tokens: int = 32,
) -> None:
    """Print one line per operation of a method."""
    engine = load_engine(model, dtype=dtype, device=device)
    work = Workload(model, dtype, device, documents, document_tokens, max_new_tokens)
    for part, operations in profile_method(engine, work, method).items():
        for operation in operations:
            if operation.share >= MIN_SHARE:
                print(f"{part:8} {operation.share:6.1%} {operation.seconds:9.4f} s  {operation.name}")


if __name__ == "__main__":
    typer.run(main)
