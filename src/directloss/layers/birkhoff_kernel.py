"""The closest doubly stochastic matrix, ``argmin_Y |Y - theta|^2`` over the Birkhoff polytope, one matrix at a time.

``Y = max(0, theta + u + v)`` with one u for each row and one v for each column, which minimise the dual

    |Y|^2 / 2 - sum u - sum v,

convex and piecewise quadratic. Newton's method, whose Hessian is the Laplacian of the bipartite graph of the entries
above zero, ends after finitely many steps: some six for 10 x 10.
"""

import numpy as np

from directloss.compiling import kernel, part

_MOST_STEPS = 60
# Rows and columns that hang together share a shift of u and v that changes nothing: a ridge settles it. Away from the
# solution it also bounds the step where a row or column has no entry above zero.
_LEAST_RIDGE, _RIDGE = 1e-12, 0.01


@part()
def _dual(theta, u, v, y, rows, columns):
    """Fill ``y`` and what its rows and columns lack; return the dual's value."""
    n = len(u)
    value = 0.0
    columns[:] = 1.0
    for i in range(n):
        total = 0.0
        for j in range(n):
            entry = max(0.0, theta[i, j] + u[i] + v[j])
            y[i, j] = entry
            total += entry
            columns[j] -= entry
            value += entry * entry / 2
        rows[i] = 1.0 - total
        value -= u[i] + v[i]
    return value


@part()
def _newton(y, rows, columns, ridge, schur, degree, du, dv):
    """Solve the Laplacian of the entries above zero for ``rows`` and ``columns``, rows eliminated first."""
    n = len(rows)
    schur[:] = 0.0
    for j in range(n):
        dv[j] = columns[j]
    for i in range(n):
        count = ridge
        for j in range(n):
            if y[i, j] > 0:
                count += 1.0
        degree[i] = count
        for j in range(n):
            if y[i, j] > 0:
                dv[j] -= rows[i] / count
                schur[j, j] += 1.0
                for k in range(j + 1):
                    if y[i, k] > 0:
                        schur[j, k] -= 1.0 / count
    for j in range(n):
        schur[j, j] += ridge
        for k in range(j):
            total = schur[j, k]
            for m in range(k):
                total -= schur[j, m] * schur[k, m]
            schur[j, k] = total / schur[k, k]
        total = schur[j, j]
        for m in range(j):
            total -= schur[j, m] * schur[j, m]
        schur[j, j] = np.sqrt(max(total, ridge))
        for m in range(j):
            dv[j] -= schur[j, m] * dv[m]
        dv[j] /= schur[j, j]
    for j in range(n - 1, -1, -1):
        for m in range(j + 1, n):
            dv[j] -= schur[m, j] * dv[m]
        dv[j] /= schur[j, j]
    for i in range(n):
        total = rows[i]
        for j in range(n):
            if y[i, j] > 0:
                total -= dv[j]
        du[i] = total / degree[i]


@part()
def _start(theta, u):
    """Each row's shift for which its own entries sum to one."""
    n = len(u)
    for i in range(n):
        shift = 1.0 - theta[i].max()
        for _ in range(n):
            count, total = 0, 0.0
            for j in range(n):
                if theta[i, j] + shift > 0:
                    count += 1
                    total += theta[i, j]
            lower = (1.0 - total) / count
            if lower >= shift:
                break
            shift = lower
        u[i] = shift


@kernel
def project(theta, y, first, last):
    """Write the closest doubly stochastic matrices of ``theta`` (B, n, n) to ``y``; return how many were not found."""
    n, failed = theta.shape[1], 0
    rows, columns, degree = np.empty(n), np.empty(n), np.empty(n)
    u, v, du, dv = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    schur, trial = np.empty((n, n)), np.empty((n, n))
    next_u, next_v, next_rows, next_columns = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for b in range(first, last):
        matrix = theta[b]
        tolerance = 1e-12 * n * (1.0 + np.abs(matrix).max())
        _start(matrix, u)
        v[:] = 0.0
        value = _dual(matrix, u, v, y[b], rows, columns)
        for _ in range(_MOST_STEPS):
            missing = max(np.abs(rows).max(), np.abs(columns).max())
            if missing <= tolerance:
                break
            ridge = max(_LEAST_RIDGE, _RIDGE * min(missing, 1.0) ** 2)
            _newton(y[b], rows, columns, ridge, schur, degree, du, dv)
            slope = -(rows @ du + columns @ dv)
            step = 1.0
            while True:
                for i in range(n):
                    next_u[i] = u[i] + step * du[i]
                    next_v[i] = v[i] + step * dv[i]
                reached = _dual(matrix, next_u, next_v, trial, next_rows, next_columns)
                if reached <= value + 1e-4 * step * slope + 1e-13 * abs(value) or step < 1e-8:
                    break
                step /= 2
            value = reached
            u[:], v[:] = next_u, next_v
            rows[:], columns[:] = next_rows, next_columns
            y[b] = trial
        else:
            failed += 1
    return failed
