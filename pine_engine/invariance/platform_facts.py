"""Model, hardware and software that logits depend on."""

import importlib.metadata
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, PositiveInt

from pine_engine import __version__
from pine_engine.scheduling.worker import compute_on

if TYPE_CHECKING:  # a certificate is read without torch
    from pine_engine.backend import Backend


class Platform(BaseModel):
    """Model, hardware and software that compute the logits."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    model: str
    revision: str | None
    dtype: str
    device: str
    hardware: str  # name of the processor or GPU
    threads: PositiveInt  # of torch on the CPU
    python: str
    torch: str
    transformers: str
    pine_explorer: str


ASPECTS = {name: name for name in Platform.model_fields} | {
    "python": "Python",
    "pine_explorer": "PINE Explorer",
}
"""Labels of the fields of Platform, on which logits depend besides the prompt."""


def platform_of(engine: "Backend") -> Platform:
    """Return the model of an engine and the hardware and software it runs on."""
    import torch

    return Platform(
        model=engine.model_name,
        revision=engine.revision,
        dtype=engine.dtype,
        device=engine.device,
        hardware=hardware_of(engine.device),
        # Those of the runs: the calling thread may have inherited the number of a layer of another run.
        threads=compute_on(engine.device, torch.get_num_threads),
        python=platform.python_version(),
        torch=torch.__version__,
        transformers=importlib.metadata.version("transformers"),
        pine_explorer=__version__,
    )


def hardware_of(device: str, cpu_info: Path = Path("/proc/cpuinfo")) -> str:
    """Return the name of the GPU, or the CPU and the instruction set that torch uses.

    Virtual machines give processors of several generations the same name, so family and model are added.
    """
    import torch

    if device.startswith("cuda"):
        name: str = torch.cuda.get_device_name(device)
        return name
    instructions = torch.backends.cpu.get_cpu_capability()
    lines = cpu_info.read_text(encoding="utf-8").splitlines() if cpu_info.is_file() else []
    facts = {
        key.strip(): value.strip() for key, _, value in (line.partition(":") for line in reversed(lines))
    }
    name = facts.get("model name", platform.machine())
    if "cpu family" in facts and "model" in facts:
        name = f"{name} (family {facts['cpu family']}, model {facts['model']})"
    return f"{name}, {instructions}"
