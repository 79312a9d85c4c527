"""Memory that was freed goes back to the system."""

import ctypes
import sys


def give_back_memory() -> None:
    """Gives back what the C library keeps of freed memory; nothing where it is not glibc, which keeps it.

    A run leaves holes of all sizes in it: hundreds of megabytes would stay with the process.
    """
    if sys.platform != "linux":
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
