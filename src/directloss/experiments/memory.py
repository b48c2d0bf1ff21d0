"""Memory that is freed is kept for the next step."""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of glibc's mallopt


def keep_freed_memory() -> bool:
    """Let this process reuse large blocks of memory instead of asking the system for new ones; return whether it does.

    A step of a net frees and takes a gigabyte. glibc gives large blocks back to the system at once, and the next ones
    come page by page, each filled with zeros first: a fifth of a step's time. From here on the process keeps what it
    has had. Other systems, and other allocators, are left as they are.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))
