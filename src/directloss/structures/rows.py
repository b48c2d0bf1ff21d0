"""Tensors of a batch as arrays that kernels index, so that what instances share is never copied for each of them."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, Any]


def as_array(tensor: Tensor) -> Array:
    """The tensor's numbers in one piece of memory, not copied where they are that already."""
    return tensor.detach().cpu().contiguous().numpy()


def shared_rows(tensor: Tensor, batch: Sequence[int], own_dims: int) -> tuple[Array, Array]:
    """What broadcasts to ``batch`` as an array (R, *own) of its own rows, and the row of each instance, (period,).

    Instance i of the flattened batch reads row ``rows[i % period]``.
    """
    leading = tensor.shape[: tensor.dim() - own_dims]
    while leading and leading[0] == 1:
        leading = leading[1:]
    array = as_array(tensor).reshape(math.prod(leading), *tensor.shape[tensor.dim() - own_dims :])
    if not leading:
        return array, np.zeros(1, np.int64)
    rows = torch.arange(len(array)).reshape(leading).expand(tuple(batch)[len(batch) - len(leading) :])
    return array, as_array(rows).reshape(-1)


def place(instance: int, batch: Sequence[int]) -> tuple[int, ...]:
    """Where an instance of the flattened batch is."""
    return tuple(int(index) for index in np.unravel_index(instance, tuple(batch))) if batch else ()
