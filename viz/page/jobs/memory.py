"""Release freed memory to the operating system."""

import ctypes
import sys


def trim_memory() -> None:
    """Release memory that glibc keeps after a run, which can be hundreds of megabytes; no-op elsewhere."""
    if sys.platform != "linux":
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
