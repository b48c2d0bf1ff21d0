"""The best label sequence of every instance of a batch: Viterbi's dynamic programme.

``best[t, b]`` is the value of the best labels of positions 0 to t that end in b:

    best[t, b] = unary[t, b] + max_a (best[t - 1, a] + transitions[a, b]).

Only the maxima are kept: the labels are found on the way back, where one column of each table is looked at again. The
inner loop then is an addition and a maximum over contiguous b, which LLVM turns into vector instructions. Of tied
labels the smallest wins, the last position's first.

Whatever instances share is read where it stands: an array (R, ...) comes with ``rows`` (period,), and instance i reads
row ``rows[i % period]``. An array with R = 0 is absent.
"""

import numpy as np
from numba import njit

_compile = njit(nogil=True, cache=True)
_inline = njit(nogil=True, cache=True, inline="always")


@_inline
def _row(rows, instance):
    return rows[instance % len(rows)] if len(rows) else 0


@_compile
def _load_transitions(table, transitions, row, position, forbidden, forbidden_row, forbidden_position):
    """Write the scores of going from a to b, minus infinity where that is forbidden."""
    labels = table.shape[0]
    for a in range(labels):
        if len(transitions):
            for b in range(labels):
                table[a, b] = transitions[row, position, a, b]
        else:
            table[a, :] = 0.0
        if len(forbidden):
            for b in range(labels):
                if forbidden[forbidden_row, forbidden_position, a, b]:
                    table[a, b] = -np.inf


@_compile
def _enter(before, table, after):
    """``after[b] = max_a (before[a] + table[a, b])``, four a at a time to spare loads and stores."""
    labels = len(before)
    after[:] = -np.inf
    a = 0
    while a + 4 <= labels:
        v0, v1, v2, v3 = before[a], before[a + 1], before[a + 2], before[a + 3]
        r0, r1, r2, r3 = table[a], table[a + 1], table[a + 2], table[a + 3]
        for b in range(labels):
            c0, c1, c2, c3 = v0 + r0[b], v1 + r1[b], v2 + r2[b], v3 + r3[b]
            low = c0 if c0 > c1 else c1
            high = c2 if c2 > c3 else c3
            low = low if low > high else high
            after[b] = low if low > after[b] else after[b]
        a += 4
    while a < labels:
        v0, r0 = before[a], table[a]
        for b in range(labels):
            c0 = v0 + r0[b]
            after[b] = c0 if c0 > after[b] else after[b]
        a += 1


@_compile
def viterbi(unary, cost, cost_rows, steps, transitions, transition_rows, start, start_rows, end, end_rows,
            lengths, length_rows, forbidden, forbidden_rows, mask, mask_rows, labels_of, first, last):  # fmt: skip
    """Write the labels (T, instances, n) of instances first to last - 1; return one without any labels, or -1.

    Positions beyond a length get label 0.
    """
    positions, labels = unary.shape[1:]
    best = np.empty((positions, labels))
    table = np.empty((labels, labels))
    loaded = np.full(4, -1)  # which transitions, and which forbidden ones, are in the table
    for instance in range(first, last):
        length = lengths[_row(length_rows, instance)] if len(lengths) else positions
        cost_row, mask_row = _row(cost_rows, instance), _row(mask_rows, instance)
        row, forbidden_row = _row(transition_rows, instance), _row(forbidden_rows, instance)
        end_row = _row(end_rows, instance)
        for step in range(len(steps)):
            labels_of[step, instance, length:] = 0
            for t in range(length):
                now = best[t]
                if t:
                    _table_at(table, loaded, transitions, row, forbidden, forbidden_row, t - 1)
                    _enter(best[t - 1], table, now)
                elif len(start):
                    start_row = _row(start_rows, instance)
                    for b in range(labels):
                        now[b] = start[start_row, b]
                else:
                    now[:] = 0.0
                if steps[step] == 0.0:
                    for b in range(labels):
                        now[b] += unary[instance, t, b]
                else:
                    for b in range(labels):
                        now[b] += unary[instance, t, b] + steps[step] * cost[cost_row, t, b]
                if len(mask):
                    at = t if mask.shape[1] > 1 else 0
                    for b in range(labels):
                        if not mask[mask_row, at, b]:
                            now[b] = -np.inf
                if t == length - 1 and len(end):
                    for b in range(labels):
                        now[b] += end[end_row, b]
            if length:
                b = _first_largest(best[length - 1])
                if best[length - 1, b] == -np.inf:
                    return instance
                labels_of[step, instance, length - 1] = b
                for t in range(length - 2, -1, -1):
                    b = _come_from(best[t], transitions, row, forbidden, forbidden_row, t, b)
                    labels_of[step, instance, t] = b
    return -1


@_compile
def _come_from(before, transitions, row, forbidden, forbidden_row, position, b):
    """The label a before b: the first that attains the maximum."""
    at = position if transitions.shape[1] > 1 else 0
    forbidden_at = position if forbidden.shape[1] > 1 else 0
    found, largest = 0, -np.inf
    for a in range(len(before)):
        value = before[a] + (transitions[row, at, a, b] if len(transitions) else 0.0)
        if value > largest and not (len(forbidden) and forbidden[forbidden_row, forbidden_at, a, b]):
            found, largest = a, value
    return found


@_inline
def _table_at(table, loaded, transitions, row, forbidden, forbidden_row, position):
    at = position if transitions.shape[1] > 1 else 0
    forbidden_at = position if forbidden.shape[1] > 1 else 0
    if loaded[0] != row or loaded[1] != at or loaded[2] != forbidden_row or loaded[3] != forbidden_at:
        _load_transitions(table, transitions, row, at, forbidden, forbidden_row, forbidden_at)
        loaded[0], loaded[1], loaded[2], loaded[3] = row, at, forbidden_row, forbidden_at


@_compile
def _first_largest(values):
    where = 0
    for index in range(1, len(values)):
        if values[index] > values[where]:
            where = index
    return where
