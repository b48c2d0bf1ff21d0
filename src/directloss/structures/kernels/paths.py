"""Best paths over grids and in directed acyclic graphs: the kernels behind :class:`GridPath` and :class:`Path`.

A path's dynamic programme is a chain of additions and comparisons that no compiler vectorises. The same chain for eight
problems at once is one vector instruction each: number k of eight problems lies at ``LANES * k`` and the seven places
behind. A problem's lane decides nothing about its solution.

Let ``value[v]`` be the best sum of a path to v. Without cycles there is an order, and one pass is the whole programme.
Moves over a grid that may return have none: passes down and up take turns until nothing grows, and a row is passed
again only after the row before it has grown. Scores are not positive there, so no cycle gains and the values settle;
every addition is monotone in floating-point numbers too, so they settle exactly. That is Dijkstra's fixed point without
his queue; a path that turns often needs more passes. A border of minus infinity around a grid spares all questions
about its edge.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from directloss.compiling import kernel, part

LANES = 8


@intrinsic
def _relax(_typing: Any, value: Any, weight: Any, to: Any, since: Any, along: Any) -> tuple[Any, Any]:
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


@part()
def _load(weight, places, entries, scores, cost, steps, block):
    """Write the weights of the problems of a block: entry ``entries[k]`` to place ``places[k]``.

    Problems count along the instances, then along the steps. The last block repeats its last problem. ``cost`` repeats
    along the batch with its own length.
    """
    count, period = scores.shape[0], cost.shape[0]
    for lane in range(LANES):
        problem = min(block * LANES + lane, count * steps.shape[0] - 1)
        instance, step = problem % count, steps[problem // count]
        score, price = scores[instance], cost[instance % period]
        if step == 0.0:
            for k in range(places.shape[0]):
                weight[places[k] * LANES + lane] = score[entries[k]]
        else:
            for k in range(places.shape[0]):
                weight[places[k] * LANES + lane] = np.float64(score[entries[k]]) + step * np.float64(price[entries[k]])


@part()
def _inner_cells(rows, columns):
    """Each cell's place in the grid with its border."""
    places = np.empty(rows * columns, np.int64)
    for i in range(rows):
        for j in range(columns):
            places[i * columns + j] = (i + 1) * (columns + 2) + j + 1
    return places


@kernel
def monotone_paths(scores, cost, steps, rows, columns, positions, first, last):
    """Solve the blocks first..last of problems, moving right or down; write the cells of each path in their order.

    Of tied paths the one that comes from above is written, seen from the last cell.
    """
    width, places = columns + 2, _inner_cells(rows, columns)
    entries = np.arange(rows * columns)
    value, weight = np.empty((rows + 2) * width * LANES), np.zeros((rows + 2) * width * LANES)
    for block in range(first, last):
        _load(weight, places, entries, scores, cost, steps, block)
        value.fill(-np.inf)
        value[1 * LANES : 2 * LANES] = 0.0  # above the first cell
        for cell in places:
            _relax(value, weight, cell, cell - width, cell)
            _relax(value, weight, cell, cell - 1, cell)
        value[1 * LANES : 2 * LANES] = -np.inf
        for lane in range(min(LANES, len(positions) - block * LANES)):
            path = positions[block * LANES + lane]
            i, j = rows, columns
            for k in range(rows + columns - 2, -1, -1):
                path[k] = (i - 1) * columns + j - 1
                cell = i * width + j
                if value[(cell - 1) * LANES + lane] > value[(cell - width) * LANES + lane]:
                    j -= 1
                else:
                    i -= 1
    return -1


@part()
def _first_positive(weight):
    """The first lane with a positive number, or -1."""
    count = 0
    for k in range(len(weight)):
        count += weight[k] > 0.0
    lane = LANES if count else -1
    for k in range(len(weight) if count else 0):
        if weight[k] > 0.0:
            lane = min(lane, k % LANES)
    return lane


@part()
def _pass_row(value, weight, start, columns, before, diagonal):
    """Let paths enter a row from the row ``before`` places away, and go on along it both ways; whether they gained."""
    grew = 0
    for cell in range(start, start + columns):
        grew |= _relax(value, weight, cell, cell + before, cell)
        if diagonal:
            grew |= _relax(value, weight, cell, cell + before - 1, cell)
            grew |= _relax(value, weight, cell, cell + before + 1, cell)
        grew |= _relax(value, weight, cell, cell - 1, cell)
    for cell in range(start + columns - 2, start - 1, -1):
        grew |= _relax(value, weight, cell, cell + 1, cell)
    return grew != 0


