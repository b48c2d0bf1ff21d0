"""Exact linear assignment for batches: the numba kernel behind :class:`Matching`.

The method is the shortest augmenting path of Jonker and Volgenant in its Dijkstra form, in float64, minimising
``c = -(scores + step * cost)``. Four facts make it fast:

* Any column potentials ``v`` are dual feasible with ``u_i = min_j (c_ij - v_j)``, so a solve may start from whatever
  potentials are at hand and stays exact: only rows whose pair is not tight have to be augmented. Along the steps of
  one instance the potentials of the step before are used (the warm start).
* Column reduction alone is a poor start where rows want the same columns in the same order, as scores that sort do.
  There the matrix is close to ``r_i + k_j + a_i b_j``, whose optimal potentials are known in closed form; reducing by
  them first leaves few rows to augment (``_monotone_rows``).
* The inner loop, a row's relaxation with its argmin, is written as vector instructions (``_relaxation``), because
  LLVM does not vectorise a floating-point argmin.
* Among columns that are equally near a free one ends the search. The vectors do not look for it, because that would
  make every scan slower; a search that stalls does (``_free_as_near``), which is enough where scores tie.

Rows are never more than columns here; columns are padded to a multiple of the vector width with infinite costs.
Forbidden entries are infinite costs as well.

The file is long because a kernel and its parts must share one (see ``compiling``). Plain loops stand where numpy has a
function (fill, copy, argsort), because numba compiles those for seconds.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from directloss.compiling import kernel, part

LANES = 4
# A column's code is its index, plus TAKEN when a row holds it: the smallest code among ties is a free column.
TAKEN = 1 << 40
NONE = 1 << 41
# After so many scans in a row at one distance a search looks for a free column there. Without ties it seldom comes to
# that; once it has helped, ties are common, and it is done at each scan.
PATIENCE = 4
# Where the row potentials of a first reduction come from, in the order of trying.
PLAIN, SMOOTH, EXACT, ROW_MINIMA, ALL_TRIED = range(5)

_F64, _I64, _I32 = ir.DoubleType(), ir.IntType(64), ir.IntType(32)
_FLOATS, _INTS = ir.VectorType(_F64, LANES), ir.VectorType(_I64, LANES)


def _relaxation(compare: bool, argmin: bool) -> Callable[..., Any]:
    """Build the relaxation of row i, ``key = min(key, c[i] - potential + offset)``, with ``pred = i`` where it lowers.

    Without ``compare`` it starts a search: keys and predecessors are written, whatever they were. With ``argmin`` it
    returns the code of the smallest key: its value is ``key[code % TAKEN]``, and NONE says that all are infinite.
    """

    def typed(
        _typing: Any, c: Any, potential: Any, key: Any, pred: Any, code: Any, offset: Any, i: Any
    ) -> tuple[Any, Any]:
        signature = types.int64(c, potential, key, pred, code, types.float64, types.int64)
        return signature, lambda context, builder, sig, args: _emit(context, builder, sig, args, compare, argmin)

    built: Callable[..., Any] = intrinsic(typed)
    return built


def _emit(context: Any, builder: Any, signature: Any, args: Any, compare: bool, argmin: bool) -> Any:
    arrays = [context.make_array(t)(context, builder, a) for t, a in zip(signature.args[:5], args[:5], strict=True)]
    c, potential, key, pred, code = (array.data for array in arrays)
    offset, i = args[5:]
    width = builder.extract_value(arrays[2].shape, 0)
    row = builder.gep(c, [builder.mul(i, width)])

    def splat(value: Any, vector: Any) -> Any:
        undefined = ir.Constant(vector, ir.Undefined)
        one = builder.insert_element(undefined, value, ir.Constant(_I32, 0))
        return builder.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES))

    def at(pointer: Any, j: Any, vector: Any) -> Any:
        return builder.bitcast(builder.gep(pointer, [j]), vector.as_pointer())

    def load(pointer: Any, j: Any, vector: Any) -> Any:
        return builder.load(at(pointer, j, vector), align=8)

    def store(value: Any, pointer: Any, j: Any) -> None:
        builder.store(value, at(pointer, j, value.type), align=8)

    offsets, rows = splat(offset, _FLOATS), splat(i, _INTS)
    low = cgutils.alloca_once_value(builder, ir.Constant(_FLOATS, [float("inf")] * LANES))
    best = cgutils.alloca_once_value(builder, ir.Constant(_INTS, [NONE] * LANES))
    with cgutils.for_range(builder, builder.sdiv(width, ir.Constant(_I64, LANES))) as loop:
        j = builder.mul(loop.index, ir.Constant(_I64, LANES))
        new = builder.fadd(builder.fsub(load(row, j, _FLOATS), load(potential, j, _FLOATS)), offsets)
        lowered = rows
        if compare:
            old = load(key, j, _FLOATS)
            better = builder.fcmp_ordered("<", new, old)
            new = builder.select(better, new, old)
            lowered = builder.select(better, rows, load(pred, j, _INTS))
        store(new, key, j)
        store(lowered, pred, j)
        if argmin:
            less = builder.fcmp_ordered("<", new, builder.load(low))
            builder.store(builder.select(less, load(code, j, _INTS), builder.load(best)), best)
            builder.store(builder.select(less, new, builder.load(low)), low)

    # Fold the lanes pairwise, in vectors: extracted lanes would be compared with branches that nothing predicts.
    value, found = builder.load(low), builder.load(best)
    half = LANES // 2
    while half:
        turn = ir.Constant(ir.VectorType(_I32, LANES), [lane ^ half for lane in range(LANES)])
        other_value = builder.shuffle_vector(value, value, turn)
        other_found = builder.shuffle_vector(found, found, turn)
        tie = builder.fcmp_ordered("==", other_value, value)
        tie = builder.and_(tie, builder.icmp_signed("<", other_found, found))
        take = builder.or_(builder.fcmp_ordered("<", other_value, value), tie)
        value, found = builder.select(take, other_value, value), builder.select(take, other_found, found)
        half //= 2
    return builder.extract_element(found, ir.Constant(_I32, 0))


_scan_first = _relaxation(compare=False, argmin=True)
_scan_next = _relaxation(compare=True, argmin=True)
_lower = _relaxation(compare=True, argmin=False)


@part()
def _load(c, scores, cost, instance, step):
    """Write the costs of one instance; padding columns stay infinite."""
    n, m = scores.shape[1:]
    period = instance % cost.shape[0]
    for i in range(n):
        for j in range(m):
            c[i, j] = -(np.float64(scores[instance, i, j]) + step * np.float64(cost[period, i, j]))


@part()
def _forbid(c, forbidden, instance):
    n, m = forbidden.shape[1:]
    period = instance % forbidden.shape[0]
    for i in range(n):
        for j in range(m):
            if forbidden[period, i, j]:
                c[i, j] = np.inf


@part()
def _reduce_columns(c, u, v, zero, holder, column_of, m):
    """Set v_j = min_i (c_ij - u_i), give rows columns they attain (tight pairs), and count the rows left without."""
    n, width = c.shape
    for j in range(width):
        v[j] = np.inf
    for i in range(n):
        _lower(c, zero, v, holder, holder, -u[i], i)
        column_of[i] = -1
    for j in range(m, width):
        v[j] = 0.0
    free = n
    for j in range(m - 1, -1, -1):
        if column_of[holder[j]] < 0:
            column_of[holder[j]] = j
            free -= 1
    return free


@part()
def _normalize(x):
    """Subtract the mean and scale to a largest magnitude of one, so that products cannot overflow; return that."""
    mean = 0.0
    for k in range(x.shape[0]):
        mean += x[k] / x.shape[0]
    top = 0.0
    for k in range(x.shape[0]):
        x[k] -= mean
        top = max(top, abs(x[k]))
    if top > 0.0:
        for k in range(x.shape[0]):
            x[k] /= top
    return top


@part(fastmath={"reassoc", "contract"})
def _rank_one(c, fit):
    """Fit ``c_ij = row_i + column_j + a_i b_j`` by one round of the power method; ``fit`` holds the four."""
    n = fit.shape[1]
    row, column, a, b = fit[0], fit[1], fit[2], fit[3]
    for j in range(n):
        b[j] = c[0, j] - c[n - 1, j]
    for last in (False, True):
        _normalize(b)
        mean = 0.0
        for i in range(n):
            dot, total = 0.0, 0.0
            for j in range(n):
                dot += c[i, j] * b[j]
                total += c[i, j]
            a[i] = dot
            row[i] = total / n
            mean += row[i] / n
        size = _normalize(a)
        if last:
            norm = 0.0
            for j in range(n):
                norm += b[j] * b[j]
            for j in range(n):
                b[j] *= size / norm if norm > 0.0 else 0.0
                row[j] -= mean
        else:
            for j in range(n):
                b[j] = column[j] = 0.0
            part = 1.0 / n
            for i in range(n):
                for j in range(n):
                    b[j] += a[i] * c[i, j]
                    column[j] += part * c[i, j]


@part()
def _sort(fit, order):
    """Write the indices that sort a and b of the fit (Shell's method: numba's argsort takes a second to compile)."""
    n = order.shape[1]
    for which in range(2):
        for k in range(n):
            order[which, k] = k
        gap = 1
        while gap < n // 3:
            gap = 3 * gap + 1
        while gap > 0:
            for k in range(gap, n):
                index = order[which, k]
                at = k
                while at >= gap and fit[2 + which, order[which, at - gap]] > fit[2 + which, index]:
                    order[which, at] = order[which, at - gap]
                    at -= gap
                order[which, at] = index
            gap //= 3


@part()
def _monotone_rows(c, fit, order, smooth, u):
    """Row potentials that are optimal if matching rows of rising a with columns of falling b is.

    Neighbours in that order bound each step of the column potentials from both sides; the middle is taken. ``smooth``
    reads the bounds from the rank-one fit (good under noise), otherwise from the matrix itself (good without).
    """
    n = order.shape[1]
    potential = 0.0
    above = before = 0
    for q in range(n):
        i, j = order[0, q], order[1, n - 1 - q]
        if q > 0:
            if smooth:
                slope = 0.5 * (fit[2, above] + fit[2, i])
                potential += fit[1, j] - fit[1, before] + slope * (fit[3, j] - fit[3, before])
            else:
                potential += 0.5 * (c[above, j] - c[above, before] + c[i, j] - c[i, before])
        u[i] = (fit[0, i] + fit[1, j] + fit[2, i] * fit[3, j] if smooth else c[i, j]) - potential
        above, before = i, j


@part()
def _row_minima(c, v, column_of, key, pred, code, u, count):
    """Set u_i = min_j (c_ij - v_j) for about ``count`` rows; say whether most free ones of them attain it twice."""
    balance = 0
    for i in range(0, c.shape[0], c.shape[0] // count):
        u[i] = key[_scan_first(c, v, key, pred, code, 0.0, i) % TAKEN]
        times = 0
        for j in range(key.shape[0]):
            times += key[j] == u[i]
        if column_of[i] < 0:
            balance += 1 if times > 1 else -1
    return balance > 0


@part()
def _keep_tight(c, v, column_of, key, pred, code):
    """Drop the pairs that the potentials no longer support; count the rows that lose theirs."""
    free = 0
    for i in range(c.shape[0]):
        best = _scan_first(c, v, key, pred, code, 0.0, i) % TAKEN
        j = column_of[i]
        if c[i, j] - v[j] > key[best]:
            column_of[i] = -1
            free += 1
    return free


@part()
def _free_as_near(found, key, code):
    """The smallest code among the columns as near as the one found: a free column's, if one is among them."""
    low = key[found - TAKEN]
    for j in range(key.shape[0]):
        if key[j] == low:
            found = min(found, code[j])
    return found


