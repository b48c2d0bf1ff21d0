"""Best paths over the cells of a grid, from the first to the last: the kernel behind :class:`GridPath`.

Let ``value[v]`` be the best sum of a path to cell v. Monotone moves have an order, and one pass over the rows is their
dynamic programme. Moves that may return have none: passes down and up take turns until nothing grows, and a row is
passed again only after the row before it has grown. Scores are not positive, so no cycle gains and the values settle;
every addition is monotone in floating-point numbers too, so they settle exactly. That is Dijkstra's fixed point without
his queue, for eight problems at a time (``lanes``); a path that turns often needs more passes.

A border of minus infinity around the grid spares all questions about its edge.
"""

import numpy as np
from numba import njit

from directloss.structures.kernels.lanes import LANES, load, relax

_compile = njit(nogil=True, cache=True)


@_compile
def inner_cells(rows, columns):
    """Each cell's place in the grid with its border."""
    places = np.empty(rows * columns, np.int64)
    for i in range(rows):
        for j in range(columns):
            places[i * columns + j] = (i + 1) * (columns + 2) + j + 1
    return places


@_compile
def monotone_paths(scores, cost, steps, rows, columns, positions, first, last):
    """Solve the blocks first..last of problems, moving right or down; write the cells of each path in their order.

    Of tied paths the one that comes from above is written, seen from the last cell.
    """
    width, places = columns + 2, inner_cells(rows, columns)
    entries = np.arange(rows * columns)
    value, weight = np.empty((rows + 2) * width * LANES), np.zeros((rows + 2) * width * LANES)
    for block in range(first, last):
        load(weight, places, entries, scores, cost, steps, block)
        value.fill(-np.inf)
        value[1 * LANES : 2 * LANES] = 0.0  # above the first cell
        for cell in places:
            relax(value, weight, cell, cell - width, cell)
            relax(value, weight, cell, cell - 1, cell)
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


@_compile
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


@_compile
def _pass_row(value, weight, start, columns, before, diagonal):
    """Let paths enter a row from the row ``before`` places away, and go on along it both ways; whether they gained."""
    grew = 0
    for cell in range(start, start + columns):
        grew |= relax(value, weight, cell, cell + before, cell)
        if diagonal:
            grew |= relax(value, weight, cell, cell + before - 1, cell)
            grew |= relax(value, weight, cell, cell + before + 1, cell)
        grew |= relax(value, weight, cell, cell - 1, cell)
    for cell in range(start + columns - 2, start - 1, -1):
        grew |= relax(value, weight, cell, cell + 1, cell)
    return grew != 0


@_compile
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


@_compile
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


@_compile
def cyclic_paths(scores, cost, steps, rows, columns, moves, y, first, last):
    """Solve the blocks first..last of problems; ``moves`` lead to 4 or 8 places beside a cell. Write ones into y.

    Return the first problem with a positive score, or -1.
    """
    width, places = columns + 2, inner_cells(rows, columns)
    size = (rows + 2) * width
    entries = np.arange(rows * columns)
    value, weight = np.empty(size * LANES), np.zeros(size * LANES)
    grown, passed = np.empty(rows + 2, np.int64), np.empty((2, rows + 2), np.int64)
    following, queue = np.empty(size, np.int64), np.empty(size, np.int64)
    begin, end = places[0], places[-1]
    for block in range(first, last):
        load(weight, places, entries, scores, cost, steps, block)
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
