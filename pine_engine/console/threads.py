"""How many threads torch computes with, for a while."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def with_threads(count: int | None) -> Iterator[None]:
    """With so many threads of torch, also more than there are cores; None for as many as there are now."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
