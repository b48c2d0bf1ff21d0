"""Best spanning trees of batches: the numba kernels behind :class:`SpanningTree`.

Both only compare weights ``scores + step * cost``, so that they are exact, and both break ties by the edges' order, the
first edge first. Under that order the best tree is unique, and so both return the same one.

* ``grow`` is Prim's algorithm for the complete graph, with its n (n - 1) / 2 edges in the order (0, 1), (0, 2), ...;
  it scans the nodes outside of the tree, and so reads each edge once.
* ``join`` is Boruvka's algorithm for a list of edges: in each round every component takes its best edge out. Rounds are
  at most log2(n), and edges inside of a component are dropped on the way. It needs no sort, as Kruskal's does.
"""

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def grow(scores, cost, steps, positions, first, last):
    """Write the edges of the best tree of instances first..last: slot v - 1 has the edge from node v towards node 0.

    ``scores`` are (B, E) and ``positions`` (T, B, n - 1); ``cost`` repeats along the batch with its own length.
    """
    n = positions.shape[2] + 1
    # before[i] + j is the position of the edge (i, j).
    before = np.empty(n, np.int64)
    for i in range(n):
        before[i] = i * (2 * n - i - 1) // 2 - i - 1
    outside, edge, key = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n)
    for instance in range(first, last):
        period = instance % cost.shape[0]
        for s in range(steps.shape[0]):
            step = steps[s]
            for k in range(n - 1):
                outside[k] = k + 1
                edge[k] = 0
                key[k] = -np.inf
            node, left = 0, n - 1
            while left > 0:
                best, low, best_edge = 0, -np.inf, 0
                for k in range(left):
                    other = outside[k]
                    at = before[min(node, other)] + max(node, other)
                    weight = np.float64(scores[instance, at])
                    if step != 0.0:
                        weight += step * np.float64(cost[period, at])
                    if weight > key[k] or (weight == key[k] and at < edge[k]):
                        key[k] = weight
                        edge[k] = at
                    if key[k] > low or (key[k] == low and edge[k] < best_edge):
                        best, low, best_edge = k, key[k], edge[k]
                node = outside[best]
                positions[s, instance, node - 1] = best_edge
                left -= 1
                outside[best], edge[best], key[best] = outside[left], edge[left], key[left]
    return -1


@njit(nogil=True, cache=True)
def join(scores, cost, edges, nodes, steps, positions, first, last):
    """Write the edges of the best tree of instances first..last in rising order.

    ``edges`` (P, E, 2) and ``nodes`` (P,) repeat along the batch, and so does ``cost``. Return an
    instance whose graph is not connected, or -1.
    """
    size, most = scores.shape[1], positions.shape[2] + 1
    weight, active, taken = np.empty(size), np.empty(size, np.int64), np.empty(size, np.bool_)
    component, best, parent = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    for instance in range(first, last):
        graph = edges[instance % edges.shape[0]]
        n = nodes[instance % nodes.shape[0]]
        period = instance % cost.shape[0]
        for s in range(steps.shape[0]):
            for e in range(size):
                weight[e] = np.float64(scores[instance, e]) + steps[s] * np.float64(cost[period, e])
                taken[e] = False
                active[e] = e
            for v in range(n):
                component[v] = v
            left, components = size, n
            while components > 1:
                for v in range(n):
                    best[v] = -1
                    parent[v] = v
                kept = 0
                for k in range(left):
                    e = active[k]
                    a, b = component[graph[e, 0]], component[graph[e, 1]]
                    if a != b:
                        active[kept] = e
                        kept += 1
                        # Edges come in rising order, so a strict comparison keeps the first of those that tie.
                        if best[a] < 0 or weight[e] > weight[best[a]]:
                            best[a] = e
                        if best[b] < 0 or weight[e] > weight[best[b]]:
                            best[b] = e
                left = kept
                if left == 0:
                    return instance
                for v in range(n):
                    e = best[v]
                    if e >= 0 and not taken[e]:
                        taken[e] = True
                        components -= 1
                        a, b = component[graph[e, 0]], component[graph[e, 1]]
                        while parent[a] != a:
                            parent[a] = parent[parent[a]]
                            a = parent[a]
                        while parent[b] != b:
                            parent[b] = parent[parent[b]]
                            b = parent[b]
                        parent[b] = a
                for v in range(n):
                    a = component[v]
                    while parent[a] != a:
                        a = parent[a]
                    component[v] = a
            slot = 0
            for e in range(size):
                if taken[e]:
                    positions[s, instance, slot] = e
                    slot += 1
            while slot < most - 1:
                positions[s, instance, slot] = 0
                slot += 1
    return -1
