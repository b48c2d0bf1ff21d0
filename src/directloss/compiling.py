"""How kernels are compiled: a kernel is called from Python and kept in numba's cache, its parts are neither.

A part lives in the kernel's own compiled code, so a cache file for it would only cost time, and could be stale:
numba looks at the age of the kernel's source file alone, which is why a kernel and its parts share one file.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import config, errors, njit

from directloss.errors import UserError

Function = Callable[..., Any]


def _compile(**options: Any) -> Callable[[Function], Any]:
    if config.DISABLE_JIT:
        raise UserError("NUMBA_DISABLE_JIT is set, but the solvers of directloss only work compiled; unset it")
    # Dividing by zero as numpy does, and no wrappers for other callers: less code to compile.
    compiler: Callable[[Function], Any] = njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True, **options)
    return compiler


def part(**options: Any) -> Callable[[Function], Any]:
    """Compile a function that only kernels call."""
    return _compile(no_cpython_wrapper=True, **options)


def kernel(function: Function) -> Function:
    """Compile a function that Python calls; where its files in numba's cache are damaged, compile it again."""
    compiled = _compile(cache=True)(function)

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            return compiled(*arguments)
        except errors.NumbaError:
            raise
        except Exception as error:
            # Kernels raise nothing themselves, but a truncated pickle may raise almost anything.
            if not _remove_cached(function, Path(compiled.stats.cache_path), error):
                raise
        return compiled(*arguments)

    return call


def _remove_cached(function: Function, folder: Path, error: Exception) -> bool:
    """Delete what numba's cache holds of a function; say whether there was anything."""
    code = function.__code__
    pattern = f"{Path(code.co_filename).stem}.{function.__qualname__}-{code.co_firstlineno}.*.nb[ci]"
    files = list(folder.glob(pattern))
    try:
        for file in files:
            file.unlink(missing_ok=True)  # another process may repair the same cache
    except OSError:
        raise UserError(f"numba's cache of directloss is damaged; delete the folder {folder}") from error
    return bool(files)
