"""Process that loads its part of split models, as started by torchrun, and saves its results in a file.

The folder "fsdp" is split as for training, and "4bit" is packed; both are refused.
"""

import os
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.distributed.configuration_utils import DistributedConfig

from pine_engine import Engine, ModelError, TokenLayout

IDS = torch.randint(97, (60,), generator=torch.Generator().manual_seed(1)).tolist()
LAYOUT = TokenLayout(
    tuple(IDS[:5]), (tuple(IDS[5:28]), tuple(IDS[28:37]), tuple(IDS[37:51])), tuple(IDS[51:])
)


FEW_METHODS = ("vanilla", "pcw", "pine")


def find(folder: Path, device: str = "cpu") -> dict[str, Any]:
    """Return the results of a model that a test compares between one process and several.

    All methods run on the model "llama": what is split does not depend on the method.
    """
    engine = load(folder, device)
    options: dict[str, Any] = {"max_new_tokens": 3, "stop_at_eos": False, "return_logits": True}
    methods = "all" if folder.name == "llama" else FEW_METHODS
    shuffled = engine.shuffle(LAYOUT, methods=methods, **options)
    few = engine.run(LAYOUT, methods=["vanilla", "pine"], trace=True, **options)
    traced: Any = few.traces["pine"].suffix_importance
    return {
        "tokens": [
            {name: cell.answer.token_ids for name, cell in row.items()} for row in shuffled.comparisons
        ],
        "logits": [row.result.logits for row in shuffled.results],
        "kept": shuffled.invariance_held,
        "vanilla_is_equal": shuffled.summary["vanilla"].bitwise_identical,
        "beside_one": few.logits["pine"],
        "heads": (engine.num_heads, traced.shape[1]),
        "invariance_warning": engine.invariance_warning,
    }


def load(folder: Path, device: str) -> Engine:
    if folder.name == "fsdp":
        split = DistributedConfig(fsdp_size=int(os.environ["WORLD_SIZE"]))
        return Engine(AutoModelForCausalLM.from_pretrained(folder, distributed_config=split))
    return Engine.load(folder, dtype="4bit" if folder.name == "4bit" else "auto", device=device)


def leave_found(out: str, *folders: str) -> None:
    """Save results, or the error message, by name of the folder in the file OUT.RANK."""
    found: dict[str, Any] = {}
    for folder in map(Path, folders):
        try:
            found[folder.name] = find(folder, "tp")
        except ModelError as error:
            found[folder.name] = str(error)
    torch.save(found, f"{out}.{os.environ['RANK']}")
    torch.distributed.barrier()  # a process that exits resets the connections of others


if __name__ == "__main__":
    leave_found(*sys.argv[1:])
