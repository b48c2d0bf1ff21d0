"""The index arithmetic of ``parts`` on the CPU: one pass each, instead of five to ten small tensor operations.

A kernel reads vertices as two arrays, of which one may be empty: without ``positions`` every entry stands in order, and
without ``values`` all are ones.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from directloss.compiling import kernel, part

if TYPE_CHECKING:
    from directloss.parts import Vertices

# What kernels read and write.
DTYPES = {torch.float32: np.float32, torch.float64: np.float64}


def dense(positions: Tensor, entries: Sequence[int], dtype: torch.dtype) -> Tensor:
    """The structures with ones at the positions (..., K), (..., *E)."""
    *leading, count = positions.shape
    out, instances = np.zeros((*leading, *entries), DTYPES[dtype]), math.prod(leading)
    _write_ones(positions.contiguous().numpy().reshape(instances, count), out.reshape(instances, math.prod(entries)))
    return torch.from_numpy(out)


def difference(
    positions: Tensor | None,
    values: Tensor | None,
    ends: tuple[int, int],
    entries: Sequence[int],
    dtype: torch.dtype,
    factor: float,
) -> Tensor:
    """Of vertices (T, S, B..., K) those at one end less those at the other, summed over S: (B..., *E)."""
    steps, samples, *batch, count = (values if positions is None else positions).shape  # type: ignore[union-attr]
    out, instances = np.empty((*batch, *entries), DTYPES[dtype]), math.prod(batch)
    where, what = _arrays(positions, values, (steps, samples, instances, count))
    _difference(where, what, *ends, factor, out.reshape(instances, math.prod(entries)))
    return torch.from_numpy(out)


def weigh(
    positions: Tensor | None, values: Tensor | None, entries: Sequence[int], weights: Tensor, only_first: bool
) -> tuple[np.ndarray, float] | None:
    """``<weights, y>`` and ``<|weights|, |y|>`` of vertices (..., K), (2, ...), and the sum of all the former.

    Of all vertices, or only of the first on the leading axis. None if the kernel cannot read the weights: it reads
    weights (B..., *E) for any B that ends the batch axes, in float32 or float64.
    """
    *leading, count = (values if positions is None else positions).shape  # type: ignore[union-attr]
    axes, dtype = weights.dim() - len(entries), DTYPES.get(weights.dtype)
    aligned = 0 <= axes <= len(leading) and weights.shape == (*leading[len(leading) - axes :], *entries)
    if not aligned or dtype is None or weights.requires_grad or not weights.numel():
        return None
    if values is not None and values.dtype not in DTYPES:
        return None
    where, what = _arrays(positions, values, (math.prod(leading), count))
    table = weights.contiguous().numpy().reshape(-1, math.prod(entries))
    out = np.empty((2, *leading[only_first:]), dtype)
    return out, _weigh(where, what, table, out.reshape(2, -1))


def gap(ahead: "Vertices", behind: "Vertices", weights: Tensor, factor: float, add_up: bool) -> tuple[Tensor, Tensor]:
    """Vertices (..., K) less others, (..., *E), for weights of that shape, and ``factor * <weights, difference>``.

    The latter for each instance, (...), or their sum, ().
    """
    *leading, _ = ahead.slots.shape
    instances, dtype = math.prod(leading), DTYPES[weights.dtype]
    plus, minus = (_arrays(v.positions, v.values, (instances, v.slots.shape[-1])) for v in (ahead, behind))
    table = weights.contiguous().numpy().reshape(instances, math.prod(ahead.entries))
    out, worth = np.zeros(table.shape, dtype), np.empty(leading, dtype)
    total = _gap(*plus, *minus, table, factor, out, worth.reshape(instances))
    value = np.array(total, dtype) if add_up else worth
    return torch.from_numpy(out.reshape(weights.shape)), torch.from_numpy(value)


# What stands for positions or values that there are none of, by the number of axes.
_NONE = {dims: (np.empty((0,) * dims, np.int64), np.empty((0,) * dims, np.float32)) for dims in (2, 4)}


def _arrays(positions: Tensor | None, values: Tensor | None, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    no_positions, no_values = _NONE[len(shape)]
    return (
        no_positions if positions is None else positions.contiguous().numpy().reshape(shape),
        no_values if values is None else values.contiguous().numpy().reshape(shape),
    )


@kernel
def _write_ones(positions, out):
    for i in range(out.shape[0]):
        for k in range(positions.shape[1]):
            out[i, positions[i, k]] = 1


@kernel
def _difference(positions, values, ahead, behind, factor, out):
    """The vertices ``ahead`` less those ``behind`` (S, B, K each), summed over S, times ``factor``: ``out`` (B, E)."""
    everywhere, ones = len(positions) == 0, len(values) == 0
    _, samples, _, count = values.shape if everywhere else positions.shape
    for b in range(out.shape[0]):
        row = out[b]
        for entry in range(row.shape[0]):
            row[entry] = 0
        for s in range(samples):
            for k in range(count):
                plus = k if everywhere else positions[ahead, s, b, k]
                minus = k if everywhere else positions[behind, s, b, k]
                row[plus] += 1 if ones else values[ahead, s, b, k]
                row[minus] -= 1 if ones else values[behind, s, b, k]
        for entry in range(row.shape[0]):
            # What has no difference has no gradient, even where the factor is infinite.
            row[entry] = row[entry] * factor if row[entry] != 0 else 0


@part(inline="always")
def _add(positions, values, i, sign, row):
    number = row.dtype.type  # rounded first, so that what is added and subtracted leaves nothing
    everywhere, ones = len(positions) == 0, len(values) == 0
    for k in range(values.shape[1] if everywhere else positions.shape[1]):
        row[k if everywhere else positions[i, k]] += sign if ones else sign * number(values[i, k])


@kernel
def _gap(positions, values, other_positions, other_values, weights, factor, out, worth):
    """The vertices (N, K) less the others into ``out`` (N, E) of zeros, and what they weigh, times the factor, into
    ``worth`` (N,).

    Return the sum of the latter.
    """
    everything = 0.0
    for i in range(out.shape[0]):
        row = out[i]
        _add(positions, values, i, 1, row)
        _add(other_positions, other_values, i, -1, row)
        total = 0.0
        for entry in range(row.shape[0]):
            total += row[entry] * weights[i, entry]
        worth[i] = total * factor
        everything += total
    return everything * factor


@kernel
def _weigh(positions, values, weights, out):
    """``<weights, y>`` into ``out[0]`` and ``<|weights|, |y|>`` into ``out[1]``, for as many vertices (N, K) as it has.

    ``weights`` (R, E) repeat along the instances. Return the sum of the former.
    """
    everything = 0.0
    rows = weights.shape[0]
    everywhere, ones = len(positions) == 0, len(values) == 0
    count = values.shape[1] if everywhere else positions.shape[1]
    for i in range(out.shape[1]):
        row = weights[i % rows]
        total, size = 0.0, 0.0
        for k in range(count):
            term = row[k if everywhere else positions[i, k]]
            if not ones:
                term *= values[i, k]
            total += term
            size += abs(term)
        out[0, i] = total
        out[1, i] = size
        everything += total
    return everything
