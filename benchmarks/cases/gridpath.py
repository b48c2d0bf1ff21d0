"""GridPath against SciPy's Dijkstra (cells, 8 neighbours) and HiGHS (edges, monotone)."""

import highspy
import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

import directloss as dl


def eight_neighbours(size):
    """The graph's fixed part: for each cell the cells beside it, as the index arrays of a sparse matrix."""
    i, j = np.divmod(np.arange(size * size), size)
    indices, bounds = [], [0]
    for cell in range(size * size):
        beside = [
            (i[cell] + down) * size + j[cell] + right
            for down in (-1, 0, 1)
            for right in (-1, 0, 1)
            if (down or right) and 0 <= i[cell] + down < size and 0 <= j[cell] + right < size
        ]
        indices += beside
        bounds.append(len(indices))
    return np.array(indices, np.int32), np.array(bounds, np.int32)


def scipy_paths(costs, indices, bounds):
    """Entering a cell costs what the cell does; the graph is built of its fixed index arrays."""
    y = np.zeros_like(costs)
    cells = costs.shape[1]
    for cost, path in zip(costs, y, strict=True):
        graph = csr_array((cost[indices], indices, bounds), shape=(cells, cells))
        _, before = dijkstra(graph, indices=0, return_predecessors=True)
        cell = cells - 1
        while cell >= 0:
            path[cell] = 1
            cell = before[cell]
    return y


def cyclic(size, target):
    costs = torch.rand(64, size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.01
    scores, flat, structure = -costs, costs.flatten(1).numpy(), dl.GridPath(8)
    graph = eight_neighbours(size)

    def check(ours, theirs):
        np.testing.assert_allclose((ours.flatten(1).numpy() * flat).sum(1), (theirs * flat).sum(1), rtol=1e-12)

    return {
        "work": f"GridPath {size}x{size}, 8 neighbours, cells, batch 64",
        "against": "scipy dijkstra, graph building included",
        "target": target,
        "ours": lambda: structure.solve(scores),
        "theirs": lambda: scipy_paths(flat, *graph),
        "check": check,
    }


def flow_model(size):
    """A unit of flow from the first cell to the last over the edges of the grid, in HiGHS, kept between solves."""
    edges = []
    for i in range(size):
        edges += [(i * size + j, i * size + j + 1) for j in range(size - 1)]
        edges += [(i * size + j, (i + 1) * size + j) for j in range(size) if i < size - 1]
    model = highspy.Highs()
    model.setOptionValue("output_flag", False)
    model.setOptionValue("threads", 1)
    for _ in edges:
        model.addVar(0.0, 1.0)
    for cell in range(size * size):
        balance = 1.0 if cell == 0 else -1.0 if cell == size * size - 1 else 0.0
        here = [(k, 1.0 if tail == cell else -1.0) for k, (tail, head) in enumerate(edges) if cell in (tail, head)]
        model.addRow(balance, balance, len(here), [k for k, _ in here], [sign for _, sign in here])
    return model, len(edges)


def monotone(batch):
    model, edges = flow_model(5)
    costs = torch.rand(batch, edges, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scores, rows, structure = -costs, costs.numpy(), dl.GridPath(shape=(5, 5))
    columns = np.arange(edges, dtype=np.int32)

    def highs():
        found = []
        for cost in rows:
            model.changeColsCost(edges, columns, cost)
            model.run()
            found.append(model.getSolution().col_value)
        return np.array(found)

    def check(ours, theirs):
        np.testing.assert_allclose((ours.numpy() * rows).sum(1), (theirs * rows).sum(1), rtol=1e-9)

    return {
        "work": f"GridPath 5x5, monotone, edges, batch {batch}",
        "against": "HiGHS, the model kept, as PyEPO uses it",
        "target": 200,
        "ours": lambda: structure.solve(scores),
        "theirs": highs,
        "check": check,
    }


def cases():
    return [cyclic(12, 10), cyclic(30, 3), monotone(32), monotone(256)]
