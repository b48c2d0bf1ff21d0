"""Spanning trees of an undirected graph."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from directloss import threads
from directloss.parts import Vertices
from directloss.structures.arrays import instances, place, repeating
from directloss.structures.base import Structure
from directloss.structures.partition import log_sum_of_trees, never, only_first

# Below this much work (instances x edges) handing a part to another thread costs more than it gains.
_LEAST_WORK = 50_000


class SpanningTree(Structure):
    """Trees that connect all nodes of an undirected graph: clusters, cables, skeletons. ``*E`` is (edges,).

    Among trees of equal score it takes the one whose edges come first.

    Args:
        edges: (E, 2) whole numbers, the two nodes of every edge; nodes are numbered from 0. Graphs that differ between
            instances have batch axes first. Without edges the graph is complete, with the edges (0, 1), (0, 2), ...,
            (1, 2), ..., and the number of scores, n (n - 1) / 2, says how many nodes there are.

    Example:
        >>> import torch, directloss as dl
        >>> dl.SpanningTree().solve(torch.tensor([3.0, 1.0, 2.0]))  # the edges 0-1, 0-2, 1-2
        tensor([1., 0., 1.])
    """

    entry_dims = 1
    data: ClassVar = {"edges": 2}
    proven = True
    summable = True

    def __init__(self, edges: Tensor | None = None):
        if edges is not None:
            _check_edges(edges)
        self.edges = edges
        self._validate_values()

    def _validate(self) -> None:
        if self.edges is None or not self.edges.numel():
            return
        if (self.edges < 0).any():
            raise ValueError(f"edges have a node {int(self.edges.min())}; nodes are numbered from 0")
        batch, own = self.edges.shape[:-2], self.edges.shape[-2:-1]
        _join(torch.zeros(*batch, *own, dtype=torch.float64), torch.zeros(own, dtype=torch.float64), self.edges, (0.0,))

    def _check_entries(self, entries: torch.Size) -> None:
        if self.edges is None:
            _nodes_of_complete(entries[0])
        elif self.edges.shape[-2] != entries[0]:
            raise ValueError(
                f"scores have {entries[0]} entries, but the graph has {self.edges.shape[-2]} edges; give one score for "
                "each edge"
            )

    def _maximize_along(self, parts: tuple[Tensor, ...], cost: Tensor, steps: Sequence[float]) -> tuple[Vertices, ...]:
        (scores,) = parts
        return (_grow(scores, cost, steps) if self.edges is None else _join(scores, cost, self.edges, steps),)

    def _log_partition(self, parts: tuple[Tensor, ...]) -> Tensor:
        (scores,) = parts
        graph = self._one_graph(scores.shape[-1]) if self.edges is None else self.edges
        nodes = graph.amax((-2, -1)) + 1
        weights = _weights(scores, graph.to(scores.device), int(nodes.max()))
        # The first node is the root of every tree.
        return log_sum_of_trees(only_first(weights[..., 1:, :], nodes - 1 if nodes.dim() else None))

    def _enumerate(self, parts: tuple[Tensor, ...]) -> tuple[Vertices, ...]:
        (scores,) = parts
        graph = self._one_graph(len(scores))
        nodes = _nodes(graph)
        # All forests over the edges so far: the component of every node, and which edges they have.
        component, taken = (
            torch.arange(nodes, device="cpu").unsqueeze(0),
            torch.empty(1, 0, dtype=torch.bool, device="cpu"),
        )
        for rest, (a, b) in enumerate(graph.tolist()):
            joins = component[:, a] != component[:, b]
            joined = component[joins]
            joined = torch.where(joined == joined[:, b : b + 1], joined[:, a : a + 1], joined)
            component = torch.cat([component, joined])
            taken = torch.cat([_with_edge(taken, False), _with_edge(taken[joins], True)])
            # A forest that lacks more edges than there are left cannot become a tree.
            possible = taken.sum(1) + len(graph) - 1 - rest >= nodes - 1
            component, taken = component[possible], taken[possible]
        positions = taken.nonzero()[:, 1].reshape(len(taken), nodes - 1)
        return (Vertices(scores.shape, positions.to(scores.device), None),)

    def _count(self, parts: tuple[Tensor, ...]) -> int:
        size = len(parts[0])
        if self.edges is None:
            nodes = _nodes_of_complete(size)
            return int(nodes ** max(0, nodes - 2))  # Cayley
        graph = self._one_graph(size)
        nodes = _nodes(graph)
        laplacian = [[0] * nodes for _ in range(nodes)]
        for a, b in graph.tolist():
            if a != b:
                laplacian[a][a] += 1
                laplacian[b][b] += 1
                laplacian[a][b] -= 1
                laplacian[b][a] -= 1
        return _determinant([row[1:] for row in laplacian[1:]])  # Kirchhoff

    def _one_graph(self, size: int) -> Tensor:
        """The edges of one instance, (E, 2)."""
        if self.edges is None:
            nodes = _nodes_of_complete(size)
            return torch.triu_indices(nodes, nodes, offset=1).mT
        return self.edges.reshape(size, 2).cpu()


def _check_edges(edges: Any) -> None:
    if not isinstance(edges, Tensor) or edges.is_floating_point() or edges.dtype == torch.bool:
        got = edges.dtype if isinstance(edges, Tensor) else type(edges).__name__
        raise TypeError(f"edges are {got}, expected a tensor of whole numbers, the two nodes of every edge")
    if edges.dim() < 2 or edges.shape[-1] != 2:
        raise ValueError(f"edges have shape {tuple(edges.shape)}, expected (E, 2), the two nodes of every edge")


def _nodes_of_complete(size: int) -> int:
    nodes = (1 + math.isqrt(1 + 8 * size)) // 2
    if nodes * (nodes - 1) // 2 != size:
        raise ValueError(
            f"scores have {size} entries, but a complete graph has n (n - 1) / 2 edges, for {nodes} nodes "
            f"{nodes * (nodes - 1) // 2}, for {nodes + 1} nodes {nodes * (nodes + 1) // 2}; other graphs need edges="
        )
    return nodes


def _nodes(graph: Tensor) -> int:
    return int(graph.max()) + 1 if graph.numel() else 1


def _grow(scores: Tensor, cost: Tensor, steps: Sequence[float]) -> Vertices:
    """The best trees of a complete graph."""
    from directloss.structures.kernels.spanning import grow

    batch, size = scores.shape[:-1], scores.shape[-1]
    weights, prices = instances(scores, 1), repeating(cost, batch, (size,))
    positions = np.empty((len(steps), len(weights), _nodes_of_complete(size) - 1), np.int64)
    at = np.asarray(steps, np.float64)
    threads.split(
        lambda first, last: int(grow(weights, prices, at, positions, first, last)), len(weights), _LEAST_WORK // size
    )
    found = torch.from_numpy(positions).reshape(len(steps), *batch, -1).to(scores.device)
    return Vertices(scores.shape[-1:], found, None)


def _join(scores: Tensor, cost: Tensor, edges: Tensor, steps: Sequence[float]) -> Vertices:
    """The best trees of graphs given by their edges."""
    from directloss.structures.kernels.spanning import join

    batch, size = scores.shape[:-1], scores.shape[-1]
    weights, prices = instances(scores, 1), repeating(cost, batch, (size,))
    graph = repeating(edges, batch, (size, 2)).astype(np.int64, copy=False)
    nodes = graph.max((1, 2)) + 1
    positions = np.empty((len(steps), len(weights), nodes.max() - 1), np.int64)
    at = np.asarray(steps, np.float64)

    def work(first: int, last: int) -> int:
        return int(join(weights, prices, graph, nodes, at, positions, first, last))

    apart = max(threads.split(work, len(weights), _LEAST_WORK // size))
    if apart >= 0:
        raise ValueError(
            f"the graph of instance {place(apart, batch)} is not connected, so that it has no spanning tree; its "
            f"{nodes[apart % len(nodes)]} nodes, 0 to the largest in edges, must all be reached"
        )
    found = torch.from_numpy(positions).reshape(len(steps), *batch, -1).to(scores.device)
    values = None
    if nodes.min() < nodes.max():
        kept = np.arange(nodes.max() - 1) < np.resize(nodes, len(weights))[:, None] - 1
        values = torch.from_numpy(kept).to(scores).reshape(*batch, -1).expand_as(found)
    return Vertices(scores.shape[-1:], found, values)


def _weights(scores: Tensor, graph: Tensor, nodes: int) -> Tensor:
    """The scores (..., E) as a symmetric matrix (..., nodes, nodes); those of parallel edges are added, as weights."""
    ends = torch.cat([graph, graph.flip(-1)], -2)
    where = Vertices.of_coordinates((nodes, nodes), ends[..., 0], ends[..., 1]).slots
    where = where.expand(*scores.shape[:-1], where.shape[-1])
    both = torch.cat([scores, scores], -1)
    lowest = both.new_full((*both.shape[:-1], nodes * nodes), never(both.dtype))
    largest = lowest.scatter_reduce(-1, where, both.detach(), "amax")
    sums = torch.zeros_like(lowest).scatter_add(-1, where, (both - largest.gather(-1, where)).exp())
    weights = torch.where(sums > 0, sums, 1.0).log() + largest
    return weights.reshape(*weights.shape[:-1], nodes, nodes)


def _with_edge(taken: Tensor, value: bool) -> Tensor:
    return torch.nn.functional.pad(taken, (0, 1), value=value)


def _determinant(matrix: list[list[int]]) -> int:
    """Of whole numbers with positive leading minors, exactly: Bareiss's elimination, whose divisions leave no rest."""
    before = 1
    for k, pivots in enumerate(matrix):
        for row in matrix[k + 1 :]:
            for j in range(len(matrix) - 1, k - 1, -1):
                row[j] = (row[j] * pivots[k] - row[k] * pivots[j]) // before
        before = pivots[k]
    return before
