"""A path in a directed acyclic graph."""

import operator
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from directloss import threads
from directloss.later import later
from directloss.parts import Vertices
from directloss.structures.arrays import scores_and_cost
from directloss.structures.base import Structure
from directloss.structures.routes import Routes

_kernels = later("directloss.structures.kernels.paths")
# Below this many edges to read, handing a part to another thread costs more than it gains.
_LEAST_WORK = 50_000


class Path(Structure):
    """A path from one node to another in a directed acyclic graph: a route, a schedule, a segmentation.

    ``*E`` is (E,), the edges in the order in which they are given; y is one on the edges of the path. Scores may have
    any sign. Of tied paths the one whose edges come first is taken, from the target back.

    Args:
        edges: (E, 2), whole numbers: from which node to which, in any order.
        source: the node that the path starts at.
        target: the node that it ends at. If it is the source, the only path is the empty one.

    Example:
        >>> import torch, directloss as dl
        >>> structure = dl.Path([[0, 1], [1, 3], [0, 2], [2, 3]], source=0, target=3)
        >>> structure.solve(torch.tensor([1.0, 1.0, 3.0, -2.0]))
        tensor([1., 1., 0., 0.])
    """

    entry_dims = 1
    proven = True

    def __init__(self, edges: Tensor | Sequence[Sequence[int]], source: int, target: int):
        self.edges = _check_edges(edges)
        self.source, self.target = _check_node("source", source), _check_node("target", target)
        self.routes = Routes.between(self.edges.cpu().numpy(), self.source, self.target)

    def _check_entries(self, entries: torch.Size) -> None:
        if entries[0] != len(self.edges):
            raise ValueError(
                f"scores have {entries[0]} entries, but there are {len(self.edges)} edges; one score for each"
            )

    def _maximize_along(self, parts: tuple[Tensor, ...], cost: Tensor, steps: Sequence[float]) -> tuple[Vertices, ...]:
        return (best_routes(self.routes, parts[0], cost, steps),)

    def _enumerate(self, parts: tuple[Tensor, ...]) -> tuple[Vertices, ...]:
        (scores,) = parts
        every = scores.new_zeros(self.routes.count(), len(scores))
        for index, path in enumerate(self.routes):
            every[index, path] = 1
        return (Vertices.of_dense(every, 1),)

    def _count(self, parts: tuple[Tensor, ...]) -> int:
        return self.routes.count()

    def __repr__(self) -> str:
        return f"Path({len(self.edges)} edges, source={self.source}, target={self.target})"


def best_routes(routes: Routes, scores: Tensor, cost: Tensor, steps: Sequence[float]) -> Vertices:
    """The best route for scores (..., E) and every step."""
    kernels = _kernels()
    batch, price = scores_and_cost(scores, cost, 1)
    at = np.asarray(steps, np.float64)
    problems = len(steps) * len(batch)
    if routes.graded:
        paths = np.empty((problems, routes.depth), np.int64)
    else:
        paths = np.zeros((problems, batch.shape[1]), batch.dtype)

    def work(first: int, last: int) -> int:
        graph = (routes.edges, routes.tails, routes.arrivals, routes.slots)
        return int(kernels.best_paths(batch, price, at, *graph, paths, first, last))

    least = _LEAST_WORK // (kernels.LANES * max(1, len(routes.edges)))
    threads.split(work, -(-problems // kernels.LANES), least=least)
    found = torch.from_numpy(paths.reshape(len(steps), *scores.shape[:-1], paths.shape[1]))
    found = found if scores.is_cpu else found.to(scores.device)
    return Vertices(scores.shape[-1:], *((found, None) if routes.graded else (None, found)))


def _check_edges(edges: Tensor | Sequence[Sequence[int]]) -> Tensor:
    found = torch.as_tensor(edges)
    if found.numel() == 0 and found.dim() <= 2:
        return found.new_empty((0, 2), dtype=torch.int64)
    if found.is_floating_point() or found.is_complex() or found.dtype == torch.bool:
        raise TypeError(f"edges are {found.dtype}, expected whole numbers: the nodes that each edge leaves and reaches")
    if found.dim() != 2 or found.shape[1] != 2:
        raise ValueError(f"edges have shape {tuple(found.shape)}, expected (E, 2): from which node to which")
    if (found < 0).any():
        where = int((found < 0).any(-1).nonzero()[0])
        raise ValueError(f"edge {where} is {found[where].tolist()}; nodes are numbered from 0")
    return found.to(torch.int64)


def _check_node(name: str, node: int) -> int:
    try:
        return operator.index(node)
    except TypeError:
        raise TypeError(f"{name} is {node!r}, expected the number of a node") from None
