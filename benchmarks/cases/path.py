"""Path against rustworkx."""

from itertools import pairwise

import numpy as np
import rustworkx as rx
import torch

import directloss as dl

NODES, EDGES, BATCH = 100, 500, 64


def random_graph():
    """A chain of all nodes, so that the last one can be reached, and other edges from lower to higher numbers."""
    rng = np.random.default_rng(0)
    edges = {(node, node + 1) for node in range(NODES - 1)}
    while len(edges) < EDGES:
        tail, head = sorted(rng.choice(NODES, 2, replace=False).tolist())
        edges.add((tail, head))
    return rng.permutation(sorted(edges))


def cases():
    edges = random_graph()
    costs = torch.rand(BATCH, EDGES, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scores, rows = -costs, costs.numpy()
    structure = dl.Path(torch.from_numpy(edges), 0, NODES - 1)
    graph = rx.PyDiGraph()
    graph.add_nodes_from(range(NODES))
    graph.extend_from_weighted_edge_list([(int(tail), int(head), k) for k, (tail, head) in enumerate(edges)])
    number = {(int(tail), int(head)): k for k, (tail, head) in enumerate(edges)}

    def rustworkx():
        """The graph is kept, and each edge looks its cost up."""
        y = np.zeros_like(rows)
        for cost, path in zip(rows, y, strict=True):
            look_up = cost.tolist().__getitem__
            nodes = rx.dijkstra_shortest_paths(graph, 0, NODES - 1, weight_fn=look_up)[NODES - 1]
            path[[number[pair] for pair in pairwise(nodes)]] = 1
        return y

    def check(ours, theirs):
        np.testing.assert_allclose((ours.numpy() * rows).sum(1), (theirs * rows).sum(1), rtol=1e-12)

    return [
        {
            "work": f"Path, {NODES} nodes, {EDGES} edges, batch {BATCH}",
            "against": "rustworkx dijkstra, the graph kept",
            "target": 10,
            "ours": lambda: structure.solve(scores),
            "theirs": rustworkx,
            "check": check,
        }
    ]
