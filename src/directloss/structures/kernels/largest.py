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
def _sink(heap, at, size):
    """Let the number at a place of a heap, smallest first, sink to where it belongs."""
    value = heap[at]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= value:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = value


@part()
def _kth_largest(row, k, heap):
    """The k-th largest number of a row: a heap of the k largest so far, which most numbers do not enter."""
    for j in range(k):
        heap[j] = row[j]
    for at in range(k // 2 - 1, -1, -1):
        _sink(heap, at, k)
    for j in range(k, len(row)):
        if row[j] > heap[0]:
            heap[0] = row[j]
            _sink(heap, 0, k)
    return heap[0]


@kernel
def largest(scores, cost, mask, steps, k, positions, first, last):
    """Write where the k largest entries of ``scores[i] + step * cost[i]`` are, in order, for the instances first..last.

    ``cost`` and ``mask`` (True where an entry may be taken; no rows: everywhere) repeat along the instances. Of tied
    entries the first are taken. ``positions`` are (T, N, k).
    """
    n = scores.shape[1]
    row, heap = np.empty(n, scores.dtype), np.empty(k, scores.dtype)
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
                bound, ties = _kth_largest(row, k, heap), k
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
