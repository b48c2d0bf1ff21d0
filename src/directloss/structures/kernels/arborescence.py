"""Best arborescences of batches: the numba kernel behind :class:`Arborescence`.

Chu-Liu-Edmonds in O(n^2), with Tarjan's path of nodes. From a word the kernel follows best heads. Where it reaches the
root or a finished word, the whole path is finished; where it meets the path again, the cycle becomes one node:

* The row of a node has the best weight from every *word* into it, and at which of its own words that edge arrives. The
  row of a cycle is the largest of its members' rows, each less the weight of the edge that its member had chosen: what
  is gained when an edge from outside replaces that one. Words inside are taken out (-inf). Columns are never merged, so
  that all loops run along rows.
* Fewer than 2 n rows are ever merged, hence O(n^2).

With a single root the column of the root is left out until all words are one node, which then takes its best edge from
the root. This is the limit of subtracting ever larger constants from the root scores (Stanojevic and Cohen 2021),
without the rounding. It is run only where the best tree of all has several roots.
"""

import numpy as np
from numba import njit

_UNSEEN, _ON_PATH, _FINISHED = 0, 1, 2

# Inlined, because passing an array to a compiled function costs two atomic operations.
_inline = njit(nogil=True, cache=True, inline="always")


@_inline
def _best(weight, base, first, n):
    """The first column with the largest weight of a row, from ``first`` on."""
    best, most = first, -np.inf
    for j in range(first, n + 1):
        if weight[base + j] > most:
            best, most = j, weight[base + j]
    return best


@_inline
def _load(row, price, step, n, width, weight):
    """Write the rows of one instance: ``weight[i * width + j]`` is the score of head j for word i."""
    for i in range(1, n + 1):
        base = i * width
        for j in range(n + 1):
            weight[base + j] = np.float64(row[i - 1, j]) + step * np.float64(price[i - 1, j])
        weight[base + i] = -np.inf


@_inline
def _merge(weight, arrival, base, own, offset, n):
    """Raise the row at ``base`` to the row at ``own`` less ``offset``, where that is larger."""
    for j in range(n + 1):
        gain = weight[own + j] - offset
        if gain > weight[base + j]:
            weight[base + j] = gain
            arrival[base + j] = arrival[own + j]


@_inline
def _chosen(node, n, width, weight, arrival, head, label, source, target):
    """Write down the edge that a node has chosen, and return its weight."""
    base, edge = node * width, label[node]
    if edge == node:  # a word: all edges arrive at itself
        for j in range(n + 1):
            arrival[base + j] = node
    source[edge], target[edge] = head[node], arrival[base + head[node]]
    return weight[base + head[node]]


@njit(nogil=True, cache=True)
def _tree(n, width, first, weight, arrival, head, owner, following, state, path, depth, label, up, source, target):
    """Write each word's head to ``source``; columns before ``first`` are left out until all words are one node."""
    for i in range(1, n + 1):
        head[i] = _best(weight, i * width, first, n)
        owner[i] = following[i] = label[i] = i
        state[i] = _UNSEEN
    owner[0], state[0] = 0, _FINISHED
    nodes, labels = n, n + 1
    for start in range(1, n + 1):
        if state[owner[start]] != _UNSEEN:
            continue
        path[0], depth[start], state[start] = start, 0, _ON_PATH
        size = 1
        while size > 0 and (nodes > 1 or first == 0):
            node = owner[head[path[size - 1]]]
            if state[node] == _UNSEEN:
                path[size], depth[node], state[node] = node, size, _ON_PATH
                size += 1
            elif state[node] == _FINISHED:
                for k in range(size):
                    state[path[k]] = _FINISHED
                size = 0
            else:
                base, begin = node * width, depth[node]
                offset = _chosen(node, n, width, weight, arrival, head, label, source, target)
                for j in range(n + 1):
                    weight[base + j] -= offset
                up[label[node]] = labels
                for k in range(begin + 1, size):
                    member = path[k]
                    offset = _chosen(member, n, width, weight, arrival, head, label, source, target)
                    _merge(weight, arrival, base, member * width, offset, n)
                    up[label[member]] = labels
                    # Two rings of words become one.
                    following[node], following[member] = following[member], following[node]
                word = node
                while True:
                    owner[word] = node
                    weight[base + word] = -np.inf
                    word = following[word]
                    if word == node:
                        break
                label[node] = labels
                head[node] = _best(weight, base, first, n)
                labels += 1
                nodes -= size - begin - 1
                size = begin + 1
    for node in range(1, n + 1):
        if owner[node] == node:
            if first > 0:
                head[node] = 0
            _chosen(node, n, width, weight, arrival, head, label, source, target)
    # The edge into a cycle replaces the one that its member had chosen; the other members keep theirs.
    for cycle in range(labels - 1, n, -1):
        member = target[cycle]
        while up[member] != cycle:
            member = up[member]
        source[member], target[member] = source[cycle], target[cycle]


@njit(nogil=True, cache=True)
def attach(scores, cost, lengths, single_root, steps, positions, first, last):
    """Write the position of each word's head, for instances first..last of ``scores`` (B, n, n + 1), to (T, B, n).

    ``cost`` and ``lengths`` repeat along the batch. Return -1.
    """
    most, width = scores.shape[1], scores.shape[2]
    weight, arrival = np.empty((most + 1) * width), np.empty((most + 1) * width, np.int64)
    head, owner, following = np.empty(width, np.int64), np.empty(width, np.int64), np.empty(width, np.int64)
    state, path, depth = np.empty(width, np.int64), np.empty(width, np.int64), np.empty(width, np.int64)
    label, up = np.empty(width, np.int64), np.empty(2 * width, np.int64)
    source, target = np.empty(2 * width, np.int64), np.empty(2 * width, np.int64)
    for instance in range(first, last):
        n = lengths[instance % lengths.shape[0]]
        row, price = scores[instance], cost[instance % cost.shape[0]]
        for s in range(steps.shape[0]):
            roots = 2
            for skipped in range(1 + single_root):
                if roots > 1:
                    _load(row, price, steps[s], n, width, weight)
                    _tree(
                        n, width, skipped, weight, arrival, head, owner, following, state, path, depth, label, up,
                        source, target,
                    )  # fmt: skip
                    roots = 0
                    for i in range(1, n + 1):
                        roots += source[i] == 0
            for i in range(n):
                positions[s, instance, i] = i * width + source[i + 1]
            for i in range(n, most):
                positions[s, instance, i] = i * width
    return -1
