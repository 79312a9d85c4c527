"""Memory that was freed goes back to the system."""

import sys

import numpy as np
import psutil
import pytest

from pine_engine.scheduling.runs import trim_memory


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc keeps freed memory so")
def test_freed_memory_is_returned_to_the_system() -> None:
    process = psutil.Process()
    blocks = [np.ones(6_000) for _ in range(2_000)]  # 48 kB each: the C library keeps such to itself
    held = process.memory_info().rss
    last = blocks[-1]
    blocks.clear()
    trim_memory()
    assert held - process.memory_info().rss > 60e6
    assert last.sum() == 6_000
