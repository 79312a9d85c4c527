"""One writer for a file: a lock that other processes meet, and that never outlives its holder.

Who only reads does not meet it. When a process is killed the system opens its lock. Over NFS other machines
meet it too, and the server opens it when a machine has gone: with NFSv4 once its lease is over.
"""

import errno
import sys

_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}
"""What file systems say that have no locks, such as Lustre mounted without them."""


def lock(descriptor: int) -> bool:
    """Locks a file that is open for writing until it is closed; False where it cannot be locked at all.

    Raises BlockingIOError if another process has it.
    """
    if sys.platform == "win32":
        return False
    import fcntl

    # flock, not lockf: that one's lock ends when the same process closes the file after merely reading it.
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return False
    return True
