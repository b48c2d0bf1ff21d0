"""The 0/1 knapsack by dynamic programming over the capacity: the kernel behind :class:`Knapsack`.

With ``best[c]`` the best sum of the items so far in capacity c, the next item is taken where
``best[c - weight] + score`` is larger than ``best[c]``. Eight capacities are one vector, and one byte says at which of
them the item is taken, so that all of it stays in the fastest cache. From the largest capacity down, sums can be
replaced in place.

Three facts make the programme smaller: items that cannot be in are left out; weights are divided by what they have in
common; and after an item only those capacities are asked for that the items behind it can leave.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from directloss.compiling import kernel, part

LANES = 8
# Bits that one instance may need, 1 GB of them.
MOST_BITS = 2**33
# Sums of weights stop here, before they overflow.
_ENDLESS = 2**60


@intrinsic
def _offer(_typing: Any, best: Any, bits: Any, to: Any, since: Any, byte: Any, score: Any) -> tuple[Any, Any]:
    """``best[to] = max(best[to], best[since] + score)`` for eight capacities; write where it grew as bits."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector, i32 = ir.VectorType(ir.DoubleType(), LANES), ir.IntType(32)
        sums, taken = (
            context.make_array(kind)(context, builder, array).data
            for kind, array in zip(signature.args[:2], args[:2], strict=True)
        )

        def place(index: Any) -> Any:
            return builder.bitcast(builder.gep(sums, [index]), vector.as_pointer())

        undefined = ir.Constant(vector, ir.Undefined)
        scores = builder.insert_element(undefined, args[5], ir.Constant(i32, 0))
        scores = builder.shuffle_vector(scores, undefined, ir.Constant(ir.VectorType(i32, LANES), [0] * LANES))
        old = builder.load(place(args[2]), align=8)
        new = builder.fadd(builder.load(place(args[3]), align=8), scores)
        grew = builder.fcmp_ordered(">", new, old)
        builder.store(builder.select(grew, new, old), place(args[2]), align=8)
        builder.store(builder.bitcast(grew, ir.IntType(8)), builder.gep(taken, [args[4]]))
        return context.get_dummy_value()

    return types.void(best, bits, types.int64, types.int64, types.int64, types.float64), emit


@part()
def _useful_items(scores, price, step, weights, capacity, item, weight, score):
    """List the items that could be in: a positive score, and a weight that fits. Return how many, and their weight."""
    count, total = 0, 0
    for k in range(len(scores)):
        value = np.float64(scores[k]) + step * np.float64(price[k])
        if value > 0.0 and weights[k] <= capacity:
            item[count], weight[count], score[count] = k, weights[k], value
            total = min(total + weights[k], _ENDLESS)
            count += 1
    return count, total


@part()
def _common_divisor(weight, count):
    divisor = 0
    for k in range(count):
        rest = weight[k]
        while rest:
            divisor, rest = rest, divisor % rest
        if divisor == 1:
            break
    return max(divisor, 1)


@part()
def _fill(best, bits, weight, score, count, room, left, y, item):
    """Solve one instance whose items do not all fit. ``left`` is their weight."""
    width = room // LANES + 1
    for c in range(LANES):
        best[c] = -np.inf  # below capacity zero
    for c in range(LANES, (width + 1) * LANES):
        best[c] = 0.0
    for k in range(count):
        left -= weight[k]
        low = max(weight[k], room - left) // LANES
        for block in range(width - 1, low - 1, -1):
            to = (block + 1) * LANES
            _offer(best, bits, to, to - weight[k], k * width + block, score[k])
    c = room
    for k in range(count - 1, -1, -1):
        if c >= weight[k] and bits[k * width + c // LANES] >> c % LANES & 1:
            y[item[k]] = 1
            c -= weight[k]


@kernel
def pack(scores, cost, steps, weights, capacities, y, first, last):
    """Solve the problems first..last, instances then steps; write ones into y (problems, n).

    Of tied sets the one without the last item on which they differ is written. ``cost``, ``weights`` and ``capacities``
    repeat along the batch with their own lengths. Return the first problem that is too large, or -1.
    """
    count, n = scores.shape
    item, weight, score = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n)
    best, bits = np.empty(0), np.empty(0, np.uint8)
    for problem in range(first, last):
        instance, step = problem % count, steps[problem // count]
        capacity = capacities[instance % len(capacities)]
        useful, total = _useful_items(
            scores[instance],
            cost[instance % len(cost)],
            step,
            weights[instance % len(weights)],
            capacity,
            item,
            weight,
            score,
        )
        if total <= capacity:
            for k in range(useful):
                y[problem, item[k]] = 1
            continue
        divisor = _common_divisor(weight, useful)
        for k in range(useful):
            weight[k] //= divisor
        room = capacity // divisor
        if room > MOST_BITS // useful:
            return problem
        width = room // LANES + 1
        if len(bits) < useful * width:
            bits = np.empty(useful * width, np.uint8)
        if len(best) < (width + 1) * LANES:
            best = np.empty((width + 1) * LANES)
        _fill(best, bits, weight, score, useful, room, total // divisor, y[problem], item)
    return -1
