"""Memory of a run, by which the queue starts several runs at the same time."""

from typing import TYPE_CHECKING

from pine_engine.models.resources import free_memory

if TYPE_CHECKING:
    from pine_engine.engine.prepared_model import PreparedModel

USED_SHARE = 0.5  # of the free memory, for the states of all active runs


def memory_share(engine: "PreparedModel", num_tokens: int) -> float:
    """Return the share of the memory for active runs that the states of a run take.

    Args:
        engine: Engine that computes the run.
        num_tokens: Prompt and new tokens of all prompts that are in memory at the same time; 0 if unknown.

    Returns:
        A fraction from 0 to 1. It is 1 if the run has to be alone: its size is unknown, or the engine cannot
        share decode steps.
    """
    if not num_tokens or not engine.shares_steps:
        return 1.0
    return min(1.0, num_tokens * engine.bytes_per_token / (USED_SHARE * max(1, free_memory(engine.device))))
