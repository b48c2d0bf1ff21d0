"""Tensors of a batch as the contiguous arrays that kernels read."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

# Entries that a piece of a batch has: a fraction of what takes noticeable memory, and far more than a call costs.
_PIECE = 250_000


def as_array(tensor: Tensor) -> np.ndarray:
    """The numbers in row-major order in main memory, not copied where they lie so already."""
    if tensor.requires_grad or not tensor.is_cpu:
        tensor = tensor.detach().cpu()
    array: np.ndarray = tensor.contiguous().numpy()
    return array


def instances(tensor: Tensor, own: int) -> np.ndarray:
    """All batch axes as one: (instances, *the last ``own`` axes)."""
    kept = tensor.shape[tensor.dim() - own :]
    return as_array(tensor).reshape(math.prod(tensor.shape[: tensor.dim() - own]), *kept)


def repeating(tensor: Tensor, batch: Sequence[int], own: Sequence[int]) -> np.ndarray:
    """What broadcasts to (*batch, *own), without the leading axes along which it only repeats: (period, *own).

    Instance i reads row ``i % period``, so that data are not copied for every sample and step.
    """
    while tensor.dim() > len(own) and (tensor.shape[0] == 1 or tensor.stride(0) == 0):
        tensor = tensor[0]
    kept = max(tensor.dim() - len(own), 0)
    axes = (*batch, *own)[len(batch) - kept :]
    if tensor.shape != axes:
        tensor = tensor.expand(axes)
    return as_array(tensor).reshape(math.prod(axes[:kept]), *own)


def shared_rows(tensor: Tensor, batch: Sequence[int], own_dims: int) -> tuple[np.ndarray, np.ndarray]:
    """What broadcasts to ``batch`` as an array (R, *own) of its own rows, and the row of each instance, (period,).

    Instance i of the flattened batch reads row ``rows[i % period]``: what is shared along any axis is never copied.
    """
    leading = tensor.shape[: tensor.dim() - own_dims]
    while leading and leading[0] == 1:
        leading = leading[1:]
    array = as_array(tensor).reshape(math.prod(leading), *tensor.shape[tensor.dim() - own_dims :])
    if not leading:
        return array, np.zeros(1, np.int64)
    rows = torch.arange(len(array), device="cpu").reshape(leading)
    return array, as_array(rows.expand(tuple(batch)[len(batch) - len(leading) :])).reshape(-1)


def pieces(count: int, entries: int) -> Iterator[slice]:
    """All of so many instances, a piece at a time: what is made on the way to a result stays small beside the batch."""
    size = max(1, _PIECE // max(1, entries))
    return (slice(first, first + size) for first in range(0, count, size))


def place(index: int, batch: Sequence[int]) -> tuple[int, ...]:
    """Where the instance with this number stands in the batch."""
    return tuple(int(i) for i in np.unravel_index(index, tuple(batch))) if len(batch) else ()


def scores_and_cost(scores: Tensor, cost: Tensor, entry_dims: int) -> tuple[np.ndarray, np.ndarray]:
    """Flat arrays of scores, (N, entries), and of a cost that broadcasts to them, (period, entries)."""
    shape = scores.shape
    size = math.prod(shape[scores.dim() - entry_dims :])
    flat = as_array(scores).reshape(-1, size)
    if cost is scores:
        return flat, flat
    if cost.dim() < entry_dims or cost.shape != shape[scores.dim() - cost.dim() :]:
        batch = shape[: scores.dim() - entry_dims]
        return flat, repeating(cost, batch, shape[len(batch) :]).reshape(-1, size)
    return flat, as_array(cost).reshape(-1, size)
