"""The closest doubly stochastic matrix, ``argmin_Y |Y - theta|^2`` over the Birkhoff polytope, one matrix at a time.

``Y = max(0, theta + u + v)`` with one u for each row and one v for each column, which minimise the dual

    |Y|^2 / 2 - sum u - sum v,

convex and piecewise quadratic. Newton's method, whose Hessian is the Laplacian of the bipartite graph of the entries
above zero, ends after finitely many steps: some four for 10 x 10, after rows and columns were settled in turn.
"""

import numpy as np

from directloss.compiling import kernel, part

_MOST_STEPS = 60
# Rows and columns that hang together share a shift of u and v that changes nothing: a ridge settles it. Away from the
# solution it also bounds the step where a row or column has no entry above zero.
_LEAST_RIDGE, _RIDGE = 1e-12, 0.01
_ROUNDING = 1e-14
_SUMS = {"reassoc", "contract", "nsz"}  # what a sum needs to be vectorised


@part(fastmath=_SUMS)
def _settle(theta, other, shift):
    """Each row's shift for which its own entries sum to one, by falling sets of entries (Michelot 1986)."""
    n = len(shift)
    for i in range(n):
        entries, count, kept = 0.0, n, n + 1
        for j in range(n):
            entries += theta[i, j] + other[j]
        while 0 < count < kept:
            kept, lowest = count, (entries - 1.0) / count
            entries, count = 0.0, 0
            for j in range(n):
                entry = theta[i, j] + other[j]
                entries += entry if entry > lowest else 0.0
                count += 1 if entry > lowest else 0
        shift[i] = (1.0 - entries) / max(count, 1)


@part(fastmath=_SUMS)
def _dual(theta, u, v, y, rows, columns):
    """Fill ``y`` and what its rows and columns lack; return the dual's value."""
    n = len(u)
    value = 0.0
    for j in range(n):
        columns[j] = 1.0
    for i in range(n):
        total, squares = 0.0, 0.0
        for j in range(n):
            entry = theta[i, j] + u[i] + v[j]
            entry = entry if entry > 0.0 else 0.0
            y[i, j] = entry
            total += entry
            columns[j] -= entry
            squares += entry * entry
        rows[i] = 1.0 - total
        value += squares / 2 - u[i] - v[i]
    return value


@part()
def _shifts(y, rows, columns, ridge, schur, above, u, v):
    """Solve the Laplacian of the entries above zero for ``rows`` and ``columns``, rows eliminated first."""
    n = len(rows)
    for j in range(n):
        v[j] = columns[j]
        for k in range(j):
            schur[j, k] = 0.0
        schur[j, j] = ridge
    for i in range(n):
        count = 0
        for j in range(n):
            above[count] = j
            count += 1 if y[i, j] > 0 else 0
        share = 1.0 / (count + ridge)
        for a in range(count):
            j = above[a]
            v[j] -= rows[i] * share
            schur[j, j] += 1.0
            for b in range(a + 1):
                schur[j, above[b]] -= share
    # Column by column, with the inverse of each pivot in its place; most columns have no entry in common.
    for k in range(n):
        pivot = schur[k, k] = 1.0 / max(schur[k, k], ridge)
        for i in range(k + 1, n):
            if schur[i, k] != 0.0:
                factor = schur[i, k] * pivot
                v[i] -= factor * v[k]
                for j in range(k + 1, i + 1):
                    schur[i, j] -= factor * schur[j, k]
    for k in range(n - 1, -1, -1):
        total = v[k]
        for i in range(k + 1, n):
            total -= schur[i, k] * v[i]
        v[k] = total * schur[k, k]
    for i in range(n):
        count, total = ridge, rows[i]
        for j in range(n):
            count += 1.0 if y[i, j] > 0 else 0.0
            total -= v[j] if y[i, j] > 0 else 0.0
        u[i] = total / count


@part()
def _largest(rows, columns):
    largest = 0.0
    for i in range(len(rows)):
        largest = max(largest, abs(rows[i]), abs(columns[i]))
    return largest


@part()
def _onto_face(x, y, rows, columns, wanted, schur, above, u, v):
    """Move the entries of x where y is above zero so that rows and columns sum to what is wanted, as little as can be.

    Once more for what the ridge leaves, it times the entries.
    """
    n = len(rows)
    for _ in range(2):
        for i in range(n):
            rows[i] = columns[i] = wanted
        for i in range(n):
            for j in range(n):
                rows[i] -= x[i, j]
                columns[j] -= x[i, j]
        _shifts(y, rows, columns, _LEAST_RIDGE, schur, above, u, v)
        for i in range(n):
            for j in range(n):
                x[i, j] += u[i] + v[j] if y[i, j] > 0 else 0.0


@kernel
def project(theta, y, first, last):
    """Write the closest doubly stochastic matrices of ``theta`` (B, n, n) to ``y``; return how many were not found."""
    n, failed = theta.shape[1], 0
    vectors, matrices, above = np.empty((10, n)), np.empty((3, n, n)), np.empty(n + 1, np.int64)
    rows, columns, u, v, du, dv, next_u, next_v, next_rows, next_columns = (
        vectors[0], vectors[1], vectors[2], vectors[3], vectors[4],
        vectors[5], vectors[6], vectors[7], vectors[8], vectors[9],
    )  # fmt: skip
    here, trial, schur = matrices[0], matrices[1], matrices[2]
    for b in range(first, last):
        matrix = theta[b]
        size = 0.0
        for i in range(n):
            v[i] = 0.0
            for j in range(n):
                size = max(size, abs(matrix[i, j]))
        tolerance = 1e-12 * n * (1.0 + size)
        _settle(matrix, v, u)
        _settle(matrix.T, u, v)
        value = _dual(matrix, u, v, here, rows, columns)
        for _ in range(_MOST_STEPS):
            missing = _largest(rows, columns)
            if missing <= tolerance:
                break
            ridge = max(_LEAST_RIDGE, _RIDGE * min(missing, 1.0) ** 2)
            _shifts(here, rows, columns, ridge, schur, above, du, dv)
            slope = 0.0
            for i in range(n):
                slope -= rows[i] * du[i] + columns[i] * dv[i]
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
            here, trial = trial, here
            u, v, next_u, next_v = next_u, next_v, u, v
            rows, columns, next_rows, next_columns = next_rows, next_columns, rows, columns
        else:
            failed += 1
        for i in range(n):
            for j in range(n):
                y[b, i, j] = here[i, j]
        if missing > _LEAST_RIDGE:  # large scores leave their own rounding in theta + u + v, but not on its face
            _onto_face(y[b], here, rows, columns, 1.0, schur, above, du, dv)
    return failed


@kernel
def project_onto_face(x, y, wanted, first, last):
    """Change ``x`` (B, n, n) to the closest matrices that are zero where ``y`` is and whose lines sum to ``wanted``."""
    n = x.shape[1]
    vectors, schur, above = np.empty((4, n)), np.empty((n, n)), np.empty(n + 1, np.int64)
    for b in range(first, last):
        size = 0.0
        for i in range(n):
            for j in range(n):
                x[b, i, j] = x[b, i, j] if y[b, i, j] > 0 else 0.0
                size = max(size, abs(x[b, i, j]))
        _onto_face(x[b], y[b], vectors[0], vectors[1], wanted, schur, above, vectors[2], vectors[3])
        for i in range(n):
            for j in range(n):
                # The rounding of what cancels: at a vertex nothing else is left, and nothing must be.
                if wanted == 0.0 and abs(x[b, i, j]) <= _ROUNDING * size:
                    x[b, i, j] = 0.0
    return 0
