"""torch with a number of threads of one's own, for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def with_threads(count: int) -> Iterator[None]:
    """torch computes with that many; as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