@part()
def _augment(c, v, column_of, row_of, key, pred, code, open_v, scanned, distance, stop):
    """Give every free row a column along a shortest augmenting path; False where a row can have none."""
    patience = PATIENCE
    for start in range(c.shape[0]):
        if column_of[start] >= 0:
            continue
        if stop[0] != 0:
            return False
        found = _scan_first(c, v, key, pred, code, 0.0, start)
        if found >= TAKEN:
            count, stalls, low = 0, 0, -np.inf
            while found >= TAKEN:
                if found == NONE:
                    return False
                j = found - TAKEN
                stalls = stalls + 1 if key[j] == low else 0
                if stalls >= patience:
                    found = _free_as_near(found, key, code)
                    patience = PATIENCE if found >= TAKEN else 0
                    if found < TAKEN:
                        break
                low = key[j]
                scanned[count] = j
                distance[count] = low
                count += 1
                # An infinite key and potential take the column out of the search without a branch.
                key[j] = np.inf
                open_v[j] = -np.inf
                i = row_of[j]
                found = _scan_next(c, open_v, key, pred, code, low - (c[i, j] - v[j]), i)
            low = key[found]
            for k in range(count):
                j = scanned[k]
                v[j] += distance[k] - low
                open_v[j] = v[j]
        j = found
        code[j] = TAKEN + j
        while True:
            i = pred[j]
            row_of[j] = i
            previous = column_of[i]
            column_of[i] = j
            j = previous
            if i == start:
                break
    return True


