"""Paths in directed acyclic graphs: against enumeration, SciPy's Bellman-Ford and networkx.

``DIRECTLOSS_FUZZ_INSTANCES`` says how many instances are compared (``make fuzz``: 200,000).
"""

import copy
import os
import pickle
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import bellman_ford
from tables import EDGES, best_objective, index_in, objective

import directloss as dl

INSTANCES = int(os.environ.get("DIRECTLOSS_FUZZ_INSTANCES", "2000"))
BATCH = 50
KINDS = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "ties": lambda rng, shape: rng.integers(-2, 3, shape).astype(float),
    "constant": lambda rng, shape: np.full(shape, float(rng.integers(-3, 4))),
    "zeros": lambda rng, shape: np.zeros(shape),
    "tiny": lambda rng, shape: 1e-30 * rng.standard_normal(shape),
    "mixed magnitudes": lambda rng, shape: rng.standard_normal(shape) * 10.0 ** rng.integers(-12, 13, shape),
}


def random_graph(rng, nodes, count):
    """Edges from lower to higher places of a random order of the nodes, some of them parallel."""
    order = rng.permutation(3 * nodes)[:nodes]  # numbers need not be consecutive
    places = np.sort([rng.choice(nodes, 2, replace=False) for _ in range(count)], 1)
    return order, order[places], places


def longest(scores, places, source, target, nodes):
    """SciPy's largest sum of a path from place source to place target; minus infinity without one."""
    # Edges of zero are none to SciPy, so that all are moved by a potential; of parallel ones the best is kept.
    cost = np.full((nodes, nodes), np.inf)
    shift = 1 + np.abs(scores).max()
    np.minimum.at(cost, tuple(places.T), shift * (places[:, 1] - places[:, 0]) - scores)
    tails, heads = np.nonzero(np.isfinite(cost))
    graph = csr_array((cost[tails, heads], (np.int32(tails), np.int32(heads))), shape=(nodes, nodes))
    return shift * (target - source) - bellman_ford(graph, indices=source)[target]


