"""How many threads torch computes with, for a while."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def torch_num_threads(count: int | None) -> Iterator[None]:
    """With so many threads of torch, also more than there are cores; None for as many as there are now."""
    import torch  # verbs name this before they have anything to compute

    before = torch.get_num_threads()
    if count not in (None, before):
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)
