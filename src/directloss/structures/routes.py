"""All routes from a source to a target in a directed acyclic graph, laid out for a dynamic programme."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Routes:
    """The nodes and edges that lie on some route, nodes numbered in topological order: source 0, target last.

    The edges that arrive at node v are ``edges[arrivals[v]:arrivals[v + 1]]``, in the order in which they were given;
    ``tails`` are the nodes that they leave. If all routes have as many edges, ``slots`` says how many edges lie before
    the one that arrives at a node; otherwise it is empty.
    """

    edges: np.ndarray
    tails: np.ndarray
    arrivals: np.ndarray
    slots: np.ndarray

    @classmethod
    def between(cls, edges: np.ndarray, source: int, target: int) -> "Routes":
        """Raise ValueError if the graph has a cycle, or if no route leads from source to target."""
        names, numbers = np.unique(np.append(edges.ravel(), (source, target)), return_inverse=True)
        ends, (source, target) = numbers[:-2].reshape(-1, 2), numbers[-2:]
        order = _topological_order(ends, len(names), names)
        rank = np.empty(len(names), np.int64)
        rank[order] = np.arange(len(names))
        tails, heads = rank[ends[:, 0]], rank[ends[:, 1]]
        by_head = np.argsort(heads, kind="stable")
        depth = np.full(len(names), -1)  # the longest way from the source
        depth[rank[source]] = 0
        for edge in by_head:
            if depth[tails[edge]] >= 0:
                depth[heads[edge]] = max(depth[heads[edge]], depth[tails[edge]] + 1)
        leads = np.zeros(len(names), bool)  # to the target
        leads[rank[target]] = True
        for edge in np.argsort(-tails, kind="stable"):
            leads[tails[edge]] |= leads[heads[edge]]
        useful = leads & (depth >= 0)
        if not useful[rank[source]]:
            raise ValueError(
                f"target {names[target]} cannot be reached from source {names[source]}; "
                "add the edges that lead there, or turn those that point the other way"
            )
        number = np.cumsum(useful) - 1
        kept = np.array([edge for edge in by_head if useful[tails[edge]] and useful[heads[edge]]], np.int64)
        heads, tails, depth = number[heads[kept]], number[tails[kept]], depth[useful]
        arrivals = np.searchsorted(heads, np.arange(len(depth) + 1))
        graded = (depth[heads] == depth[tails] + 1).all()
        return cls(kept, tails, arrivals, depth - 1 if graded else np.empty(0, np.int64))

    @property
    def nodes(self) -> int:
        """How many nodes lie on routes."""
        return len(self.arrivals) - 1

    @property
    def graded(self) -> bool:
        """Whether all routes have as many edges."""
        return len(self.slots) > 0

    @property
    def depth(self) -> int:
        """How many edges each route has, if all have as many."""
        return int(self.slots[-1]) + 1

    def count(self) -> int:
        """How many routes there are."""
        ways = [1] + [0] * (self.nodes - 1)
        for v in range(1, self.nodes):
            ways[v] = sum(ways[tail] for tail in self.tails[self.arrivals[v] : self.arrivals[v + 1]])
        return ways[-1]

    def __iter__(self) -> Iterator[list[int]]:
        """Each route as the list of its edges, last edge first."""
        unfinished: list[tuple[int, list[int]]] = [(self.nodes - 1, [])]
        while unfinished:
            node, path = unfinished.pop()
            if node == 0:
                yield path
            arriving = range(self.arrivals[node], self.arrivals[node + 1])
            unfinished += [(int(self.tails[k]), [*path, int(self.edges[k])]) for k in arriving]


def _topological_order(ends: np.ndarray, nodes: int, names: np.ndarray) -> list[int]:
    """The nodes, each after those that lead to it. Raise ValueError if there is a cycle."""
    following: list[list[int]] = [[] for _ in range(nodes)]
    waiting = [0] * nodes
    for tail, head in ends.tolist():
        following[tail].append(head)
        waiting[head] += 1
    order = [node for node in range(nodes) if not waiting[node]]
    for node in order:
        for head in following[node]:
            waiting[head] -= 1
            if not waiting[head]:
                order.append(head)
    if len(order) < nodes:
        # Every node that still waits has one before it that waits too: going back ends in a cycle.
        before = {head: tail for tail, head in ends.tolist() if waiting[tail] and waiting[head]}
        seen: list[int] = []
        node = next(iter(before))
        while node not in seen:
            seen.append(node)
            node = before[node]
        cycle = [*reversed(seen[seen.index(node) :])]
        shown = " -> ".join(str(names[node]) for node in [*cycle, cycle[0]])
        raise ValueError(
            f"edges have a cycle, {shown}; a path in a directed acyclic graph is expected: remove one of them"
        )
    return order
