"""A path over a grid, from its first cell to its last."""

import math
import operator
from collections.abc import Sequence
from itertools import combinations
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from directloss import threads
from directloss.parts import Vertices
from directloss.structures.arrays import place, scores_and_cost
from directloss.structures.base import Structure
from directloss.structures.path import best_routes
from directloss.structures.routes import Routes
from directloss.structures.simplepaths import simple_paths

# Below this many cells to read, handing a part to another thread costs more than it gains.
_LEAST_WORK = 20_000


class GridPath(Structure):
    """A path from the first cell of a grid to its last: routes over a map.

    ``*E`` is (r, c), and y is one at every cell that the path visits, the first and the last included. With ``shape``
    the entries are edges instead, (edges,): for each row its c - 1 edges to the right, then its c edges down (the last
    row has none), and y is one on those that the path takes.

    Paths that may return (4 or 8 neighbours) visit no cell twice. They take no positive scores, because the best path
    would wander from gain to gain: score cells by what they cost, negated. Noise must then keep the sign
    (``dl.perturb(..., multiplicative=True)``).

    Of tied paths the one that comes from above is taken, seen from the last cell; with 4 or 8 neighbours one that
    visits the fewest cells.

    Args:
        moves: "monotone" (right or down), or to any of 4 or 8 neighbours.
        shape: (r, c), if edges are scored (monotone moves only).

    Example:
        >>> import torch, directloss as dl
        >>> dl.GridPath(8).solve(-torch.tensor([[1.0, 1.0, 9.0], [9.0, 9.0, 1.0], [9.0, 9.0, 1.0]]))
        tensor([[1., 1., 0.],
                [0., 0., 1.],
                [0., 0., 1.]])
    """

    proven = True

    def __init__(self, moves: Literal["monotone", 4, 8] = "monotone", shape: Sequence[int] | None = None):
        if moves not in ("monotone", 4, 8):
            raise ValueError(f"moves is {moves!r}, expected 'monotone' (right or down), 4 or 8 neighbours")
        self.moves = moves
        self.nonpositive = moves != "monotone"
        self.entry_dims = 2 if shape is None else 1
        self.shape = None if shape is None else _check_shape(shape)
        if self.shape is not None:
            if moves != "monotone":
                raise ValueError(
                    f"moves is {moves} and shape is {self.shape}: edges are scored with monotone moves only; leave out "
                    "shape and score the cells, or use dl.Path with edges of your own"
                )
            self.routes = Routes.between(_grid_edges(*self.shape), 0, math.prod(self.shape) - 1)

    def _check_entries(self, entries: torch.Size) -> None:
        if self.shape is None:
            if min(entries) < 1:
                raise ValueError(f"scores have entries of shape {tuple(entries)}; expected (r, c) with r, c >= 1")
            return
        rows, columns = self.shape
        edges = rows * (columns - 1) + (rows - 1) * columns
        if entries[0] != edges:
            raise ValueError(
                f"scores have {entries[0]} entries, but a grid of {rows} x {columns} cells has {edges} edges to the "
                "right and down; one score for each (leave out shape to score cells)"
            )

    def _maximize_along(self, parts: tuple[Tensor, ...], cost: Tensor, steps: Sequence[float]) -> tuple[Vertices, ...]:
        (scores,) = parts
        if self.shape is not None:
            return (best_routes(self.routes, scores, cost, steps),)
        solve = _monotone if self.moves == "monotone" else self._cyclic
        return (solve(scores, cost, steps),)

    def _cyclic(self, scores: Tensor, cost: Tensor, steps: Sequence[float]) -> Vertices:
        from directloss.structures.kernels.paths import LANES, cyclic_paths

        (rows, columns), (batch, price) = scores.shape[-2:], scores_and_cost(scores, cost, 2)
        at = np.asarray(steps, np.float64)
        y = np.zeros((len(steps) * len(batch), rows * columns), batch.dtype)
        width = columns + 2  # with a border
        neighbours = np.array([-1, -width, 1, width, -width - 1, -width + 1, width - 1, width + 1][: int(self.moves)])

        def work(first: int, last: int) -> int:
            return int(cyclic_paths(batch, price, at, rows, columns, neighbours, y, first, last))

        least = _LEAST_WORK // (LANES * rows * columns)
        positive = [problem for problem in threads.split(work, -(-len(y) // LANES), least=least) if problem >= 0]
        if positive:
            step, instance = divmod(min(positive), len(batch))
            raise ValueError(self._positive(place(instance, scores.shape[:-2]), steps[step]))
        values = torch.from_numpy(y).reshape(len(steps), *scores.shape[:-2], rows * columns)
        return Vertices(scores.shape[-2:], None, values.to(scores.device))

    def _positive(self, instance: tuple[int, ...], step: float) -> str:
        if step:
            return (
                f"scores + {step:g} * cost of instance {instance} have positive entries, and {self!r} takes none: "
                "paths that may return would wander; take a smaller epsilon, or subtract more from the scores"
            )
        return (
            f"scores of instance {instance} have positive entries, and {self!r} takes none: paths that may return "
            "would wander; score cells by costs, negated, perturb them with dl.perturb(..., multiplicative=True), or "
            "subtract the largest score from all"
        )

    def _enumerate(self, parts: tuple[Tensor, ...]) -> tuple[Vertices, ...]:
        (scores,) = parts
        rows, columns = scores.shape if self.shape is None else self.shape
        if self.nonpositive:
            every = simple_paths(rows, columns, int(self.moves))
            return (Vertices.of_dense(torch.from_numpy(every).to(scores), 2),)
        count = rows + columns - 2
        down = torch.tensor(list(combinations(range(count), rows - 1)), dtype=torch.int64, device=scores.device)
        is_down = torch.zeros(len(down), count, dtype=torch.int64, device=scores.device).scatter_(1, down, 1)
        i = torch.nn.functional.pad(is_down.cumsum(1), (1, 0))
        j = torch.arange(count + 1, device=scores.device) - i
        if self.shape is None:
            return (Vertices.of_coordinates(scores.shape, i, j),)
        # Before row i there are i rows of 2 c - 1 edges.
        i, j = i[:, :-1], j[:, :-1]
        right_edges = i * (2 * columns - 1) + j
        return (Vertices(scores.shape, right_edges + is_down * (columns - 1), None),)

    def _count(self, parts: tuple[Tensor, ...]) -> int:
        rows, columns = parts[0].shape if self.shape is None else self.shape
        if self.nonpositive:
            return len(simple_paths(rows, columns, int(self.moves)))
        return math.comb(rows + columns - 2, rows - 1)

    def __repr__(self) -> str:
        return f"GridPath({self.moves!r})" if self.shape is None else f"GridPath({self.moves!r}, shape={self.shape})"


def _monotone(scores: Tensor, cost: Tensor, steps: Sequence[float]) -> Vertices:
    from directloss.structures.kernels.paths import LANES, monotone_paths

    (rows, columns), (batch, price) = scores.shape[-2:], scores_and_cost(scores, cost, 2)
    at = np.asarray(steps, np.float64)
    positions = np.empty((len(steps) * len(batch), rows + columns - 1), np.int64)

    def work(first: int, last: int) -> int:
        return int(monotone_paths(batch, price, at, rows, columns, positions, first, last))

    threads.split(work, -(-len(positions) // LANES), least=_LEAST_WORK // (LANES * rows * columns))
    found = torch.from_numpy(positions).reshape(len(steps), *scores.shape[:-2], rows + columns - 1)
    return Vertices(scores.shape[-2:], found.to(scores.device), None)


def _check_shape(shape: Sequence[int]) -> tuple[int, int]:
    try:
        rows, columns = (operator.index(size) for size in shape)
    except (TypeError, ValueError):
        raise TypeError(f"shape is {shape!r}, expected (r, c), two whole numbers") from None
    if min(rows, columns) < 1:
        raise ValueError(f"shape is {(rows, columns)}, expected r, c >= 1")
    return rows, columns


def _grid_edges(rows: int, columns: int) -> np.ndarray:
    """Cells count along the rows; each row's edges to the right come first, then its edges down."""
    edges: list[tuple[int, int]] = []
    for i in range(rows):
        row = range(i * columns, (i + 1) * columns)
        edges += [(cell, cell + 1) for cell in row[:-1]]
        edges += [(cell, cell + columns) for cell in row if i < rows - 1]
    return np.array(edges, np.int64).reshape(-1, 2)
