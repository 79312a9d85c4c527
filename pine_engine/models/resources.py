"""Free memory and disk space, and numbers of bytes as text."""

import gc
import shutil
from pathlib import Path

import psutil

CGROUP = Path("/sys/fs/cgroup")  # folder in which Linux keeps the limits of a container


def in_words(size: float) -> str:
    """Return a number of bytes in powers of ten: "98.0 MB", "16.1 GB"."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"


def free_disk(folder: Path) -> int:
    """Return the free bytes for a folder, which may not exist yet."""
    return shutil.disk_usage(next(parent for parent in (folder, *folder.parents) if parent.is_dir())).free


def free_memory(device: str) -> int:
    """Return the free bytes of a device, including torch's cache; for "auto", of all GPUs, or of the CPU."""
    import torch

    if device == "auto":
        gpus = range(torch.cuda.device_count())
        return sum(free_memory(f"cuda:{gpu}") for gpu in gpus) if gpus else free_memory("cpu")
    if torch.device(device).type != "cuda":
        return min([int(psutil.virtual_memory().available), *_left_in_container()])
    free: int = torch.cuda.mem_get_info(device)[0]
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def release_memory(device: str) -> None:
    """Release memory without references, and torch's cache of a GPU."""
    import torch

    gc.collect()
    if device == "auto" or torch.device(device).type == "cuda":
        torch.cuda.empty_cache()


def _left_in_container() -> list[int]:
    """Return the bytes below the limit of the container; empty without a limit."""
    try:
        limit, used = (int((CGROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        statistics = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no container, or "max": no limit
        return []
    # The page cache is released on demand.
    return [limit - used + int(statistics.get("inactive_file", 0))]
