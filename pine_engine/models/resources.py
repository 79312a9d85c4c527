"""How much room there is, in memory and on a disk, and how a number of bytes is said."""

import gc
import shutil
from pathlib import Path

import psutil

CGROUP = Path("/sys/fs/cgroup")
"""Where Linux keeps the limits of a container."""


def in_words(size: float) -> str:
    """A number of bytes with its unit, in powers of ten: "98 MB", "16.1 GB"."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"


def free_disk(folder: Path) -> int:
    """Bytes that can be written into a folder, which need not be there yet."""
    return shutil.disk_usage(next(there for there in (folder, *folder.parents) if there.is_dir())).free


def free_memory(device: str) -> int:
    """Bytes that a model can take on a device, in torch's names; for "auto" on all GPUs, or the CPU.

    What torch keeps of a GPU for later counts as free. In a container its limit counts too.
    """
    import torch  # here for the reason that checkpoint.py gives

    if device == "auto":
        gpus = range(torch.cuda.device_count())
        return sum(free_memory(f"cuda:{gpu}") for gpu in gpus) if gpus else free_memory("cpu")
    if torch.device(device).type != "cuda":
        return min([int(psutil.virtual_memory().available), *_left_in_container(CGROUP)])
    free: int = torch.cuda.mem_get_info(device)[0]
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def release_memory(device: str) -> None:
    """Gives back what nobody refers to any more, also what torch would keep of a GPU for later."""
    import torch

    gc.collect()
    if device == "auto" or torch.device(device).type == "cuda":
        torch.cuda.empty_cache()


def _left_in_container(cgroup: Path) -> list[int]:
    """Bytes left below the limit of the container this runs in; empty where there is none."""
    try:
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
        statistics = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no container, or "max": no limit
        return []
    # Files that were read stay in memory as long as nobody needs it.
    return [limit - used + int(statistics.get("inactive_file", 0))]
