"""Tensors as the contiguous arrays that kernels read."""

import math
from collections.abc import Sequence

import numpy as np
from torch import Tensor


def as_array(tensor: Tensor, entry_dims: int) -> np.ndarray:
    """A tensor (..., *E) as an array (N, entries) in main memory, not copied where it lies there already."""
    array: np.ndarray = tensor.detach().cpu().contiguous().numpy()
    leading = tensor.dim() - entry_dims
    return array.reshape(math.prod(tensor.shape[:leading]), math.prod(tensor.shape[leading:]))


def periodic(tensor: Tensor, shape: Sequence[int], entry_dims: int) -> np.ndarray:
    """A tensor that broadcasts to ``shape``, (..., *E), as an array (period, entries).

    It leaves out the leading axes along which the tensor only repeats: instance i of the batch reads row i % period,
    and nothing is copied for every sample.
    """
    while tensor.dim() > entry_dims and tensor.shape[0] == 1:
        tensor = tensor[0]
    return as_array(tensor.expand(tuple(shape[len(shape) - max(tensor.dim(), entry_dims) :])), entry_dims)


def instance_of(problem: int, batch: Sequence[int]) -> tuple[int, ...]:
    """The batch index of a problem, which counts along the instances."""
    return tuple(int(i) for i in np.unravel_index(problem, tuple(batch))) if len(batch) else ()


def scores_and_cost(scores: Tensor, cost: Tensor, entry_dims: int) -> tuple[np.ndarray, np.ndarray]:
    """The arrays of scores (N, entries) and of a cost that broadcasts to them (period, entries)."""
    batch = as_array(scores, entry_dims)
    return batch, batch if cost is scores else periodic(cost, scores.shape, entry_dims)
