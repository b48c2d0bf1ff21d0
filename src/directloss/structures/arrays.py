"""Tensors of a batch as the arrays that kernels read."""

import math

import numpy as np
from torch import Tensor


def as_array(tensor: Tensor) -> np.ndarray:
    """The numbers in row-major order, not copied where they are so already."""
    return tensor.detach().cpu().contiguous().numpy()


def instances(tensor: Tensor, own: int) -> np.ndarray:
    """All batch axes as one: (instances, *the last ``own`` axes)."""
    return as_array(tensor).reshape(-1, *tensor.shape[tensor.dim() - own :])


def repeating(tensor: Tensor, batch: tuple[int, ...], own: tuple[int, ...]) -> np.ndarray:
    """What broadcasts to (*batch, *own), without the leading axes along which it only repeats: (period, *own).

    Instance i reads row ``i % period``, so that data are not copied for every sample and step.
    """
    shape = (*batch, *own)
    while tensor.dim() > len(own) and tensor.shape[0] == 1:
        tensor = tensor[0]
    kept = max(tensor.dim() - len(own), 0)
    axes = shape[len(batch) - kept :]
    return as_array(tensor.expand(axes)).reshape(math.prod(axes[:kept]), *own)


def place(index: int, batch: tuple[int, ...]) -> tuple[int, ...]:
    """Where the instance with this number stands in the batch."""
    return tuple(int(i) for i in np.unravel_index(index, batch)) if batch else ()
