"""Modules that are imported when they are first used: those with kernels, because numba takes its time to import."""

import functools
import importlib
from collections.abc import Callable
from typing import Any


def later(module: str) -> Callable[[], Any]:
    """A function that returns the module. An import statement there would cost each call a microsecond or two."""
    return functools.cache(functools.partial(importlib.import_module, module))