@part()
def _settle(value, weight, rows, columns, diagonal, grown, passed):
    """Pass rows down and up until no value grows. ``grown`` and ``passed`` are clocks of the rows, in turn."""
    width = columns + 2
    grown.fill(0)
    passed.fill(0)
    clock = 1
    grown[1] = clock
    _pass_row(value, weight, width + 1, columns, -width, diagonal)  # nothing is above: only along the first row
    moving = True
    while moving:
        moving = False
        for way, begin, end, step in ((0, 2, rows + 1, 1), (1, rows - 1, 0, -1)):
            for i in range(begin, end, step):
                if grown[i - step] > passed[way, i]:
                    clock += 1
                    passed[way, i] = clock
                    if _pass_row(value, weight, i * width + 1, columns, -step * width, diagonal):
                        grown[i] = clock
                        moving = True


@part()
def _trace(value, weight, lane, begin, end, moves, following, queue):
    """Search breadth first from the end, along moves that attain the values: ``following`` leads from begin to end.

    The search ends even where scores of zero tie cells with each other, and finds the fewest cells among ties.
    """
    following.fill(-1)
    following[end] = end
    queue[0] = end
    read, written = 0, 1
    while following[begin] < 0:
        cell = queue[read]
        read += 1
        for move in moves:
            other = cell + move
            if following[other] < 0:
                reached = value[other * LANES + lane] + weight[cell * LANES + lane]
                if reached == value[cell * LANES + lane]:
                    following[other] = cell
                    queue[written] = other
                    written += 1


@kernel
def cyclic_paths(scores, cost, steps, rows, columns, moves, y, first, last):
    """Solve the blocks first..last of problems; ``moves`` lead to 4 or 8 places beside a cell. Write ones into y.

    Return the first problem with a positive score, or -1.
    """
    width, places = columns + 2, _inner_cells(rows, columns)
    size = (rows + 2) * width
    entries = np.arange(rows * columns)
    value, weight = np.empty(size * LANES), np.zeros(size * LANES)
    grown, passed = np.empty(rows + 2, np.int64), np.empty((2, rows + 2), np.int64)
    following, queue = np.empty(size, np.int64), np.empty(size, np.int64)
    begin, end = places[0], places[-1]
    for block in range(first, last):
        _load(weight, places, entries, scores, cost, steps, block)
        lane = _first_positive(weight)
        if lane >= 0:
            return min(block * LANES + lane, len(y) - 1)
        value.fill(-np.inf)
        for lane in range(begin * LANES, (begin + 1) * LANES):
            value[lane] = weight[lane]
        _settle(value, weight, rows, columns, len(moves) == 8, grown, passed)
        for lane in range(min(LANES, len(y) - block * LANES)):
            _trace(value, weight, lane, begin, end, moves, following, queue)
            structure, cell = y[block * LANES + lane], begin
            while True:
                structure[(cell // width - 1) * columns + cell % width - 1] = 1
                if cell == end:
                    break
                cell = following[cell]
    return -1


@kernel
def best_paths(scores, cost, steps, edges, tails, arrivals, slots, paths, first, last):
    """Solve the blocks first..last of problems; write each path's edges to their slots, or, without slots, ones.

    Nodes are numbered in topological order from the source, 0, to the target, the last one. The edges that arrive at
    node v are ``edges[arrivals[v]:arrivals[v + 1]]``, with their ``tails`` beside them; the edge that a path takes to v
    goes to slot ``slots[v]``. Of tied edges the first one is taken, from the target back.
    """
    nodes = len(arrivals) - 1
    places = np.arange(len(edges))
    value, weight = np.empty(nodes * LANES), np.empty(len(edges) * LANES)
    for block in range(first, last):
        _load(weight, places, edges, scores, cost, steps, block)
        value.fill(-np.inf)
        value[:LANES] = 0.0
        for v in range(1, nodes):
            for k in range(arrivals[v], arrivals[v + 1]):
                _relax(value, weight, v, tails[k], k)
        for lane in range(min(LANES, len(paths) - block * LANES)):
            path = paths[block * LANES + lane]
            v = nodes - 1
            while v > 0:
                k = arrivals[v]
                while value[tails[k] * LANES + lane] + weight[k * LANES + lane] != value[v * LANES + lane]:
                    k += 1
                if len(slots):
                    path[slots[v]] = edges[k]
                else:
                    path[edges[k]] = 1
                v = tails[k]
    return -1
