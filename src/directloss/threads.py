"""The thread pool that solvers split their batches over.

A pool over kernels that release the GIL, not OpenMP: OpenMP's spinning barriers collapse when another process wants
the core.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

_count: int | None = None
_pool: ThreadPoolExecutor | None = None


def set_num_threads(count: int | None) -> None:
    """Set how many threads solvers use; None follows ``torch.get_num_threads()``."""
    global _count
    if count is not None and not isinstance(count, int):
        raise TypeError(f"count is {count!r}, expected an int, or None to follow torch")
    if count is not None and count < 1:
        raise ValueError(f"count is {count}, expected at least 1, or None to follow torch")
    _count = count
    _forget_pool()


def get_num_threads() -> int:
    """How many threads solvers use."""
    return _count if _count is not None else torch.get_num_threads()


def _forget_pool() -> None:
    global _pool
    _pool = None


# Threads do not survive a fork, so a forked worker must not wait for its parent's.
os.register_at_fork(after_in_child=_forget_pool)


def split(work: Callable[[int, int], int], size: int, least: int) -> list[int]:
    """Call ``work(first, last)`` over parts of ``range(size)``, none smaller than ``least``, and collect the results.

    More parts than threads, because instances differ in how hard they are.
    """
    global _pool
    threads = get_num_threads()
    parts = min(2 * threads, size // max(least, 1)) if threads > 1 else 1
    if parts <= 1:
        return [work(0, size)]
    if _pool is None or _pool._max_workers != threads:
        _pool = ThreadPoolExecutor(threads, thread_name_prefix="directloss")
    bounds = [size * part // parts for part in range(parts + 1)]
    return list(_pool.map(work, bounds[:-1], bounds[1:]))
