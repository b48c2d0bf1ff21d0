"""The numba kernels behind ``sinkhorn``: one matrix at a time, all iterations, forward and backward."""

import math

import numpy as np
from numba import types
from numba.extending import overload

from directloss.compiling import kernel, part

# A sum of exponentials below this is computed again relative to its largest term.
_TINY = 1e-30
_FAST = {"reassoc", "contract", "nsz"}

_LOG2E = np.float32(1.4426950408889634)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_COEFFICIENTS = tuple(
    np.float32(c)
    for c in (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
)


def _exp(x):
    """exp, in a form that vectorises for float32 (to one unit in the last place or two); libm's for float64."""


@overload(_exp, inline="always")
def _exp_of(x):
    if x != types.float32:
        return lambda x: math.exp(x)

    def exp(x):
        x = max(min(x, np.float32(88.0)), np.float32(-87.0))
        whole = np.floor(x * _LOG2E + np.float32(0.5))
        r = x - whole * _LN2_HIGH - whole * _LN2_LOW
        p = _COEFFICIENTS[0]
        p = p * r + _COEFFICIENTS[1]
        p = p * r + _COEFFICIENTS[2]
        p = p * r + _COEFFICIENTS[3]
        p = p * r + _COEFFICIENTS[4]
        p = p * r + _COEFFICIENTS[5]
        power = np.int32((np.int32(whole) + np.int32(127)) << np.int32(23))
        return (p * r * r + r + np.float32(1.0)) * power.view(np.float32)

    return exp


@part(fastmath=_FAST)
def _row_sum(row, v, shift):
    total = row[0] - row[0]  # a zero of its dtype: a literal would make the sum float64
    for j in range(row.shape[0]):
        total += _exp(row[j] + v[j] + shift)
    return total


@part(fastmath=_FAST)
def _add_exp(total, row, v, shift):
    for j in range(row.shape[0]):
        total[j] += _exp(row[j] + v[j] + shift)


@part(fastmath=_FAST)
def _log_sum(x, y):
    """logsumexp(x + y), for any magnitude."""
    top = (x + y).max()
    total = 0.0
    for k in range(x.shape[0]):
        total += math.exp(x[k] + y[k] - top)
    return top + math.log(total)


@kernel
def forward(a, p, u, v, first, last):
    """Iterate ``a`` (B, n, n); write the result to ``p`` and the potentials of every iteration to ``u``, ``v``."""
    n, iterations = a.shape[1], u.shape[1]
    zero = np.zeros(n, a.dtype)
    total = np.empty(n, a.dtype)
    for b in range(first, last):
        matrix = a[b]
        for k in range(iterations):
            before_v = v[b, k - 1] if k else zero
            for i in range(n):
                # After a column step no entry of exp(a + u + v) exceeds one: no need to look for the largest.
                total_i = _row_sum(matrix[i], before_v, u[b, k - 1, i]) if k else 0.0
                if total_i > _TINY:
                    u[b, k, i] = u[b, k - 1, i] - math.log(total_i)
                else:
                    u[b, k, i] = -_log_sum(matrix[i], before_v)
            total[:] = 0
            for i in range(n):
                _add_exp(total, matrix[i], before_v, u[b, k, i])
            for j in range(n):
                if total[j] > _TINY:
                    v[b, k, j] = before_v[j] - math.log(total[j])
                else:
                    v[b, k, j] = -_log_sum(np.ascontiguousarray(matrix[:, j]), u[b, k])
        for i in range(n):
            _write_exp(p[b, i], matrix[i], v[b, iterations - 1], u[b, iterations - 1, i])
    return 0


@part(fastmath=_FAST)
def _write_exp(out, row, v, shift):
    for j in range(row.shape[0]):
        out[j] = _exp(row[j] + v[j] + shift)


@part(fastmath=_FAST)
def _undo_columns(to_row, row, v, shift, to_v):
    """Take one row's part in v = -logsumexp_i(a + u) back; return the gradient of the row's u."""
    total = row[0] - row[0]  # a zero of its dtype: a literal would make the sum float64
    for j in range(row.shape[0]):
        part = to_v[j] * _exp(row[j] + v[j] + shift)
        to_row[j] -= part
        total += part
    return -total


@part(fastmath=_FAST)
def _undo_row(to_row, row, v, shift, to_u, to_v):
    """Take u = -logsumexp_j(a + v) of one row back; add to the gradient of v."""
    for j in range(row.shape[0]):
        part = to_u * _exp(row[j] + v[j] + shift)
        to_row[j] -= part
        to_v[j] -= part


@kernel
def backward(a, u, v, to_a, first, last):
    """Turn ``to_a``, which holds grad * p, into the gradient of ``a`` in place."""
    n, iterations = a.shape[1], u.shape[1]
    zero = np.zeros(n, a.dtype)
    to_u, to_v, next_to_v = np.empty(n, a.dtype), np.empty(n, a.dtype), np.empty(n, a.dtype)
    for b in range(first, last):
        to_v[:] = 0
        for i in range(n):
            to_u[i] = to_a[b, i].sum()
            to_v += to_a[b, i]
        for k in range(iterations - 1, -1, -1):
            for i in range(n):
                to_u[i] += _undo_columns(to_a[b, i], a[b, i], v[b, k], u[b, k, i], to_v)
            before_v = v[b, k - 1] if k else zero
            next_to_v[:] = 0
            for i in range(n):
                _undo_row(to_a[b, i], a[b, i], before_v, u[b, k, i], to_u[i], next_to_v)
            to_v[:] = next_to_v
            to_u[:] = 0
    return 0