def test_paths_are_as_good_as_scipys():
    rng, solved = np.random.default_rng(0), 0
    while solved < INSTANCES:
        nodes = int(rng.integers(2, 12))
        order, edges, places = random_graph(rng, nodes, int(rng.integers(1, 40)))
        source, target = sorted(rng.choice(nodes, 2, replace=False))
        kind = list(KINDS)[solved // BATCH % len(KINDS)]
        scores = KINDS[kind](rng, (BATCH, len(edges)))
        if not np.isfinite(longest(scores[0], places, source, target, nodes)):
            with pytest.raises(
                ValueError, match=f"target {order[target]} cannot be reached from source {order[source]}"
            ):
                dl.Path(torch.from_numpy(edges), order[source], order[target])
            continue
        structure = dl.Path(torch.from_numpy(edges), order[source], order[target])
        dl.set_num_threads(1 + solved // BATCH % 2)
        y = structure.solve(torch.from_numpy(scores)).numpy()
        # One more edge leaves than arrives at the source, the other way round at the target, and as many elsewhere.
        balance = np.zeros((BATCH, nodes))
        for edge, (tail, head) in enumerate(places):
            balance[:, tail] += y[:, edge]
            balance[:, head] -= y[:, edge]
        assert (balance == (np.arange(nodes) == source) * 1.0 - (np.arange(nodes) == target)).all()
        best = np.array([longest(one, places, source, target, nodes) for one in scores])
        assert (np.abs((y * scores).sum(1) - best) <= 1e-13 * nodes**2 * (1 + np.abs(scores).max(1))).all(), kind
        if structure.count(torch.zeros(len(edges))) <= 1000:
            every = structure.enumerate(torch.zeros(len(edges), dtype=torch.float64))
            index_in(torch.from_numpy(y), every)
            reached, best = (y * scores).sum(1), best_objective(torch.from_numpy(scores), every).numpy()
            assert (np.abs(reached - best) <= 1e-14 * nodes * np.abs(scores).max(1)).all(), kind
        solved += BATCH


def test_paths_agree_with_networkx(generator):
    rng = np.random.default_rng(1)
    chain = np.stack([np.arange(39), np.arange(1, 40)], 1)
    edges = np.unique(np.concatenate([chain, np.sort(rng.integers(0, 40, (200, 2)), 1)]), axis=0)
    edges = rng.permutation(edges[edges[:, 0] < edges[:, 1]])
    structure = dl.Path(torch.from_numpy(edges), 0, 39)
    scores = -torch.rand(20, len(edges), generator=generator, dtype=torch.float64)
    y = structure.solve(scores)
    for one, path in zip(scores, y, strict=True):
        graph = nx.DiGraph()
        graph.add_weighted_edges_from((*edge, -score) for edge, score in zip(edges.tolist(), one.tolist(), strict=True))
        nodes = nx.bellman_ford_path(graph, 0, 39)
        assert set(pairwise(nodes)) == {tuple(edge) for edge in edges[path.bool().numpy()].tolist()}


def test_count_equals_enumeration_and_large_counts_are_not_made():
    structure = dl.Path(EDGES, 4, 2)
    assert structure.count(torch.zeros(8)) == len(structure.enumerate(torch.zeros(8))) == 5
    doubled = [[node, node + 1] for node in range(100) for _ in range(2)]
    structure = dl.Path(doubled, 0, 100)
    assert structure.count(torch.zeros(200)) == 2**100
    with pytest.raises(ValueError, match=r"Path\(200 edges, source=0, target=100\) .* about 10\^30 structures"):
        structure.enumerate(torch.zeros(200))


def test_of_tied_paths_the_first_edges_are_taken_from_the_target_back():
    assert dl.Path(EDGES, 4, 2).solve(torch.zeros(8)).tolist() == [1, 1, 0, 0, 0, 0, 0, 0]


def test_neither_batch_nor_threads_decide_a_tie(generator):
    structure = dl.Path(EDGES, 4, 2)
    scores = torch.randint(2, (2, 5000, 8), generator=generator).double()
    one_thread = structure.solve(scores)
    dl.set_num_threads(2)
    assert torch.equal(structure.solve(scores), one_thread)
    assert torch.equal(structure.solve_along(scores, scores, (1.0, 0.0))[1], one_thread)
    assert torch.equal(torch.stack([structure.solve(one) for one in scores[0, :50]]), one_thread[0, :50])


def test_the_source_as_target_has_the_empty_path():
    structure = dl.Path([[0, 1], [1, 2]], 1, 1)
    scores = torch.ones(3, 2, requires_grad=True)
    assert not structure.solve(scores).any()
    assert structure.count(scores[0]) == len(structure.enumerate(scores[0])) == 1
    dl.direct_loss(scores, torch.ones(3, 2), structure, epsilon=1.0).backward()
    assert not scores.grad.any()
    assert dl.Path(torch.empty(0, 2), 3, 3).solve(torch.zeros(4, 0)).shape == (4, 0)


def test_a_common_edge_of_both_ends_gets_no_gradient():
    """Even where the paths reach it after different numbers of edges, so that noise cannot leave rounding there."""
    structure = dl.Path([[0, 1], [1, 2], [0, 2], [2, 3]], 0, 3)
    scale = torch.ones(4, dtype=torch.float64, requires_grad=True)
    noise = torch.tensor([[0.1, 0.2, 0.0, 0.3]], dtype=torch.float64)
    cost = torch.tensor([0.0, 0, 1, 0], dtype=torch.float64)
    dl.direct_loss(
        torch.zeros(4, dtype=torch.float64), cost, structure, epsilon=2.0, scale=scale, noise=noise
    ).backward()
    assert scale.grad.tolist() == [-0.05, -0.1, 0, 0]


@pytest.mark.parametrize(
    ("edges", "source", "target", "error", "message"),
    [
        ([[0, 1], [1, 2], [2, 1], [2, 3]], 0, 3, ValueError, "edges have a cycle, 1 -> 2 -> 1;|cycle, 2 -> 1 -> 2;"),
        ([[0, 1], [7, 7]], 0, 1, ValueError, "edges have a cycle, 7 -> 7;"),
        ([[5, 6], [6, 7], [7, 5], [0, 1], [7, 1]], 0, 1, ValueError, "edges have a cycle, "),
        ([[0, 1], [2, 3]], 0, 3, ValueError, "target 3 cannot be reached from source 0"),
        ([[0, 1]], 1, 0, ValueError, "target 0 cannot be reached from source 1"),
        ([[0, 1]], 0, 9, ValueError, "target 9 cannot be reached from source 0"),
        ([], 0, 1, ValueError, "target 1 cannot be reached"),
        ([[0, 1], [-1, 2]], 0, 1, ValueError, r"edge 1 is \[-1, 2\]; nodes are numbered from 0"),
        ([0, 1, 2], 0, 1, ValueError, r"edges have shape \(3,\), expected \(E, 2\)"),
        ([[0, 1, 2]], 0, 1, ValueError, r"edges have shape \(1, 3\), expected \(E, 2\)"),
        ([[0.0, 1.0]], 0, 1, TypeError, "edges are torch.float32, expected whole numbers"),
        ([[0, 1]], 0.5, 1, TypeError, "source is 0.5, expected the number of a node"),
        ([[0, 1]], 0, None, TypeError, "target is None, expected the number of a node"),
    ],
)
def test_bad_graphs_are_refused(edges, source, target, error, message):
    with pytest.raises(error, match=message):
        dl.Path(edges, source, target)


def test_scores_must_have_one_entry_for_each_edge():
    with pytest.raises(ValueError, match="scores have 7 entries, but there are 8 edges"):
        dl.Path(EDGES, 4, 2).solve(torch.zeros(3, 7))


def test_a_grid_of_edges_is_a_path(generator):
    edges = [[0, 1], [1, 2], [0, 3], [1, 4], [2, 5], [3, 4], [4, 5]]
    scores = torch.randn(50, 7, generator=generator)
    assert torch.equal(dl.Path(edges, 0, 5).solve(scores), dl.GridPath(shape=(2, 3)).solve(scores))


def test_copies_solve_alike(generator):
    structure, scores = dl.Path(EDGES, 4, 2), torch.randn(20, 8, generator=generator)
    for other in (copy.deepcopy(structure), pickle.loads(pickle.dumps(structure))):
        assert torch.equal(other.solve(scores), structure.solve(scores))


@pytest.mark.parametrize("batch", [(0,), (2, 0), (), (1,), (9,)])
def test_any_batch(batch, generator):
    scores = torch.randn(*batch, 8, generator=generator)
    y = dl.Path(EDGES, 4, 2).solve(scores)
    assert y.shape == scores.shape
    if scores.numel():
        every = dl.Path(EDGES, 4, 2).enumerate(torch.zeros(8))
        torch.testing.assert_close(objective(scores, y, 1), best_objective(scores, every))
