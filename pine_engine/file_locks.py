"""Locks of files that the system releases when their process ends."""

import errno
from pathlib import Path

from filelock import FileLock

_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}
"""Errors of file systems without locks, such as Lustre mounted without `-o flock`."""


def try_lock(path: Path, timeout_s: float = 0) -> FileLock | None:
    """Lock a file; None without locks. Raises Timeout after `timeout_s` seconds; -1 waits without limit."""
    lock = FileLock(path, timeout=timeout_s, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except OSError as error:
        if error.errno not in _NO_LOCKS:  # a Timeout has no number
            raise
        return None
    return lock
