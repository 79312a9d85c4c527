"""Peak memory of one piece of work: of a process of its own on the CPU, of the allocator on a GPU."""

import multiprocessing
import resource
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch

Argument = TypeVar("Argument")

MB = 2**20
"""Bytes."""


def synchronize(device: torch.device) -> None:
    """Waits until the device has done all it was given; the CPU always has."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def device_peak_mb(device: torch.device, work: Callable[[], object]) -> float:
    """Largest memory in MB (2**20 bytes) that torch held on a CUDA device while `work` ran."""
    torch.cuda.reset_peak_memory_stats(device)
    work()
    synchronize(device)
    return round(torch.cuda.max_memory_allocated(device) / MB, 1)


def process_peak_mb(prepare: Callable[[Argument], Callable[[], object]], argument: Argument) -> float:
    """Largest resident memory in MB (2**20 bytes) of a fresh process that runs `prepare(argument)()`.

    Only the second call counts. Both must be importable by name, as multiprocessing asks for.
    """
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_run_and_read, (prepare, argument))


def _run_and_read(prepare: Callable[[Argument], Callable[[], object]], argument: Argument) -> float:
    work = prepare(argument)
    _forget_peak()
    work()
    return _peak_mb()


def _forget_peak() -> None:
    """Resets the kernel's peak counter, so that loading does not count; where it can't be, it counts."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _peak_mb() -> float:
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return round(int(line.split()[1]) / 1024, 1)
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
