"""Best paths in a directed acyclic graph: the kernel behind :class:`Path`, for eight problems at a time (``lanes``)."""

import numpy as np
from numba import njit

from directloss.structures.kernels.lanes import LANES, load, relax


@njit(nogil=True, cache=True)
def best_paths(scores, cost, steps, edges, tails, arrivals, slots, positions, first, last):
    """Solve the blocks first..last of problems; write each path's edges to their slots.

    Nodes are numbered in topological order from the source, 0, to the target, the last one. The edges that arrive at
    node v are ``edges[arrivals[v]:arrivals[v + 1]]``, with their ``tails`` beside them; the edge that a path takes to v
    goes to slot ``slots[v]``. Of tied edges the first one is taken, from the target back.
    """
    nodes = len(slots)
    places = np.arange(len(edges))
    value, weight = np.empty(nodes * LANES), np.empty(len(edges) * LANES)
    for block in range(first, last):
        load(weight, places, edges, scores, cost, steps, block)
        value.fill(-np.inf)
        value[:LANES] = 0.0
        for v in range(1, nodes):
            for k in range(arrivals[v], arrivals[v + 1]):
                relax(value, weight, v, tails[k], k)
        for lane in range(min(LANES, len(positions) - block * LANES)):
            path = positions[block * LANES + lane]
            v = nodes - 1
            while v > 0:
                k = arrivals[v]
                while value[tails[k] * LANES + lane] + weight[k * LANES + lane] != value[v * LANES + lane]:
                    k += 1
                path[slots[v]] = edges[k]
                v = tails[k]
    return -1
