"""One step of the active set behind ``sparsemap``: the best convex combination of the structures found so far."""

import numpy as np

from directloss.compiling import kernel, part

# A gain below this, relative to the values, is rounding; half the squared distance to the solution is below it too.
_GAP = 1e-13
_TINY = 1e-11  # a pivot below this, relative to its row: the structures are affinely dependent


@part()
def _factorize(gram, count, factor):
    """The Cholesky factor of ``gram + 1``; return how many rows it has before one that depends on those above it."""
    for i in range(count):
        for k in range(i + 1):
            total = gram[i, k] + 1.0
            for m in range(k):
                total -= factor[i, m] * factor[k, m]
            if k < i:
                factor[i, k] = total / factor[k, k]
            elif total <= _TINY * (gram[i, i] + 1.0):
                return i
            else:
                factor[i, i] = np.sqrt(total)
    return count


@part()
def _solve(factor, count, x):
    """Solve in place with the first ``count`` rows of the factor."""
    for i in range(count):
        for m in range(i):
            x[i] -= factor[i, m] * x[m]
        x[i] /= factor[i, i]
    for i in range(count - 1, -1, -1):
        for m in range(i + 1, count):
            x[i] -= factor[m, i] * x[m]
        x[i] /= factor[i, i]


@part()
def _drop(row, count, vertices, gram, value, weight, number):
    """Remove a structure; those after it move up."""
    for i in range(row, count - 1):
        vertices[i], value[i], weight[i], number[i] = vertices[i + 1], value[i + 1], weight[i + 1], number[i + 1]
        for k in range(count):
            gram[i, k] = gram[i + 1, k]
    for k in range(row, count - 1):
        for i in range(count - 1):
            gram[i, k] = gram[i, k + 1]
    return count - 1


@part()
def _gains(values, found, c, p, u, count, point):
    """Whether a new structure improves on the point to first order, by more than rounding."""
    here, size, moved, length = 0.0, 1.0 + abs(values), 0.0, 0.0
    for i in range(count):
        here += p[i] * c[i]
        size = max(size, abs(c[i]))
    for e in range(len(point)):
        moved += point[e] * found[e]
        length += point[e] * point[e]
    for i in range(count):
        if values <= c[i] and np.all(u[i] == found):
            return False
    return values - moved - (here - length) > _GAP * size


@kernel
def combine(found, values, time, open_, counts, vertices, gram, value, weight, number, point, first, last):
    """Add each open instance's new structure, ``found`` (B, E), and find the weights of the best combination.

    Best is the largest ``sum_i weight_i value_i - |point|^2 / 2``, values being those of the linear part. The state of
    an instance is its ``counts`` structures: their entries, products, values, weights and the time they were found. An
    instance that the new structure does not improve is closed.
    """
    most = vertices.shape[1]
    factor, best, ones = np.empty((most, most)), np.empty(most), np.empty(most)
    for b in range(first, last):
        if not open_[b]:
            continue
        u, g, c, p, t = vertices[b], gram[b], value[b], weight[b], number[b]
        count = counts[b]
        if count and not _gains(values[b], found[b], c, p, u, count, point[b]):
            open_[b] = False
            continue
        u[count], c[count], p[count], t[count] = found[b], values[b], 0.0 if count else 1.0, time
        count += 1
        for i in range(count):
            g[i, count - 1] = g[count - 1, i] = u[i] @ u[count - 1]
        while count > 1:
            rank = _factorize(g, count, factor)
            if rank < count:
                # The structure at ``rank`` is a combination of those before it: exchange them for it without moving the
                # point, which raises the value, until one of them has no weight left.
                for i in range(rank):
                    best[i] = g[rank, i] + 1.0
                _solve(factor, rank, best)
                step, leaves = np.inf, rank
                for i in range(rank):
                    if best[i] > _TINY and p[i] < step * best[i]:
                        step, leaves = p[i] / best[i], i
                if leaves < rank:
                    for i in range(rank):
                        p[i] -= step * best[i]
                    p[rank] += step
            else:
                for i in range(count):
                    best[i], ones[i] = c[i], 1.0
                _solve(factor, count, best)
                _solve(factor, count, ones)
                shift = (1.0 - best[:count].sum()) / ones[:count].sum()
                step, leaves = 1.0, -1
                for i in range(count):
                    best[i] += shift * ones[i]
                    if best[i] < 0.0 and p[i] < step * (p[i] - best[i]):
                        step, leaves = p[i] / (p[i] - best[i]), i
                for i in range(count):
                    p[i] += step * (best[i] - p[i])
                if leaves < 0:
                    break
            count = _drop(leaves, count, u, g, c, p, t)
        point[b] = 0.0
        for i in range(count):
            p[i] = max(p[i], 0.0) if count > 1 else 1.0
            point[b] += p[i] * u[i]
        counts[b] = count
    return 0
