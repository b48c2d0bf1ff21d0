"""Eight problems side by side: what the dynamic programmes over paths have in common.

A path's programme is a chain of additions and comparisons that no compiler vectorises. The same chain for eight
problems at once is one vector instruction each: number k of eight problems lies at ``LANES * k`` and the seven places
behind. A problem's lane decides nothing about its solution.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

LANES = 8

_compile = njit(nogil=True, cache=True)


@intrinsic
def relax(_typing: Any, value: Any, weight: Any, to: Any, since: Any, along: Any) -> tuple[Any, Any]:
    """``value[to] = max(value[to], value[since] + weight[along])`` in every lane; return a bit for each that grew."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = ir.VectorType(ir.DoubleType(), LANES)
        values, weights = (
            context.make_array(kind)(context, builder, array).data
            for kind, array in zip(signature.args[:2], args[:2], strict=True)
        )

        def place(pointer: Any, number: Any) -> Any:
            first = builder.mul(number, ir.Constant(ir.IntType(64), LANES))
            return builder.bitcast(builder.gep(pointer, [first]), vector.as_pointer())

        target = place(values, args[2])
        old = builder.load(target, align=8)
        new = builder.fadd(
            builder.load(place(values, args[3]), align=8), builder.load(place(weights, args[4]), align=8)
        )
        grew = builder.fcmp_ordered(">", new, old)
        builder.store(builder.select(grew, new, old), target, align=8)
        return builder.zext(builder.bitcast(grew, ir.IntType(LANES)), ir.IntType(64))

    return types.int64(value, weight, types.int64, types.int64, types.int64), emit


@_compile
def load(weight, places, entries, scores, cost, steps, block):
    """Write the weights of the problems of a block: entry ``entries[k]`` to place ``places[k]``.

    Problems count along the instances, then along the steps. The last block repeats its last problem. ``cost`` repeats
    along the batch with its own length.
    """
    count, period = scores.shape[0], cost.shape[0]
    for lane in range(LANES):
        problem = min(block * LANES + lane, count * steps.shape[0] - 1)
        instance, step = problem % count, steps[problem // count]
        price = instance % period
        for k in range(places.shape[0]):
            weight[places[k] * LANES + lane] = np.float64(scores[instance, entries[k]]) + step * np.float64(
                cost[price, entries[k]]
            )