@kernel
def assign(scores, cost, forbidden, steps, columns, first, last, stop, fit):
    """Solve instances first..last of ``scores`` (B, n, m), n <= m, for every step; write each row's column.

    ``cost`` and ``forbidden`` repeat along the batch with their own length (nothing forbidden: length 0). Return the
    index of an instance without a perfect matching, or -1. Once ``stop[0]`` is not zero, return soon, with no meaning.
    ``fit`` (4, n) is room for other starts than column reduction, or None: then the code for them is not compiled.
    """
    n, m = scores.shape[1:]
    width = (m + LANES - 1) // LANES * LANES
    square, masked = n == m, forbidden.shape[0] > 0
    c, floats, integers = np.empty((n, width)), np.empty((7, width)), np.empty((7, width), np.int64)
    v, open_v, trial_v, zero, key, distance, u = (
        floats[0], floats[1], floats[2], floats[3], floats[4], floats[5], floats[6],
    )  # fmt: skip
    code, pred, holder, row_of, scanned, column_of, trial_column_of = (
        integers[0], integers[1], integers[2], integers[3], integers[4], integers[5], integers[6],
    )  # fmt: skip
    order = np.empty((2, n), np.int64)
    for i in range(n):
        for j in range(m, width):
            c[i, j] = np.inf
    for j in range(width):
        v[j] = open_v[j] = zero[j] = 0.0
        code[j] = j if j < m else NONE
        pred[j] = holder[j] = 0
    for instance in range(first, last):
        best_start = PLAIN
        for s in range(steps.shape[0]):
            _load(c, scores, cost, instance, steps[s])
            if masked:
                _forbid(c, forbidden, instance)
            free = n
            start = best_start if best_start != EXACT else SMOOTH
            if not square:  # a column that stays free must keep a potential of zero: nothing to reduce or to keep
                for j in range(m):
                    v[j] = 0.0
                for i in range(n):
                    column_of[i] = -1
            else:
                if s > 0:
                    free = _keep_tight(c, v, column_of, key, pred, code)
                # A random matrix leaves n / e rows free; more than that is worth another start.
                enough = 0.4 * n
                while free > enough and start < ALL_TRIED and stop[0] == 0:
                    if start == PLAIN:
                        for i in range(n):
                            u[i] = 0.0
                    elif fit is not None:
                        if start == ROW_MINIMA:
                            _row_minima(c, zero, column_of, key, pred, code, u, n)
                        else:
                            if start == SMOOTH:
                                _rank_one(c, fit)
                                _sort(fit, order)
                            _monotone_rows(c, fit, order, start == SMOOTH, u)
                    left = _reduce_columns(c, u, trial_v, zero, holder, trial_column_of, m)
                    if left < free:
                        best_start = start
                        free = left
                        for j in range(width):
                            v[j] = trial_v[j]
                        for i in range(n):
                            column_of[i] = trial_column_of[i]
                    if fit is None:
                        break
                    # Where rows have several tight columns each, potentials that break the ties only make it harder.
                    if start == PLAIN and free > enough and _row_minima(c, v, column_of, key, pred, code, u, min(n, 8)):
                        break
                    start += 1
                    if (masked and start < ROW_MINIMA) or (start == EXACT and n < 48):
                        start = ROW_MINIMA
                    enough = (0.1 if start == EXACT else 0.4) * n
            if stop[0] != 0:  # perhaps before any start was made: there are no pairs to go on with
                return -1
            for j in range(m):
                code[j] = j
                open_v[j] = v[j]
                if v[j] == np.inf:
                    return instance
            for i in range(n):
                j = column_of[i]
                if j >= 0:
                    row_of[j] = i
                    code[j] = TAKEN + j
            if free > 0 and not _augment(c, v, column_of, row_of, key, pred, code, open_v, scanned, distance, stop):
                return instance
            if stop[0] != 0:
                return -1
            for i in range(n):
                columns[s, instance, i] = column_of[i]
    return -1
