"""The k largest of n entries: the kernel behind :class:`Choice` and :class:`Subset`."""

import numpy as np

from directloss.compiling import kernel, part


@part(fastmath={"nnan", "nsz"})  # lets LLVM turn the loop into vector instructions
def _maximum(row):
    best = row[0]
    for value in row:
        best = value if value > best else best
    return best


@part()
def _kth_largest(row, k):
    """The k-th largest number of a row, which loses its order (Hoare's selection, a pivot from the middle)."""
    left, right = 0, len(row) - 1
    while left < right:
        pivot = row[(left + right) // 2]
        i, j = left, right
        while i <= j:
            while row[i] > pivot:
                i += 1
            while row[j] < pivot:
                j -= 1
            if i <= j:
                row[i], row[j] = row[j], row[i]
                i += 1
                j -= 1
        if k - 1 <= j:
            right = j
        elif k - 1 >= i:
            left = i
        else:
            break
    return row[k - 1]


@kernel
def largest(scores, cost, mask, steps, k, positions, first, last):
    """Write where the k largest entries of ``scores[i] + step * cost[i]`` are, in order, for the instances first..last.

    ``cost`` and ``mask`` (True where an entry may be taken; no rows: everywhere) repeat along the instances. Of tied
    entries the first are taken. ``positions`` are (T, N, k).
    """
    n = scores.shape[1]
    row, spare = np.empty(n, scores.dtype), np.empty(n, scores.dtype)
    for t in range(steps.shape[0]):
        step = scores.dtype.type(steps[t])
        for i in range(first, last):
            own, along, found = scores[i], cost[i % len(cost)], positions[t, i]
            for j in range(n):
                row[j] = own[j] + step * along[j]
            if len(mask):
                allowed = mask[i % len(mask)]
                for j in range(n):
                    if not allowed[j]:
                        row[j] = -np.inf
            if k == 1:
                bound, ties = _maximum(row), 1
            else:
                for j in range(n):
                    spare[j] = row[j]
                bound, ties = _kth_largest(spare, k), k
                for j in range(n):
                    ties -= row[j] > bound
            count = j = 0
            while count < k:
                if row[j] > bound:
                    found[count] = j
                    count += 1
                elif row[j] == bound and ties > 0:
                    found[count] = j
                    count += 1
                    ties -= 1
                j += 1
    return 0
