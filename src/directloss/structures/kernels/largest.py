"""The k largest of n entries: the kernel behind :class:`Choice` and :class:`Subset`."""

import numpy as np

from directloss.compiling import kernel, part

# So many of a short row are found one after the other: passes without branches beat a selection that must guess.
_FEW = 8


@part(fastmath={"nnan", "nsz"})  # lets LLVM turn the loop into vector instructions
def _maximum(row):
    best = row[0]
    for value in row:
        best = value if value > best else best
    return best


@part()
def _kth_of_first(row, k, spare):
    """The k-th largest number of a row: the largest, the largest of the others, and so on, ties together."""
    bound, count, nothing = _maximum(row), 0, row.dtype.type(-np.inf)
    for j in range(len(row)):
        spare[j] = row[j]
    while True:
        for j in range(len(row)):
            count += spare[j] == bound
        if count >= k:
            return bound
        for j in range(len(row)):
            spare[j] = spare[j] if spare[j] < bound else nothing
        bound = _maximum(spare)


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
def _kth_of_few(row, k, heap):
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


@part()
def _kth_of_many(row, k, spare):
    """The k-th largest number of a row: Hoare's selection, with pivots from the middle."""
    for j in range(len(row)):
        spare[j] = row[j]
    left, right = 0, len(row) - 1
    while left < right:
        pivot = spare[(left + right) // 2]
        i, j = left, right
        while i <= j:
            while spare[i] > pivot:
                i += 1
            while spare[j] < pivot:
                j -= 1
            if i <= j:
                spare[i], spare[j] = spare[j], spare[i]
                i += 1
                j -= 1
        if k - 1 <= j:
            right = j
        elif k - 1 >= i:
            left = i
        else:
            break
    return spare[k - 1]


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
            ties = k
            if k == 1:
                bound = _maximum(row)
            elif k < n // 16:
                bound = _kth_of_few(row, k, spare)
            elif k <= _FEW:
                bound = _kth_of_first(row, k, spare)
            else:
                bound = _kth_of_many(row, k, spare)
            for j in range(n if k > 1 else 0):
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
