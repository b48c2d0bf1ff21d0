"""The numba kernels behind soft sorting and ranking: sort, pool adjacent violators, project, take the gradient back.

Rows are (rows, n). ``order`` says where the largest, the second, ... of a row stands. ``begins`` has the first position
of each block of the solution, in that order, and n after the last block.
"""

import math

import numpy as np

from directloss.compiling import kernel, part

_DIGITS = 256


@part()
def _sort(bits, one, order, key, index, other_key, other_index, count):
    """Write where the largest, the second, ... of numbers stands, given the bits of floating-point numbers.

    Bytes in turn, the least first, which is several times as fast as comparing. ``one`` is 1 in the bits' own dtype.
    """
    n, size = np.uintp(bits.shape[0]), bits.itemsize
    sign = one << (8 * size - 1)
    count[:] = 0
    for i in range(n):
        k = bits[i]
        # Read as whole numbers, the negative ones follow the positive ones and grow with their magnitude.
        if k & sign == 0:
            k = ~k ^ sign
        key[i], index[i] = k, i
        for digit in range(size):
            count[digit, k & (_DIGITS - 1)] += np.uint32(1)
            k >>= 8
    a, b, from_index, to_index = key, other_key, index, other_index
    for digit in range(size):
        place, before = count[digit], np.uint32(0)
        for value in range(_DIGITS):
            before, place[value] = before + place[value], before
        for i in range(n):
            value = (a[i] >> (8 * digit)) & (_DIGITS - 1)
            to = place[value]
            place[value] = to + np.uint32(1)
            b[to], to_index[to] = a[i], from_index[i]
        a, b, from_index, to_index = b, a, to_index, from_index
    for i in range(n):  # after an even number of turns all is back where it began
        order[i] = index[i]


@part()
def _log_add(a, b):
    return max(a, b) + math.log1p(math.exp(-abs(a - b)))


@part()
def _pool(s, w, entropic, begins, of_s, of_w):
    """Write the blocks of s and w, (n,) both and falling; return how many. The last two arguments are for work.

    A block's value is the mean of s - w, or entropic the difference of their logsumexps. It falls from one block to the
    next: where it does not, they become one.
    """
    n = s.shape[0]
    top = -1
    for i in range(n):
        begin = i
        if entropic:
            a, b = s[i], w[i]
            while top >= 0 and of_s[top] - of_w[top] <= a - b:
                a, b, begin = _log_add(of_s[top], a), _log_add(of_w[top], b), begins[top]
                top -= 1
        else:
            a, b = s[i] - w[i], 1.0  # a sum and a size: no division on the way
            while top >= 0 and of_s[top] * b <= a * of_w[top]:
                a, b, begin = of_s[top] + a, of_w[top] + b, begins[top]
                top -= 1
        top += 1
        begins[top], of_s[top], of_w[top] = begin, a, b
    begins[top + 1] = n
    return top + 1


@part()
def _level(x, begin, end, entropic):
    """The mean, or the logsumexp, of a block relative to its first entry, which is its largest."""
    total = 0.0
    if entropic:
        for i in range(begin, end):
            total += math.exp(x[i] - x[begin])
        return math.log(total)
    for i in range(begin, end):
        total += x[i] - x[begin]
    return total / (end - begin)


@kernel
def blocks(s, w, entropic, start, first, last):
    """Write where the block of each position starts, for rows ``first`` to ``last`` - 1; s or w may be (1, n)."""
    n = start.shape[1]
    of_s, of_w, begins = np.empty(n), np.empty(n), np.empty(n + 1, np.int32)
    for row in range(first, last):
        for block in range(_pool(s[row % s.shape[0]], w[row % w.shape[0]], entropic, begins, of_s, of_w)):
            start[row, begins[block] : begins[block + 1]] = begins[block]
    return 0


@kernel
def project(values, bits, one, scale, fixed, ranks, entropic, y, order, begins, first, last):
    """Project ``scale * values`` onto the permutations of ``fixed`` (ranks), or ``fixed`` onto those of the values.

    ``bits`` are the values', read as whole numbers. Writes y, ``order`` and ``begins`` of rows ``first`` to
    ``last`` - 1.
    """
    n = values.shape[1]
    key, other_key = np.empty(n, bits.dtype), np.empty(n, bits.dtype)
    index, other_index = np.empty(n, np.int32), np.empty(n, np.int32)
    count = np.empty((bits.itemsize, _DIGITS), np.uint32)
    s, w = fixed.copy(), fixed.copy()
    of_s, of_w, found = np.empty(n), np.empty(n), np.empty(n)
    for row in range(first, last):
        value, out, at, begin = values[row], y[row], order[row], begins[row]
        _sort(bits[row], one, at, key, index, other_key, other_index, count)
        if scale < 0:
            at[:] = at[::-1].copy()
        if ranks:
            for i in range(n):
                s[i] = scale * value[at[i]]
        else:
            for i in range(n):
                w[i] = value[at[i]]
        for block in range(_pool(s, w, entropic, begin, of_s, of_w)):
            here, end = begin[block], begin[block + 1]
            if end == here + 1:  # what stands alone is w to the last bit, however large s is
                found[here] = w[here]
                continue
            level, largest = w[here], s[here]
            level += _level(w, here, end, entropic) - _level(s, here, end, entropic)
            for i in range(here, end):
                found[i] = level + (s[i] - largest)
        if not ranks:
            out[:] = found
            continue
        if entropic:
            for i in range(n):
                found[i] = math.exp(found[i])
        for i in range(n):
            out[at[i]] = found[i]
    return 0


@kernel
def project_back(values, scale, ranks, entropic, y, order, begins, grad, result, first, last):
    """Write the gradient of the values, given that of ``project``'s y.

    The value of a block moves with those in it by shares p, equal or entropic their softmax. So y moves with a value
    by 1 less p (ranks), or by p.
    """
    n = values.shape[1]
    share, g = np.ones(n), np.empty(n)
    for row in range(first, last):
        value, out, at, begin, to, moved = values[row], y[row], order[row], begins[row], grad[row], result[row]
        block = here = 0
        while here < n:
            end = begin[block + 1]
            shares, total = float(end - here), 0.0
            if entropic:
                shares, largest = 0.0, value[at[here]]
                for i in range(here, end):
                    share[i] = math.exp(scale * (value[at[i]] - largest))
                    shares += share[i]
            for i in range(here, end):
                g[i] = to[at[i] if ranks else i]
                if ranks and entropic:
                    g[i] *= out[at[i]]
                total += g[i]
            total /= shares
            for i in range(here, end):
                both = share[i] * total
                moved[at[i]] = scale * (g[i] - both) if ranks else both
            block, here = block + 1, end
    return 0
