"""The thread pool that solvers split their batches over.

A pool over kernels that release the GIL, not OpenMP: OpenMP's spinning barriers collapse when another process wants
the core. Long work always goes to the pool, so that the main thread, which waits, can answer Ctrl-C.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise

import numpy as np
import torch

_count: int | None = None
_pool: ThreadPoolExecutor | None = None
_pool_size = 0


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


def split(
    work: Callable[[int, int], int], size: int, least: int, stop: np.ndarray | None = None, long: bool = False
) -> list[int]:
    """Call ``work(first, last)`` over parts of ``range(size)``, none smaller than ``least``, and collect the results.

    More parts than threads, because instances differ in how hard they are. If waiting for them is interrupted,
    ``stop[0]`` becomes 1, which tells ``work`` to return early. ``long`` work leaves the main thread free to notice.
    """
    if size < 2 * least and not long:
        return [work(0, size)]
    threads = get_num_threads()
    parts = min(2 * threads, size // max(least, 1)) if threads > 1 else 1
    if parts <= 1 and not (long and threading.current_thread() is threading.main_thread()):
        return [work(0, size)]
    parts = max(parts, 1)
    bounds = [size * part // parts for part in range(parts + 1)]
    futures = []
    try:
        pool = _pool_of(threads)
        futures = [pool.submit(work, *ends) for ends in pairwise(bounds)]
        # With a timeout, because on Windows a wait without one cannot be interrupted.
        while wait(futures, timeout=0.2).not_done:
            pass
    except BaseException:
        if stop is not None:
            stop[0] = 1
        # The arrays belong to the caller, who may change them as soon as this returns.
        wait([future for future in futures if not future.cancel()])
        raise
    return [future.result() for future in futures]


def _pool_of(threads: int) -> ThreadPoolExecutor:
    global _pool, _pool_size
    if _pool is None or _pool_size != threads:
        _pool, _pool_size = ThreadPoolExecutor(threads, thread_name_prefix="directloss"), threads
    return _pool
